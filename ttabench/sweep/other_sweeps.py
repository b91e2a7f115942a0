"""The cells of a sweep that other processes compute, as the sweep sees them."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import replace

from ttabench.cell import Cell, Result
from ttabench.run.cell_group import CellGroup, Chain
from ttabench.run.progress_events import Elsewhere, Waiting
from ttabench.store import Store
from ttabench.store.new_records import NewRecords
from ttabench.system.work_claims import WorkClaims

POLL = 0.5  # seconds between two looks


class Others:
    """Chains of cells that another process claimed, or has stored.

    claims   of this sweep.
    start    the results folder when its cells were planned, see :func:`ttabench.store.new_records.sizes`.
    patience   seconds to wait for others.
    """

    def __init__(
        self,
        groups: Sequence[CellGroup],
        store: Store,
        claims: WorkClaims,
        start: Mapping[str, int],
        patience: float = math.inf,
    ) -> None:
        self._of = {chain[0].cell_id: (group, chain) for group in groups for chain in group.chains}
        self._claims, self._new_records, self._patience = claims, NewRecords(store.root, start), patience
        self._left: dict[str, Chain] = {}  # what is to do of each chain, by the id of its first cell

    def note(self, event: Elsewhere) -> list[Result]:
        """Keep in mind what a worker did not take; the results of it that are already stored."""
        group, chain = self._of[event.cells[0]]
        self._left[event.cells[0]] = group.to_do(chain)
        return self._stored()

    def stored(self, cells: Collection[str]) -> list[Result]:
        """The results of these cells that any process has stored since the start."""
        stored = self._new_records.among(cells)
        return [self._new_records.result(key) for key in cells if key in stored]

    def wait(self) -> Generator[list[Result] | Waiting, None, list[CellGroup]]:
        """Wait until nothing is left elsewhere, or something became free again, because its process died.

        Yields results as they are stored, and who is waited for. Returns what became free; nothing where
        patience ends before.
        """
        announced: tuple[str, ...] = ()
        until = time.monotonic() + self._patience
        while self._left and time.monotonic() < until:
            # First the claims, then the store: what was stored before its claim ended is seen.
            free = [key for key in self._left if self._claims.is_free(key)]
            yield self._stored()
            if free := [key for key in free if key in self._left]:
                return [self._taken_over(key) for key in free]
            where = tuple(sorted({place for key in self._left for place in self._claims.where(key)}))
            if self._left and where and where != announced:
                announced = where
                yield Waiting(sum(map(len, self._left.values())), where)
            if self._left:
                time.sleep(POLL)
        return []

    def _taken_over(self, key: str) -> CellGroup:
        del self._left[key]
        group, chain = self._of[key]
        return replace(group, chains=(chain,))

    def _stored(self) -> list[Result]:
        """The results of chains of which nothing is to do; these are no longer waited for."""
        results: list[Result] = []
        for key, todo in list(self._left.items()):
            if self._new_records.has(*(cell.cell_id for cell in todo)):
                del self._left[key]
                results += (self._new_records.result(cell.cell_id) for cell in todo)
        return results


def with_other_code(cells: Iterable[Cell], store: Store, start: Mapping[str, int]) -> int:
    """How many of these cells have a result since `start` that was made with other code than is installed.

    A process computes with the code that was installed when it began, also where files have changed since.
    """
    ids = NewRecords(store.root, start).among(cell.cell_id for cell in cells)
    held = store.latest(quick=True) if ids else {}
    return sum(record.stale for key, record in held.items() if key in ids)
