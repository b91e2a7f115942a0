"""Compute ratios for `--pace`: the time of a method per batch over that of Source, measured once and stored.

Alfarra et al., "Evaluation of Test-Time Adaptation Under Computational Time Constraints", ICML 2024, measure
the time of every batch during the run, so that a number depends on how busy the machine was. Here, one ratio
per method and architecture is measured before the sweep and is part of the protocol: given it, a number is
deterministic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ttabench.cell import Cell, canonical
from ttabench.cell.stream_spec import LARGEST
from ttabench.corruptions.corruption_names import NO_SEVERITY, SEVERITIES
from ttabench.data.dataset import Dataset, Labelled
from ttabench.errors import UserError, exit_is_an_error, first_line
from ttabench.measure.torch_defaults import matrix_products
from ttabench.observe.cost import compute_ratio
from ttabench.provenance.staleness import code_of
from ttabench.run.gpu import free_gpu_memory
from ttabench.run.kept_objects import WorkerState
from ttabench.system.cores import torch_threads
from ttabench.system.environment import processor
from ttabench.system.files import read_plain, replace_file, writing

if TYPE_CHECKING:
    from ttabench.run.worker import Worker

FILE = "pace.json"
"""Of a results folder: the measured ratios, one entry per method, settings, architecture and dataset.

An entry holds for the code that it was measured with.
"""
BATCHES = 8

Say = Callable[[str], None]


@dataclass
class Ratios:
    """Compute ratios that the user does not give: those in the results folder, then new measurements.

    elsewhere  the option for which cells run on other machines; then nothing is measured here: UserError.
    dry_run    A ratio that is not known yet is 1, and is named; `unknown` says then whether there was one.

    Two sweeps in one folder measure different ratios, and so different cells: measure where no other process
    does, with a new object, which reads the file again.
    """

    folder: Path
    device: str
    say: Say = print
    elsewhere: str = ""
    dry_run: bool = False
    unknown: bool = field(default=False, init=False)
    _known: dict[str, dict[str, Any]] | None = field(default=None, init=False)
    _announced: bool = field(default=False, init=False)

    def __call__(self, cell: Cell) -> float:
        """The ratio of a cell's method; 1 as long as its classifier is not trained."""
        if not cell.checkpoint and not self.elsewhere:
            return 1.0
        key = canonical(
            [cell.method, dict(cell.config), cell.arch, cell.dataset, cell.protocol.batch_size,
             cell.protocol.precision]
        )  # fmt: skip
        known = self._read()
        code = code_of(cell).source
        if key in known and known[key].get("code") == code:
            return float(known[key]["ratio"])
        if self.elsewhere:
            raise UserError(
                f"{self.elsewhere} with --pace needs the compute ratio of {cell.label} on {cell.arch}; "
                f"add --pace-ratio {cell.method}=…"
            )
        if self.dry_run:
            self.unknown = True
            self.say(f"Compute ratio of {cell.label} on {cell.arch}: measured when the sweep runs.")
            return 1.0
        if not self._announced:
            self.say("Measuring compute ratios for --pace; this takes seconds to minutes per method.")
            self._announced = True
        ratio = float(f"{self._measured(cell):.3g}")
        free_gpu_memory(self.device)  # for the workers
        known[key] = {
            "method": cell.label, "arch": cell.arch, "dataset": cell.dataset,
            "batch_size": cell.protocol.batch_size, "ratio": ratio, "code": code,
            "device": self.device, "processor": processor(self.device),
        }  # fmt: skip
        self._write(known)
        self.say(f"Compute ratio of {cell.label} on {cell.arch}: {ratio:g} (measured).")
        return ratio

    def _measured(self, cell: Cell) -> float:
        """Raises UserError if the method fails: without its ratio, its cells have no protocol."""
        try:
            with exit_is_an_error():
                return measured(cell, self.device)
        except UserError:
            raise
        except Exception as problem:
            raise UserError(
                f"the compute ratio of {cell.label} on {cell.arch} cannot be measured "
                f"({first_line(problem)}); leave the method out, or add --pace-ratio {cell.method}=…"
            ) from problem

    def _write(self, known: Mapping[str, Any]) -> None:
        """Store what was measured in the results folder, which must exist. Raises UserError."""
        with writing(self.folder):
            replace_file(self.folder / FILE, (json.dumps(known, indent=1) + "\n").encode())

    def _read(self) -> dict[str, dict[str, Any]]:
        """Raises UserError for a damaged file."""
        if self._known is None:
            path = self.folder / FILE
            try:
                held = json.loads(read_plain(path))
                self._known = {key: {**entry, "ratio": _ratio(entry["ratio"])} for key, entry in held.items()}
            except FileNotFoundError:
                self._known = {}
            except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
                raise UserError(f"{path} is not what ttabench wrote; delete it to measure again.") from None
        return self._known


def _ratio(value: Any) -> float:
    """A stored ratio. Raises ValueError, TypeError or OverflowError for what is none."""
    if not 0 < (ratio := float(value)) <= LARGEST:
        raise ValueError(value)
    return ratio


def measured(cell: Cell, device: str) -> float:
    """Time of `adapt` over that of a forward pass of the classifier, on batches of a corrupted test set.

    On a CPU one thread is used, as in a sweep.
    """
    from ttabench.run.worker import Worker  # imports all corruption functions, which takes long

    state = WorkerState()
    try:
        with nullcontext() if device.startswith("cuda") else torch_threads(1):
            worker = Worker(state, Path(), device, lambda event: None)
            method, _ = worker.prepared(cell)
            classifier = worker.classifier(cell).classifier
            batches = _batches(worker, cell)
            with matrix_products(cell.protocol.precision, device):
                return compute_ratio(method, classifier, batches, device, cell.protocol.precision)
    finally:
        state.close()


def _corrupted(dataset: Dataset) -> Labelled:
    """A corrupted test set, of the highest severity that is there. Raises UserError if there is none."""
    name = dataset.corruptions[0]
    missing: UserError | None = None
    for severity in (*reversed(SEVERITIES), NO_SEVERITY):  # 0: a natural shift, a domain, a part of CCC
        try:
            return dataset.corrupted(name, severity)
        except UserError as problem:
            missing = missing or problem
    raise missing or UserError(f"{dataset.name} has no severities.")


def _batches(worker: Worker, cell: Cell) -> list[NDArray[np.uint8]]:
    images = _corrupted(worker.dataset(cell.dataset)).images
    size = cell.protocol.batch_size
    chosen = np.random.Generator(np.random.PCG64(0)).permutation(len(images))
    return [images[np.sort(row)] for row in np.resize(chosen, (BATCHES, size))]
