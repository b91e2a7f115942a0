"""Planned cells of a results folder that have no record yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Missing:
    """Cells of one method, architecture, dataset and severity: which corruptions, and how many cells."""

    method: str
    base: str
    arch: str
    dataset: str
    severity: int
    corruptions: tuple[str, ...]
    cells: int

    def __deepcopy__(self, memo: object) -> Missing:
        """Itself: pandas copies what is in a table's `attrs` at every step."""
        return self


def missing(plan: Iterable[Mapping[str, Any]], stored: Iterable[str]) -> tuple[Missing, ...]:
    """What of a plan (see :meth:`ttabench.store.Store.plan`) is not among the `stored` ids.

    Cells that cannot be run have a reason in the plan and are not missing.
    """
    there = set(stored)
    corruptions: dict[tuple[str, str, str, str, int], list[str]] = {}
    for row in plan:
        if row["id"] not in there and not row["reason"]:
            key = (row["method"], row["base"], row["arch"], row["dataset"], row["severity"])
            corruptions.setdefault(key, []).append(row["corruption"])
    return tuple(
        Missing(method, base, arch, dataset, severity, tuple(dict.fromkeys(names)), len(names))
        for (method, base, arch, dataset, severity), names in corruptions.items()
    )
