"""What is run again after a machine was lost: decided by what is stored, not by what an engine reports."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttabench.run.events import Done
from ttabench.run.executors import Died, split
from ttabench.store.tail import Tail, result_in, sizes

TRIES = 3  # how often a cell runs when its machine is lost each time


@dataclass(frozen=True)
class Attempt:
    """A job, and how often the machine was lost that was at it."""

    job: Any
    losses: int = 0


class Losses:
    """How often a machine was lost that was at a cell, over all runs of an engine.

    The claim of a worker on a lost machine outlives it for a while. The next worker then leaves the cell out,
    and the sweep brings it again, as a new job of another run.
    """

    def __init__(self) -> None:
        self._of: dict[tuple[str, ...], int] = {}

    def add(self, job: Any, before: int) -> int:
        """Count one more loss of a job; returns all. `before` is the count of a job that has no cells."""
        key = tuple(cell.cell_id for cell in getattr(job, "cells", ()))
        if not key:
            return before + 1
        self._of[key] = self._of.get(key, 0) + 1
        return self._of[key]


class Stored:
    """The results that any process stores in a folder from now on."""

    def __init__(self, folder: Path) -> None:
        self._tail = Tail(folder, sizes(folder))

    @property
    def cells(self) -> Collection[str]:
        """The ids of their cells, as of the last look."""
        return self._tail.stored

    def new(self, wanted: Collection[str]) -> Iterator[Done]:
        """Look: the results that came since the last look, of the cells that are wanted."""
        for cell, line in self._tail.look():
            if cell in wanted:
                yield Done((result_in(line),))


def cells_of(jobs: Collection[Any]) -> set[str]:
    """The ids of the cells of jobs."""
    return {cell.cell_id for job in jobs for cell in getattr(job, "cells", ())}


def after_loss(
    attempt: Attempt, finished: Collection[str], reason: str, losses: Losses
) -> tuple[list[Attempt], Died | None]:
    """What to run again of a job whose machine was lost: first what is left, then what it was at.

    After `TRIES` losses at the same cell it is given up instead, with the reason.
    """
    running, rest = split(attempt.job, finished)
    again = [] if rest is None else [Attempt(rest)]
    if running is None:
        return again, None
    count = losses.add(running, attempt.losses)
    if count >= TRIES:
        return again, Died(running, f"{reason}, {TRIES} times")
    return [*again, Attempt(running, count)], None
