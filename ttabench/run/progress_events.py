"""What a worker reports while it runs cells. Light to import: executors pass these on without torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ttabench.cell import Result


@dataclass(frozen=True)
class CellProgress:
    """How far a running cell is. `scored` stays 0 while an offline method looks at the images.

    cell    its name. key: its id.
    doing   what comes before the first batch, e.g. ``preparing the method``; "" later.
    """

    cell: str
    total: int
    seen: int
    scored: int
    right: int
    doing: str = ""
    key: str = ""


@dataclass(frozen=True)
class Done:
    """Results that are already stored."""

    results: tuple[Result, ...] = field(default=())

    @property
    def finished(self) -> tuple[str, ...]:
        """The ids of their cells."""
        return tuple(result.cell.cell_id for result in self.results)


@dataclass(frozen=True)
class Elsewhere:
    """A chain that was left out: another process computes it, or has stored it. `cells` are its ids."""

    cells: tuple[str, ...]

    @property
    def finished(self) -> tuple[str, ...]:
        """The same: this worker has nothing more to do with them."""
        return self.cells


@dataclass(frozen=True)
class Waiting:
    """All other cells are done; so many are computed by processes at these places (``host:pid``)."""

    cells: int
    where: tuple[str, ...]


Emit = Callable[[Any], None]
