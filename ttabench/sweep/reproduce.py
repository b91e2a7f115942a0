"""Compute stored cells again with the installed code, and compare the results."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ttabench.cell import Cell, Result
from ttabench.errors import UserError
from ttabench.run.executors import Died, Executor
from ttabench.run.gpu import check_gpu, use_gpu
from ttabench.run.kept_objects import WorkerState
from ttabench.run.progress_events import CellProgress, Emit
from ttabench.run.stream_of_cell import FOLDER
from ttabench.run.worker import Worker
from ttabench.store import Record, Store
from ttabench.store.stream_paths import check_path
from ttabench.sweep.agreement import Check, compare, here, of_cell, other_weights
from ttabench.sweep.available import Available
from ttabench.system.environment import device_kind, pick_device


@dataclass(frozen=True)
class Rerun:
    """Cells to run again one after the other, for an executor; no result is stored.

    folder   a copy of what the results folder knows of streams, see `copied_paths`.
    """

    cells: tuple[Cell, ...]
    device: str
    folder: Path

    def __call__(self, emit: Emit, state: WorkerState) -> tuple[Result, ...]:
        use_gpu(self.device)
        check_gpu(self.device)
        return tuple(Worker(state, self.folder, self.device, emit).results_of(self.cells))


def device_of(records: Iterable[Record]) -> str:
    """The device of workers that can run all of these cells again where they ran: a GPU if one needs it."""
    return "cuda" if "cuda" in map(_stored, records) else "cpu"


def _stored(record: Record) -> str:
    """The kind of device that a record was made on; the CPU where this machine has none of this kind."""
    try:
        return pick_device(device_kind(str(record.environment.get("device", "cpu"))))
    except UserError:
        return "cpu"


def run(
    store: Store,
    records: Sequence[Record],
    available: Mapping[str, Available],
    device: str,
    executor: Executor,
    workers: int,
) -> Iterator[Check | CellProgress]:
    """Run some cells of a store again; progress and checks as they come. Nothing is written to the store.

    available  see `find_available`; only cells that have all they need are run.
    device     "" for the one that each cell was stored with, or the CPU where that is not here.
    """
    usable = []
    for record in records:
        found = available[record.result.cell.cell_id]
        if found.lacks:
            yield of_cell(record.result, "not here", notes=(found.lacks,))
        elif found.other:
            yield other_weights(record, found.other, device or _stored(record))
        else:
            usable.append(record)
    if not usable:
        return
    waiting = {record.result.cell.cell_id: record for record in usable}
    with copied_paths(store) as folder:
        for event in executor(_jobs(usable, device, folder), workers):
            if isinstance(event, CellProgress):
                yield event
                continue
            if isinstance(event, Died) and event.too_long:
                for cell in event.job.cells:
                    if (stored := waiting.pop(cell.cell_id, None)) is not None:
                        yield of_cell(stored.result, "stopped", notes=(event.reason,))
                continue
            for result in _lost(event, waiting) if isinstance(event, Died) else event:
                if (stored := waiting.pop(result.cell.cell_id, None)) is not None:
                    yield compare(stored, result, here(device or _stored(stored), result.cell))


def _lost(died: Died, waiting: Mapping[str, Record]) -> list[Result]:
    """The results of a job whose worker died: all of them have failed."""
    records = [waiting[cell.cell_id] for cell in died.job.cells if cell.cell_id in waiting]
    return [replace(record.result, status="failed", reason=died.reason) for record in records]


@contextmanager
def copied_paths(store: Store) -> Iterator[Path]:
    """A temporary folder for workers, with the paths of the store's ccc streams.

    A path is computed where it is not known. That takes long, and another machine may round to another path.
    Raises UserError for one that ttabench did not write.
    """
    with TemporaryDirectory(prefix="ttabench-verify-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        try:
            (folder / FOLDER).mkdir()
            shutil.copyfile(store.manifest, folder / store.manifest.name)
            for path in (store.root / FOLDER).glob("ccc-*.json"):
                check_path(path)
                shutil.copyfile(path, folder / FOLDER / path.name)
        except OSError as problem:
            raise UserError(
                f"the streams of {store.root} cannot be copied to {folder} ({problem.strerror})."
            ) from None
        yield folder


def _jobs(records: Sequence[Record], device: str, folder: Path) -> list[Rerun]:
    """One job per cell; a cell of a continual run brings those before it, and takes care of them too."""
    jobs: list[Rerun] = []
    covered: set[tuple[str, str]] = set()
    for record in sorted(records, key=lambda r: -len(r.result.cell.history)):
        cell, on = record.result.cell, device or _stored(record)
        if (cell.cell_id, on) not in covered:
            chain = (*before(cell), cell)
            covered |= {(each.cell_id, on) for each in chain}
            jobs.append(Rerun(chain, on, folder))
    return jobs


def before(cell: Cell) -> Iterator[Cell]:
    """The cells of a continual run that came before this one."""
    for at, name in enumerate(cell.history):
        corruption, _, severity = name.rpartition("-")
        yield replace(cell, corruption=corruption, severity=int(severity), history=cell.history[:at])
