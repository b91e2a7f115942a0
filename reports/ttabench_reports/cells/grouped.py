"""Values by what they have in common."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key, of (key, value); keys and values in the order in which they come."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def by_row(values: Iterable[tuple[tuple[int, str], V]]) -> dict[int, dict[str, V]]:
    """Row → corruption → value, of ((row, corruption), value)."""
    nested: dict[int, dict[str, V]] = {}
    for (row, corruption), value in values:
        nested.setdefault(row, {})[corruption] = value
    return nested
