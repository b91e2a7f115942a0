"""Methods that are ready for batches."""

from __future__ import annotations

from typing import Any, TypeVar

from ttabench.method import Method

M = TypeVar("M", bound=Method[Any])


def ready(method: M, source: Any = None) -> M:
    """`method` itself, prepared with these source data."""
    method.prepare(source)
    return method
