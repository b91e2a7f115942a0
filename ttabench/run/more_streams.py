"""The streams of cells that are ``ccc(0)`` or ``cdc(…)``; the others are in `stream_of_cell`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ttabench.cell import Cell, canonical
from ttabench.cell.stream_spec import DynamicSpec, StreamSpec, parse_stream
from ttabench.corruptions.names import CORRUPTIONS
from ttabench.data.dataset import Dataset
from ttabench.measure.image_stream import ImageStream
from ttabench.measure.streams.ccc_hard import HardPath
from ttabench.measure.streams.dynamic import DynamicStream
from ttabench.measure.streams.images import PathStream, Point
from ttabench.measure.streams.source_accuracy import SourceAccuracy
from ttabench.provenance import current_code
from ttabench.run.stream_of_cell import FOLDER, StoredPath, baseline_of, network_of, stream_of
from ttabench.system import checked_lines as records

__all__ = ["MAKERS", "dynamic_stream", "hard_stream", "stream_of_any"]

Maker = Callable[[Cell, Dataset, torch.nn.Module, Path, str], ImageStream]


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
        file = results / FOLDER / f"ccc-{_key(cell)}.json"
        with suppress(OSError, records.Damaged):  # one that was changed is computed again
            known = records.decode(file.read_bytes().removesuffix(b"\n"))
    return StoredPath(HardPath(measure, 0.0, corruptions, cell.seed, known), file)


def _key(cell: Cell) -> str:
    """A hash (16 hex digits) of what accuracies along a path depend on: neither the method nor the seed."""
    code = current_code("source", cell.dataset, cell.corruption, cell.arch)
    network = cell.baseline or baseline_of(cell.arch, cell.checkpoint)
    facts: list[Any] = [network, cell.fingerprint, "hard", code.source]
    return hashlib.sha256(canonical(facts).encode()).hexdigest()[:16]


MAKERS: Mapping[str, Maker] = {"cdc": dynamic_stream, "ccc_hard": hard_stream}
"""By what stands in place of a corruption."""


def stream_of_any(
    cell: Cell, dataset: Dataset, classifier: torch.nn.Module, results: Path, device: str
) -> ImageStream:
    """The images of a cell whose protocol has a stream of any kind."""
    return MAKERS.get(cell.corruption, stream_of)(cell, dataset, classifier, results, device)
