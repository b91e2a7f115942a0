"""The progress callback of long tasks."""

from __future__ import annotations

from collections.abc import Callable

# (what is being done, steps done, steps in all or 0 where that is unknown)
OnProgress = Callable[[str, int, int], None]


def silent(*values: object) -> None:
    """A callback that does nothing with what it is told."""
