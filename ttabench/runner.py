"""A sweep from its grid to its results: what is missing, what is done, what remains, and running that."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from ttabench.cell import Cell, Result
from ttabench.classifier import Classifier
from ttabench.contamination import foreign_images
from ttabench.data.catalog import dataset as open_dataset
from ttabench.data.dataset import Dataset
from ttabench.data.fetch.download import Progress as Meter
from ttabench.data.fetch.download import silent
from ttabench.data.mixed import MIXED
from ttabench.errors import UserError, unknown
from ttabench.executors import Died, Executor
from ttabench.grid import Grid, Planned, Target
from ttabench.models.architectures import build as catalog
from ttabench.models.checkpoints import cache as checkpoints
from ttabench.models.external.bring import bring
from ttabench.models.external.networks import is_external
from ttabench.protocol import parse_call
from ttabench.store import Store
from ttabench.worker import Done, Job, Progress

OVERWRITE = ("never", "failed", "always")


@dataclass
class Agenda:
    """A sweep's cells by what is to happen to them."""

    todo: list[Cell] = field(default_factory=list)
    done: list[Cell] = field(default_factory=list)
    failed: list[Cell] = field(default_factory=list)  # recorded as failed, and left so
    not_applicable: list[Planned] = field(default_factory=list)

    @property
    def total(self) -> int:
        return len(self.todo) + len(self.done) + len(self.failed) + len(self.not_applicable)


def open_datasets(grid: Grid) -> dict[str, Dataset]:
    """The datasets of a grid, each checked for its corruptions and what contaminates it. Raises UserError."""
    opened = {data.name: data for data in map(open_dataset, grid.datasets)}
    for name, data in opened.items():
        for corruption in grid.corruptions:
            if corruption not in (*data.corruptions, MIXED):
                raise unknown(f"corruption of {name}", corruption, data.corruptions)
        if parse_call(grid.contamination):
            foreign_images(grid.contamination, data.test().images[:0], seed=0)
    return opened


def untrained(grid: Grid, datasets: dict[str, Dataset]) -> list[tuple[str, str]]:
    """(architecture, dataset) pairs that have no source classifier yet."""
    return [
        (arch, name)
        for name, data in datasets.items()
        for arch in grid.archs
        if not _comes_with_weights(grid, arch) and not checkpoints.find(arch, data)
    ]


def _comes_with_weights(grid: Grid, arch: str) -> bool:
    return bool(grid.checkpoint) or is_external(arch)


def targets(
    grid: Grid, datasets: dict[str, Dataset], device: str = "cpu", progress: Meter = silent
) -> list[Target]:
    """Every classifier of the grid; the checkpoint is "" where none is trained yet.

    One from outside is fetched where need be (`progress` is told), measured on the clean images and
    kept in the cache; what is odd is warned about.
    """
    found = []
    for (name, data), arch in itertools.product(datasets.items(), grid.archs):
        if _comes_with_weights(grid, arch):
            file = Path(grid.checkpoint) if grid.checkpoint else None
            brought = bring(
                arch, data, checkpoint=file, normalize=grid.normalize, device=device, progress=progress
            )
            if text := brought.note.get("warning"):
                warnings.warn(f"{arch} on {name}: {text}", stacklevel=2)
            classifier, checkpoint = brought.classifier, brought.sha256
        elif checkpoints.find(arch, data):
            loaded = checkpoints.load(arch, data)
            classifier, checkpoint = loaded.classifier, loaded.sha256
        else:
            classifier, checkpoint = _untrained(arch, data), ""
        found.append(
            Target(arch, classifier.architecture(), checkpoint, name, data.fingerprint(), data.num_classes)
        )
    return found


def _untrained(arch: str, data: Dataset) -> Classifier:
    return catalog.build(
        arch,
        dataset=data.name,
        num_classes=data.num_classes,
        image_size=data.image_size,
        mean=data.mean,
        std=data.std,
    )


def agenda(planned: Iterable[Planned], store: Store | None, overwrite: str = "failed") -> Agenda:
    """Sort cells by what the store already holds. `overwrite` is one of :data:`OVERWRITE`."""
    held = {} if store is None or overwrite == "always" else store.latest()
    sorted_out = Agenda()
    for item in planned:
        record = held.get(item.cell.cell_id) if item.cell.checkpoint else None
        if item.unmet:
            sorted_out.not_applicable.append(item)
        elif record is None or record.result.status == "n/a":
            sorted_out.todo.append(item.cell)
        elif record.result.status == "ok":
            sorted_out.done.append(item.cell)
        elif overwrite == "failed":
            sorted_out.todo.append(item.cell)
        else:
            sorted_out.failed.append(item.cell)
    return sorted_out


def jobs(todo: Sequence[Cell], planned: Sequence[Planned], store: Store, device: str) -> list[Job]:
    """One job per cell; per whole sequence where state carries over from corruption to corruption."""
    sequences: dict[tuple[object, ...], list[Cell]] = {}
    wanted = {cell.cell_id for cell in todo}
    made: list[Job] = []
    for cell in (item.cell for item in planned if not item.unmet):
        if cell.protocol.reset == "continual":
            sequences.setdefault(
                (cell.method, cell.config, cell.arch, cell.dataset, cell.severity, cell.seed), []
            ).append(cell)
        elif cell.cell_id in wanted:
            made.append(Job((cell,), store.root, device))
    made += [
        Job(tuple(cells), store.root, device)
        for cells in sequences.values()
        if any(cell.cell_id in wanted for cell in cells)
    ]
    return made


def record_not_applicable(items: Sequence[Planned], store: Store) -> None:
    """Store each cell that cannot be run with its reason, once."""
    held = store.latest()
    writer = store.writer()
    for item in items:
        if item.cell.cell_id not in held:
            writer.append(Result(cell=item.cell, status="n/a", reason=item.unmet))
    writer.close()


def run(
    todo: Sequence[Job], store: Store, executor: Executor, workers: int, *, fail_fast: bool = False
) -> Iterator[Result | Progress]:
    """Run jobs, yield progress and stored results as they come; stop at the first failure if asked to."""
    with closing(executor(todo, workers)) as events:
        for event in events:
            if isinstance(event, Progress):
                yield event
                continue
            results = event.results if isinstance(event, Done) else _died(event, store)
            yield from results
            if fail_fast and any(r.status == "failed" for r in results):
                return


def _died(event: Died, store: Store) -> tuple[Result, ...]:
    reason = "the worker process was killed twice while running this cell (out of memory?)"
    results = tuple(Result(cell=cell, status="failed", reason=reason) for cell in event.job.cells)
    writer = store.writer()
    for result in results:
        writer.append(result)
    writer.close()
    return results


def pick_overwrite(text: str) -> str:
    """Raises UserError unless `text` is one of :data:`OVERWRITE`."""
    if text not in OVERWRITE:
        raise unknown("value of --overwrite", text, OVERWRITE)
    return text


def pick_workers(text: str, device: str, count: int) -> int:
    """ "auto" → one per GPU, or one per core on the CPU; 0 runs in this process. Raises UserError."""
    if text != "auto":
        try:
            number = int(text)
        except ValueError:
            number = -1
        if number < 0:
            raise UserError(f"--workers {text}: expected auto or a whole number (0 = in this process).")
        return number
    if device.startswith("cuda"):
        import torch

        return max(1, torch.cuda.device_count()) if device == "cuda" else 1
    return max(1, min(cores(), count))


def cores() -> int:
    """The processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
