"""The images of a cell: a test set, or a long stream. What differs between the two is here alone."""

from __future__ import annotations

import warnings
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttabench.cell import Cell
from ttabench.cell.protocol import Protocol
from ttabench.classifier import Classifier
from ttabench.data.dataset import Dataset, Labelled
from ttabench.data.foreign import coded
from ttabench.measure.image_stream import ImageStream, Part
from ttabench.measure.scoring import Evaluation, OnBatch, evaluate
from ttabench.measure.streams.images import PathStream
from ttabench.measure.test_set import test_set
from ttabench.measure.torch_defaults import default_kernels
from ttabench.method import Method
from ttabench.observe.accuracy_windows import window_length, windows
from ttabench.observe.cost import Meter
from ttabench.observe.label_free_scores import Collected
from ttabench.run.stream_of_cell import checkpoint_of, dynamic_stream, hard_stream, stream_of
from ttabench.system.environment import processor
from ttabench.system.malloc import give_back

MAKERS = {"cdc": dynamic_stream, "ccc_hard": hard_stream}
"""What makes a long stream, by what stands in place of a corruption; `stream_of` makes the others."""


@dataclass(frozen=True)
class CellImages(ABC):
    """The images of a cell.

    protocol  that of the cell, as `coded`.
    classes   those that predictions are chosen from; () = all.
    stream    the images in the order of the protocol.
    data      the same images in the order of the test set; None in a long stream, whose images come once.
    """

    cell: Cell
    protocol: Protocol
    classes: tuple[int, ...]
    stream: ImageStream
    data: Labelled | None

    @property
    @abstractmethod
    def total(self) -> int:
        """How many images the protocol uses; in a test set, without foreign ones."""

    @property
    @abstractmethod
    def first(self) -> NDArray[np.uint8]:
        """(n, H, W, 3): at least one batch of images, if there are so many."""

    @abstractmethod
    def score(
        self, method: Method[Any], device: str, report: OnBatch, collected: Collected, meter: Meter
    ) -> Evaluation:
        """Run a prepared method over the images. Raises UnusableModel if its logits cannot be scored."""

    def streamed(self, correct: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """`correct` of an evaluation, in the order of the stream."""
        return correct


def images_of(
    cell: Cell, dataset: Dataset, source: Classifier, results: Path, device: str, tell: Callable[[str], None]
) -> CellImages:
    """The images of a cell.

    source  its classifier, on which the images of some streams depend.
    tell    is called with what is done, where this takes long.
    """
    protocol, classes = coded(cell.protocol), dataset.scored_classes
    if protocol.stream:
        make = MAKERS.get(cell.corruption, stream_of)
        stream = make(replace(cell, protocol=protocol), dataset, source, results, device)
        if isinstance(stream, PathStream):
            # Later, passes and time would be those of the first method on it, and the precision its own.
            with default_kernels():
                for place in stream.follow_path():
                    tell(f"measuring the path of the stream, at image {place:,} of {stream.total:,}")
        return ImagesOfLongStream(cell, protocol, classes, stream, None, results)
    data = test_set(dataset, cell.corruption, cell.severity, cell.seed)
    return ImagesOfTestSet(cell, protocol, classes, Part(data, protocol, cell.seed), data)


@dataclass(frozen=True)
class ImagesOfTestSet(CellImages):
    """The images of one corruption, or of all corruptions mixed."""

    stream: Part
    data: Labelled

    @property
    def total(self) -> int:
        return len(self.stream.order.labels)

    @property
    def first(self) -> NDArray[np.uint8]:
        return self.data.images

    def score(
        self, method: Method[Any], device: str, report: OnBatch, collected: Collected, meter: Meter
    ) -> Evaluation:
        return evaluate(
            method, self.stream, self.protocol, self.cell.seed, device, report, self.classes, collected.add
        )

    def streamed(self, correct: NDArray[np.bool_]) -> NDArray[np.bool_]:
        in_order = np.empty_like(correct)
        in_order[self.stream.places] = correct
        return in_order


@dataclass(frozen=True)
class ImagesOfLongStream(CellImages):
    """A long stream, read part by part.

    Where its state was saved in `results`, on this kind of processor, scoring goes on from it.
    """

    results: Path

    @property
    def total(self) -> int:
        return self.stream.total

    @property
    def first(self) -> NDArray[np.uint8]:
        return self.stream.read(0, min(self.protocol.batch_size, self.total)).images

    def score(
        self, method: Method[Any], device: str, report: OnBatch, collected: Collected, meter: Meter
    ) -> Evaluation:
        checkpoint = checkpoint_of(self.cell, self.results, device)
        if checkpoint is not None:
            delete_damaged(checkpoint.file)
            checkpoint.identity = {**checkpoint.identity, "processor": processor(device)}
            checkpoint.beside = {"collected": collected, "passes": meter.passes}
        found = evaluate(
            method, self.stream, self.protocol, self.cell.seed, device,
            giving_back(report, self.stream.scored), self.classes, collected.add, checkpoint,
        )  # fmt: skip
        meter.seconds = found.worked_before
        return replace(found, windows=windows(found.correct))


def delete_damaged(state: Path) -> None:
    """Delete a saved state with damaged bytes, and say so.

    :meth:`Checkpoint.load` would raise what it does not expect for some of them, in each run anew.
    """
    try:
        with zipfile.ZipFile(state) as opened:
            why = opened.testzip()
    except OSError:  # there is none, or it cannot be read: `load` says so
        return
    except Exception as problem:  # zipfile raises many kinds
        why = str(problem)
    if why:
        warnings.warn(f"{state} is damaged ({why}); this stream starts from its first image", stacklevel=2)
        with suppress(OSError):
            state.unlink()


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
