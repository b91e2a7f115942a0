"""Cells of a results folder that several processes share: each is computed by one of them. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ttabench.cell import Cell
from ttabench.run.progress_events import CellProgress, Emit
from ttabench.store.new_records import NewRecords
from ttabench.system.work_claims import WorkClaims

LOSSES = 3  # how often a cell may lose its process


class Share:
    """What a worker process takes. Kept in its :class:`WorkerState`.

    start   the results folder when the sweep looked at it, see :func:`ttabench.store.new_records.sizes`.
    """

    def __init__(self, results: Path, start: Mapping[str, int]) -> None:
        self._claims, self._new_records = WorkClaims(results), NewRecords(results, start)

    def take(self, chain: Sequence[Cell], todo: Sequence[Cell]) -> bool:
        """Claim a chain of cells. False where another process has it, or has stored `todo` since the start.

        todo   those of its cells that need a new result.
        A result is stored before its claim ends. So a chain that is free and not stored is still to do.
        """
        key = chain[0].cell_id
        if not self._claims.take(key):
            return False
        if not self.left(todo):
            self._claims.release(key)
            return False
        return True

    def trouble(self, chain: Sequence[Cell]) -> str:
        """Why a chain is given up: too many processes died with it; or ""."""
        if self._claims.losses(chain[0].cell_id) < LOSSES:
            return ""
        return (
            f"its process was lost {LOSSES} times (killed, out of memory or of time, or its machine was lost)"
        )

    def left(self, cells: Sequence[Cell]) -> list[Cell]:
        """Those cells that are not stored since the start."""
        stored = self._new_records.among(cell.cell_id for cell in cells)
        return [cell for cell in cells if cell.cell_id not in stored]

    def release(self, chain: Sequence[Cell]) -> None:
        """End the claim."""
        self._claims.release(chain[0].cell_id)
        self._claims.report()

    def reporting(self, emit: Emit) -> Emit:
        """`emit` that also puts the progress of a cell into the lease of this process."""

        def both(event: Any) -> None:
            if isinstance(event, CellProgress):
                self._claims.report(**vars(event))
            emit(event)

        return both

    def close(self) -> None:
        self._claims.close()
