"""The stream of a cell, and where its state and its path are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ttabench.cell import Cell, canonical
from ttabench.cell.stream_spec import DynamicSpec, StreamSpec, parse_stream
from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench.data.dataset import Dataset
from ttabench.errors import UnusableModel
from ttabench.measure.image_stream import ImageStream
from ttabench.measure.streams import checkpoint
from ttabench.measure.streams.ccc_hard import HardPath
from ttabench.measure.streams.ccc_path import Path as StreamPath
from ttabench.measure.streams.checkpoint import Checkpoint
from ttabench.measure.streams.dynamic import DynamicStream
from ttabench.measure.streams.images import PathStream, Point, corrupted_parts
from ttabench.measure.streams.source_accuracy import SourceAccuracy
from ttabench.models.resolve import resolve_model
from ttabench.provenance import current_code
from ttabench.provenance.staleness import code_of
from ttabench.system import checked_lines as records
from ttabench.system.environment import versions
from ttabench.system.files import replace_file

FOLDER = "streams"
"""In a results folder: saved states (``CELL.npz``) and paths of ccc streams (``ccc-….json``)."""


def stream_of(
    cell: Cell, dataset: Dataset, classifier: torch.nn.Module, results: Path, device: str
) -> ImageStream:
    """The images of a cell whose protocol has a stream."""
    spec = cell.protocol.spec
    corruptions = spec.corruptions or CORRUPTIONS
    if spec.kind != "ccc":
        return corrupted_parts(dataset, corruptions, cell.severity, cell.protocol, cell.seed)
    clean = dataset.test()
    if cell.baseline:
        classifier = network_of(cell.baseline, dataset).to(device).eval()
    measure = SourceAccuracy(classifier, clean, device, dataset.scored_classes)
    path = _path(cell, corruptions, measure, results)
    return PathStream(clean, cell.protocol, cell.seed, path)


def baseline_of(name: str, checkpoint: str) -> str:
    """The baseline, as a cell names it: the name of the network and the SHA-256 of its weights."""
    return f"{name}@{checkpoint}"


def network_of(baseline: str, dataset: Dataset) -> torch.nn.Module:
    name, _, checkpoint = baseline.rpartition("@")
    loaded = resolve_model(name, dataset).recall(checkpoint)
    if loaded is None:
        raise UnusableModel(
            f"the cache no longer has the weights {checkpoint[:12]} of {name}, the baseline; "
            "run the sweep again"
        )
    return loaded.classifier


def checkpoint_of(cell: Cell, results: Path, device: str) -> Checkpoint | None:
    """Where the state of a cell is saved; None outside of a results folder."""
    if not (results / "sweep.json").is_file():
        return None
    identity = {
        "cell": cell.cell_id, "code": code_of(cell).source, "device": device,
        "threads": torch.get_num_threads(), "versions": versions(),
    }  # fmt: skip
    return Checkpoint(results / FOLDER / f"{cell.cell_id}.npz", identity, checkpoint.SECONDS)


class StoredPath:
    """A path whose accuracies are kept in a file: they are the same for all methods and seeds."""

    def __init__(self, path: StreamPath, file: Path | None) -> None:
        self._path, self._file = path, file
        self._size = 0

    def __call__(self, step: int) -> Point:
        point = self._path(step)
        known = self._path.to_json()
        if self._file is not None and (size := len(known["legs"])) > self._size:
            self._size = size
            with suppress(OSError):  # it can be computed again
                replace_file(self._file, records.encode(known))
        return point


def _path(cell: Cell, corruptions: Sequence[str], measure: SourceAccuracy, results: Path) -> StoredPath:
    spec = cell.protocol.spec
    file, known = None, {}
    if (results / "sweep.json").is_file():
        file = results / FOLDER / f"ccc-{path_key(cell)}.json"
        with suppress(OSError, records.Damaged):  # one that was changed is computed again
            known = records.decode(file.read_bytes().removesuffix(b"\n"))
    path = StreamPath(measure, spec.accuracy, corruptions, cell.seed, known)
    return StoredPath(path, file)


def path_key(cell: Cell) -> str:
    """A hash (16 hex digits) of what accuracies along a path depend on: neither the method nor the seed."""
    code = current_code("source", cell.dataset, cell.corruption, cell.arch)
    network = cell.baseline or baseline_of(cell.arch, cell.checkpoint)
    facts = [network, cell.fingerprint, cell.protocol.spec.accuracy, code.source]
    return hashlib.sha256(canonical(facts).encode()).hexdigest()[:16]


# ---- cdc and ccc(0). They have functions of their own, so that the code of other streams stays as it is


def dynamic_stream(
    cell: Cell, dataset: Dataset, classifier: torch.nn.Module, results: Path, device: str
) -> ImageStream:
    """Continual dynamic change: the corruptions in visits of different lengths."""
    spec = parse_stream(cell.protocol.stream)
    assert isinstance(spec, DynamicSpec)
    names = spec.corruptions or CORRUPTIONS
    return DynamicStream(
        len(names), lambda part: dataset.corrupted(names[part], cell.severity), cell.protocol, cell.seed,
        dataset.shifted_count(), spec.concentration, spec.rounds or len(names),
    )  # fmt: skip


def hard_stream(
    cell: Cell, dataset: Dataset, classifier: torch.nn.Module, results: Path, device: str
) -> ImageStream:
    """``ccc(0)``: where the baseline has its lowest accuracy."""
    spec, clean = parse_stream(cell.protocol.stream), dataset.test()
    if cell.baseline:
        classifier = network_of(cell.baseline, dataset).to(device).eval()
    measure = SourceAccuracy(classifier, clean, device, dataset.scored_classes)
    path = _hard_path(cell, spec.corruptions or CORRUPTIONS, measure, results)
    named = StreamSpec(kind="ccc", accuracy=1.0, length=spec.length, speed=spec.speed)
    # The stream itself reads length and speed alone.
    return PathStream(clean, replace(cell.protocol, stream=str(named)), cell.seed, path)


def _hard_path(
    cell: Cell, corruptions: Sequence[str], measure: Callable[[Point], float], results: Path
) -> Callable[[int], Point]:
    file, known = None, {}
    if (results / "sweep.json").is_file():
        file = results / FOLDER / f"ccc-{_hard_key(cell)}.json"
        with suppress(OSError, records.Damaged):  # one that was changed is computed again
            known = records.decode(file.read_bytes().removesuffix(b"\n"))
    return StoredPath(HardPath(measure, 0.0, corruptions, cell.seed, known), file)


def _hard_key(cell: Cell) -> str:
    """A hash (16 hex digits) of what accuracies along a path depend on: neither the method nor the seed."""
    code = current_code("source", cell.dataset, cell.corruption, cell.arch)
    network = cell.baseline or baseline_of(cell.arch, cell.checkpoint)
    facts: list[Any] = [network, cell.fingerprint, "hard", code.source]
    return hashlib.sha256(canonical(facts).encode()).hexdigest()[:16]
