"""The work that an executor gets: a group of cells of one classifier and dataset, and what they need."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ttabench.cell import Cell, Result
from ttabench.provenance.forbidden_imports import refused_imports
from ttabench.provenance.staleness import code_of
from ttabench.registry import METHODS, entry_points
from ttabench.run.gpu import check_gpu, use_gpu
from ttabench.run.kept_objects import WorkerState
from ttabench.run.progress_events import Done, Elsewhere, Emit
from ttabench.run.shared_folder import Share

Chain = tuple[Cell, ...]
"""Cells that run one after the other in one method's state; a single cell unless the reset is continual."""


@dataclass(frozen=True)
class CellGroup:
    """Cells for one worker, in order. Picklable, and light to import: torch is imported when it runs.

    results        the results folder, an absolute path.
    device         of the worker: cpu, cuda (the GPU that the worker is bound to) or cuda:1.
    device_memory  bytes of the GPU that the worker may use; 0 = all.
    scores         the label-free scores of its cells, "cheap" or "all".
    start          sizes of the files of results when the cells were planned, see `store.new_records`.
    command        see :mod:`ttabench.run.executors`.
    done           ids of cells that need no new result: only others of their continual run do.
    per_gpu        how many workers share the GPU; 0 without one.
    recompute      whether networks compute their activations again in the backward pass.
    folders        of own datasets, by name.
    """

    chains: tuple[Chain, ...]
    results: Path
    device: str = "cpu"
    device_memory: int = 0
    scores: str = "cheap"
    start: tuple[tuple[str, int], ...] = ()
    command: tuple[str, ...] = ()
    done: frozenset[str] = frozenset()
    per_gpu: int = 0
    recompute: bool = False
    folders: tuple[tuple[str, Path], ...] = ()

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(cell for chain in self.chains for cell in chain)

    def to_do(self, chain: Chain) -> Chain:
        """The cells of a chain that need a new result; whoever stores these has done the chain."""
        return tuple(cell for cell in chain if cell.cell_id not in self.done)

    def __call__(self, emit: Emit, state: WorkerState) -> Done:
        # Hashed and remembered before the code is imported, since its files may change during the sweep.
        for cell in self.cells:
            code_of(cell)
        from ttabench.data.catalog import opened_folders
        from ttabench.run.worker import Worker

        opened_folders.update(self.folders)

        def stored(result: Result) -> None:
            emit(Done((result,)))

        share = state.keep("share", self.results, lambda: Share(self.results, dict(self.start)), limit=1)
        told = share.reporting(emit)
        use_gpu(self.device, self.device_memory)
        known = entry_points(METHODS)
        with refused_imports({known[c.method].module for c in self.cells if c.method in known}):
            for chain in self.chains:
                check_gpu(self.device)
                todo = self.to_do(chain)
                if not share.take(chain, todo):
                    emit(Elsewhere(tuple(cell.cell_id for cell in chain)))
                    continue
                try:
                    left = share.left(todo)
                    done = {cell.cell_id for cell in chain} - {cell.cell_id for cell in left}
                    worker = Worker(
                        state, self.results, self.device, told, self.scores, frozenset(done), self.per_gpu,
                        self.recompute,
                    )  # fmt: skip
                    if trouble := share.trouble(chain):
                        worker.give_up(left, trouble, stored)
                    else:
                        worker.run(chain, stored)
                finally:
                    share.release(chain)
        return Done()

    def split(self, finished: Collection[str]) -> tuple[CellGroup | None, CellGroup | None]:
        """What the group was at when it ended early, and what is left after that; None where nothing is.

        finished   ids of cells whose results are stored. A chain that is half done starts again.
        """
        left = [
            chain for chain in self.chains
            if any(cell.cell_id not in finished for cell in self.to_do(chain))
        ]  # fmt: skip
        return self._part(left[:1]), self._part(left[1:])

    def _part(self, chains: list[Chain]) -> CellGroup | None:
        return replace(self, chains=tuple(chains)) if chains else None
