"""The images of a cell: a test set, or a long stream. What differs between the two is here alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ttabench.cell import Cell
from ttabench.classifier import Classifier
from ttabench.data.dataset import Dataset
from ttabench.data.foreign import coded
from ttabench.measure.foreign_places import foreign_of
from ttabench.measure.image_stream import Part
from ttabench.measure.scoring import Evaluation, OnBatch, evaluate
from ttabench.measure.test_set import test_set
from ttabench.method import Method
from ttabench.observe.cost import Meter
from ttabench.observe.harm import harm_alarm
from ttabench.observe.label_free_scores import Collected, sample
from ttabench.observe.windows import window_length, windows
from ttabench.run.more_streams import stream_of_any
from ttabench.run.stream_of_cell import checkpoint_of
from ttabench.system.malloc import give_back

__all__ = ["CellImages", "images_of"]


class CellImages(Protocol):
    """The images of a cell.

    total   how many the protocol uses; in a test set, without foreign ones.
    first   uint8 (n, H, W, 3): at least one batch of them, if there are so many.
    """

    total: int
    first: NDArray[np.uint8]

    def score(
        self, method: Method[Any], device: str, report: OnBatch, collected: Collected, meter: Meter
    ) -> Evaluation:
        """Run a prepared method over the images. Raises UnusableModel if its logits cannot be scored."""

    def foreign(self) -> NDArray[np.bool_]:
        """Which images of a contaminated stream are foreign."""

    def streamed(self, correct: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """`correct` of an evaluation, in the order of the stream."""

    def sample(self) -> NDArray[np.uint8] | None:
        """Some images for what is done after the adaptation; None where they come once."""

    def harm(self, source: Classifier, correct: NDArray[np.bool_], device: str) -> str:
        """The alarm of :mod:`ttabench.observe.harm`; "" if there is none, or if it cannot be said."""


def images_of(cell: Cell, dataset: Dataset, source: Classifier, results: Path, device: str) -> CellImages:
    """The images of a cell. `source` is its classifier, on which the images of some streams depend."""
    if cell.protocol.stream:
        return ImagesOfLongStream(cell, dataset, source, results, device)
    return ImagesOfTestSet(cell, dataset)


class ImagesOfTestSet:
    """The images of one corruption, or of all corruptions mixed."""

    def __init__(self, cell: Cell, dataset: Dataset) -> None:
        self._cell, self._classes = cell, dataset.scored_classes
        self._data = test_set(dataset, cell.corruption, cell.severity, cell.seed)
        self._stream = Part(self._data, coded(cell.protocol), cell.seed)
        self.first = self._data.images
        self.total = len(self._stream.order.labels)

    def score(
        self, method: Method[Any], device: str, report: OnBatch, collected: Collected, meter: Meter
    ) -> Evaluation:
        protocol, seed = coded(self._cell.protocol), self._cell.seed
        return evaluate(method, self._stream, protocol, seed, device, report, self._classes, collected.add)

    def foreign(self) -> NDArray[np.bool_]:
        return foreign_of(self._stream, self._cell.protocol, self._cell.seed)

    def streamed(self, correct: NDArray[np.bool_]) -> NDArray[np.bool_]:
        in_order = np.empty_like(correct)
        in_order[self._stream.places] = correct
        return in_order

    def sample(self) -> NDArray[np.uint8]:
        chosen: NDArray[np.uint8] = self._data.images[sample(self.total, self._cell.seed)]
        return chosen

    def harm(self, source: Classifier, correct: NDArray[np.bool_], device: str) -> str:
        if self._cell.protocol.held_out:
            return ""
        return harm_alarm(source, self._data, correct, device, self._classes)


class ImagesOfLongStream:
    """The images of a long stream, read part by part; where its state was saved, scoring goes on from it."""

    def __init__(self, cell: Cell, dataset: Dataset, source: Classifier, results: Path, device: str) -> None:
        self._cell, self._classes, self._results = cell, dataset.scored_classes, results
        cell_as_coded = replace(cell, protocol=coded(cell.protocol))
        self._stream = stream_of_any(cell_as_coded, dataset, source, results, device)
        self.total = self._stream.total
        self.first = self._stream.read(0, min(cell.protocol.batch_size, self.total)).images

    def score(
        self, method: Method[Any], device: str, report: OnBatch, collected: Collected, meter: Meter
    ) -> Evaluation:
        protocol, seed = coded(self._cell.protocol), self._cell.seed
        checkpoint = checkpoint_of(self._cell, self._results, device)
        if checkpoint is not None:
            checkpoint.beside = {"collected": collected, "passes": meter.passes}
        found = evaluate(
            method, self._stream, protocol, seed, device, giving_back(report, self._stream.scored),
            self._classes, collected.add, checkpoint,
        )  # fmt: skip
        meter.seconds = found.worked_before
        if checkpoint is not None:
            checkpoint.remove()
        return replace(found, windows=windows(found.correct))

    def foreign(self) -> NDArray[np.bool_]:
        return foreign_of(self._stream, self._cell.protocol, self._cell.seed)

    def streamed(self, correct: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return correct

    def sample(self) -> None:
        return None

    def harm(self, source: Classifier, correct: NDArray[np.bool_], device: str) -> str:
        return ""


def giving_back(report: OnBatch, scored: int) -> OnBatch:
    """The same report; memory that was freed goes back to the system at the end of each window."""
    length, full = window_length(scored), 0

    def reported(seen: int, done: int, right: int) -> None:
        nonlocal full
        report(seen, done, right)
        if done // length != full:
            full = done // length
            give_back()

    return reported
