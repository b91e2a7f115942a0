"""Compute stored cells again with the installed code, and compare the results.

On the same kind of machine (processor, device, threads, versions of the libraries) results must be bitwise
equal. On another kind, sums have another order. Rounding then changes the predictions of a few images, and
learning passes these changes on from batch to batch. There, at most a share `BOUND` of the images may differ.
The same holds on a GPU, where some sums have another order in each run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch

from ttabench.cell import Cell, Result
from ttabench.data.catalog import NAMES
from ttabench.data.catalog import dataset as open_dataset
from ttabench.data.foreign import foreign_fingerprint
from ttabench.data.own.manifest import SUFFIX
from ttabench.errors import UserError
from ttabench.method.spelling import split_list
from ttabench.models.checkpoints import cache
from ttabench.models.model import Model
from ttabench.models.resolve import resolve_model
from ttabench.provenance import libraries
from ttabench.provenance.staleness import stale_reasons
from ttabench.registry import method_names
from ttabench.run.executors import Died, Executor
from ttabench.run.gpu import check_gpu, use_gpu
from ttabench.run.kept_objects import WorkerState
from ttabench.run.progress_events import CellProgress, Emit
from ttabench.run.stream_of_cell import FOLDER
from ttabench.run.worker import Worker
from ttabench.store import Record, Store
from ttabench.store.stored_environment import StoredEnvironment
from ttabench.store.stream_paths import check_path
from ttabench.store.writer import environment
from ttabench.subset_names import drawn_from
from ttabench.sweep.option_table import DEFAULTS
from ttabench.sweep.options import arch_spelling
from ttabench.sweep.sweep_file import kept
from ttabench.system.environment import device_kind, pick_device

__all__ = [
    "BOUND", "Available", "Check", "before", "compare", "copied_paths", "device_of", "find_available", "run",
    "sweeps_of",
]  # fmt: skip

BOUND = 0.01
"""Share of a cell's images whose correctness may differ on another kind of machine, or on a GPU.

Six times the largest share of 48 cells made with AVX-512 and again with AVX2, see docs/verify.md.
"""


Verdict = Literal["same", "within", "differs", "failed", "other weights", "not here", "stopped"]


@dataclass(frozen=True)
class Check:
    """A stored cell, and its new result.

    verdict    same: bitwise equal. within: on another kind of machine or a GPU, and within `BOUND`. differs,
               failed: the result is not reproduced. other weights: not comparable, because the recipe trains
               other weights on this kind of machine. not here: not run, because data, weights or code are
               missing.
               stopped: not run to its end, because it took longer than it may.
    stored, now   accuracies in percent; `now` is None without a new result.
    differing  images whose correctness differs; None if they cannot be compared.
    exact      whether the result must be bitwise equal.
    notes      what has changed since it was stored.
    """

    cell: Cell
    verdict: Verdict
    stored: float
    n_images: int
    now: float | None = None
    differing: int | None = None
    exact: bool = False
    notes: tuple[str, ...] = ()

    @property
    def measured(self) -> bool:
        """Whether the cell has a new result to compare with."""
        return self.verdict in ("same", "within", "differs", "failed")

    def to_json(self) -> dict[str, Any]:
        return {
            "cell": str(self.cell), "mode": self.cell.protocol.mode, "id": self.cell.cell_id,
            "verdict": self.verdict, "stored": self.stored, "now": self.now, "n_images": self.n_images,
            "differing": self.differing, "exact": self.exact, "notes": list(self.notes),
        }  # fmt: skip


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


@dataclass(frozen=True)
class Available:
    """What is here of what a cell needs.

    other   the hash of what the same training gives here, for weights that are not in the cache; else "".
    lacks   why the cell cannot be run, where its data, weights or code are not here; else "".
    """

    other: str = ""
    lacks: str = ""


def find_available(records: Iterable[Record], sweeps: Sequence[Mapping[str, Any]]) -> dict[str, Available]:
    """What is here for each cell, by its id.

    sweeps   see `sweeps_of`.

    Raises UserError where a dataset is not the same.
    """
    cells = [record.result.cell for record in records]
    firsts = {_place(cell): cell for cell in cells}
    available = {place: _what_is_here(cell, sweeps) for place, cell in firsts.items()}
    installed = {name: _method_here(name) for name in {cell.method for cell in cells}}
    return {cell.cell_id: installed[cell.method] or available[_place(cell)] for cell in cells}


def _method_here(name: str) -> Available | None:
    """What is lacking where a method is not installed; None where it is."""
    if name in method_names():
        return None
    return Available(lacks=f"the method {name} is not installed; install its package: pip install -e FOLDER.")


def _check_same(dataset: str, here: str, there: str) -> None:
    """Raises UserError where a dataset is not the one that was measured on."""
    if here != there:
        raise UserError(
            f"{dataset} is not what these results were measured on ({here[:12]} here, {there[:12]} there); "
            "get the same data, or run the sweep again."
        )


def _what_is_here(cell: Cell, sweeps: Sequence[Mapping[str, Any]]) -> Available:
    """What is here for a cell. Raises UserError where a dataset is not the same."""
    try:
        data = open_dataset(cell.dataset)
    except UserError as problem:
        return Available(lacks=str(problem))
    _check_same(cell.dataset, data.fingerprint(), cell.fingerprint)
    if cell.foreign:
        contamination = cell.protocol.contamination
        try:
            foreign = foreign_fingerprint(contamination)
        except UserError as problem:
            return Available(lacks=str(problem))
        _check_same(contamination.partition("(")[0], foreign, cell.foreign)
    try:
        model = resolve_model(cell.arch, data)
    except UserError as problem:  # a network of the user, or of a package, that is not installed
        return Available(lacks=str(problem))
    if cache.with_hash(model.dataset.name, model.aliases, cell.checkpoint) is not None:
        return Available(lacks="" if model.trainable else _missing_code(model))
    weights = f"the weights {cell.checkpoint[:12]} of {cell.arch} on {cell.dataset} are not in the cache"
    again = f"--archs {cell.arch} --datasets {cell.dataset}"
    brought = any(_brings_weights(sweep, cell) for sweep in sweeps)
    if brought or not model.trainable:
        file = " --checkpoint FILE" if brought else ""
        return Available(lacks=f"{weights}; fetch them with ttabench sweep {again}{file} --dry-run.")
    if not model.ready:
        return Available(
            lacks=f"{weights}; train them with ttabench train {again}, or bring their file with "
            f"ttabench sweep {again} --checkpoint FILE --dry-run."
        )
    return Available(other=model.load().sha256)


def _missing_code(model: Model) -> str:
    """Why the network of a user or of a package cannot be imported; "" where it can.

    What is here and fails is run, and then has no number.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            model.build()
    except Exception as problem:
        return str(problem) if isinstance(problem.__context__, ImportError) else ""
    return ""


def sweeps_of(store: Store) -> list[Mapping[str, Any]]:
    """The options of each sweep of a results folder: its sweep files, or else its `sweep.json`.

    That one has a single checkpoint for all sweeps of the folder: the last one's, or none.
    """
    return [*kept(store.root)] or [store.sweep()]


def _brings_weights(sweep: Mapping[str, Any], cell: Cell) -> bool:
    """Whether a sweep takes the weights of a cell from a file: by an option, or by a rule."""
    sweep = {**DEFAULTS, **sweep}
    for rule in ({}, *sweep.get("include", ())):
        for dataset in _names({**sweep, **rule}["datasets"]):
            if dataset not in (cell.dataset, drawn_from(cell.dataset)) and not _is_path(dataset):
                continue
            values = {**sweep, **sweep.get("per_dataset", {}).get(dataset, {}), **rule}
            if values["checkpoint"] and cell.arch in map(arch_spelling, _names(values["archs"])):
                return True
    return False


def _names(value: str | Sequence[str]) -> Sequence[str]:
    """The names of an axis: a text in a sweep file that was read, a list in `sweep.json`."""
    return split_list(value) if isinstance(value, str) else value


def _is_path(dataset: str) -> bool:
    """Whether a sweep names a dataset by its folder, and cells by the name that the folder gives it."""
    return os.sep in dataset or not (dataset in NAMES or dataset.endswith(SUFFIX))


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
            yield _check(record.result, "not here", notes=(found.lacks,))
        elif found.other:
            yield _other_weights(record, found.other, device or _stored(record))
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
                        yield _check(stored.result, "stopped", notes=(event.reason,))
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


def compare(record: Record, result: Result, now: Mapping[str, Any]) -> Check:
    """A stored result beside the one made `now`, an environment as records have it."""
    stored = record.result
    notes, other_kind = [*_code(record)], differences(record.environment, now)
    notes += other_kind
    exact = _exact(other_kind, now)
    if result.status != "ok":
        return _check(stored, "failed", exact=exact, notes=(f"it fails now: {result.reason}", *notes))
    if result.n_images != stored.n_images:
        note = f"{stored.n_images} images then, {result.n_images} now"
        return _check(stored, "differs", now=result.accuracy, exact=exact, notes=(note, *notes))
    right, now_right = (int.from_bytes(each.correct, "big") for each in (stored, result))
    differing = ((right ^ now_right) >> (-stored.n_images % 8)).bit_count()
    verdict: Verdict = "differs"
    if not differing and result.accuracy == stored.accuracy:
        verdict = "same"
    elif differing and not exact and differing <= allowed(stored.n_images):
        verdict = "within"
    elif not notes:
        notes.append(
            "nothing that is recorded changed: the record was altered, or the number varies by itself"
        )
    return _check(stored, verdict, now=result.accuracy, differing=differing, exact=exact, notes=tuple(notes))


def allowed(n_images: int) -> int:
    """Of how many images the correctness may differ on another kind of machine; at least one."""
    return max(1, int(BOUND * n_images))


def here(device: str, cell: Cell) -> StoredEnvironment:
    """The environment of a worker that runs a cell on this machine: executors give each one thread."""
    return StoredEnvironment(environment(device, libraries(cell.method, cell.arch)), threads=1)


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """How two environments differ, e.g. ``torch 2.5.0 then, 2.6.0 now``; [] for the same kind of machine.

    The version of ttabench and the number of a GPU are left out: the code itself is compared.
    """
    texts = []
    for name in ("device", "threads", "machine", "processor"):
        old, new = then.get(name, "unknown"), now.get(name, "unknown")
        if name == "device":  # which GPU it is does not matter, only what GPU
            old, new = device_kind(str(old)), device_kind(str(new))
        if old != new:
            texts.append(f"{name} {old} then, {new} now")
    old, new = dict(then.get("versions", {})), dict(now.get("versions", {}))
    return texts + [
        f"{name} {old.get(name, 'unknown')} then, {new.get(name, 'unknown')} now"
        for name in sorted({*old, *new} - {"ttabench"})
        if old.get(name) != new.get(name)
    ]


def _other_weights(record: Record, other: str, device: str) -> Check:
    """A cell whose weights the recipe does not give here: a failure on the same kind of machine only."""
    stored = record.result
    now = here(device, stored.cell)
    other_kind = differences(record.environment, now)
    exact = _exact(other_kind, now)
    was = stored.cell.checkpoint[:12]
    note = (
        f"the recipe trains other weights here: {other[:12]} instead of {was}, so no number can be compared"
    )
    verdict: Verdict = "differs" if exact else "other weights"
    return _check(stored, verdict, exact=exact, notes=(note, *_code(record), *other_kind))


def _check(stored: Result, verdict: Verdict, **found: Any) -> Check:
    """`found`: the further fields of a :class:`Check`."""
    return Check(stored.cell, verdict, float(stored.accuracy or 0.0), stored.n_images, **found)


def _code(record: Record) -> list[str]:
    return stale_reasons(record.code_changes, "made with other code: {}")


def _stored(record: Record) -> str:
    """The kind of device that a record was made on; the CPU where this machine has none of this kind."""
    try:
        return pick_device(device_kind(str(record.environment.get("device", "cpu"))))
    except UserError:
        return "cpu"


def _exact(other_kind: Sequence[str], now: Mapping[str, Any]) -> bool:
    """Whether results must be bitwise equal: on the same kind of machine, and not on a GPU."""
    return not other_kind and device_kind(str(now.get("device", ""))) != "cuda"


def _place(cell: Cell) -> tuple[str, ...]:
    return cell.arch, cell.dataset, cell.fingerprint, cell.checkpoint, cell.foreign
