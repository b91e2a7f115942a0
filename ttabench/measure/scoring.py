"""Scoring: the only evaluation loop. A method gets images without labels; labels are for the score."""

from __future__ import annotations

import time
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ttabench.cell.protocol import Protocol
from ttabench.errors import UnusableModel
from ttabench.measure.image_stream import FOREIGN, ImageStream, Order
from ttabench.measure.order_and_batches import Stream
from ttabench.method import Method
from ttabench.nn.pixels import to_tensor
from ttabench.observe.calibration import calibration_bins
from ttabench.observe.collapse import alarm_of_counts
from ttabench.observe.cost import clock
from ttabench.system.progress import silent

# (images seen, images scored, correct ones among these)
OnBatch = Callable[[int, int, int], None]
# logits (b, C) of the scored images of a batch, for the classes that are scored
OnLogits = Callable[[Tensor], None]


@dataclass(frozen=True)
class Evaluation:
    """accuracy in percent; seconds to adapt and score.

    correct      (n,) bool, for the scored images, in the order of the test set or of the long stream.
    worked_before  seconds of :func:`ttabench.observe.cost.clock` before a long stream was stopped.
    calibration  :func:`ttabench.observe.calibration.calibration_bins` of the scored images.
    windows      accuracy over a long stream, see :mod:`ttabench.observe.accuracy_windows`; {} otherwise.
    """

    accuracy: float
    correct: NDArray[np.bool_]
    seconds: float
    alarm: str
    calibration: dict[str, list[float]]
    worked_before: float = 0.0
    windows: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Progress:
    """The results of a stream so far.

    number, position   the next batch, and its first image.
    correct, confidence   (scored,) in stream order; `done` of them are filled.
    predicted, labels  (C,) how often each class was predicted, and was the label.
    seconds, worked    time so far, by the wall clock and by :func:`ttabench.observe.cost.clock`.
    """

    correct: NDArray[np.bool_]
    confidence: NDArray[np.float32]
    predicted: NDArray[np.int64]
    labels: NDArray[np.int64]
    number: int = 0
    position: int = 0
    done: int = 0
    seconds: float = 0.0
    worked: float = 0.0

    @classmethod
    def start(cls, scored: int, num_classes: int) -> Progress:
        """Nothing is done. All memory is taken now: it does not grow during the stream."""
        correct, confidence = np.empty(scored, np.bool_), np.empty(scored, np.float32)
        correct.fill(False)
        confidence.fill(0)
        return cls(correct, confidence, np.zeros(num_classes, np.int64), np.zeros(num_classes, np.int64))

    def add(self, classes: NDArray[np.int64], sure: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
        """Count scored images (b,), one entry each."""
        new = slice(self.done, self.done + len(labels))
        self.correct[new] = classes == labels
        self.confidence[new] = sure
        self.predicted += np.bincount(classes, minlength=len(self.predicted))
        self.labels += np.bincount(labels, minlength=len(self.labels))
        self.done += len(labels)

    @property
    def right(self) -> int:
        """How many predictions were right."""
        return int(self.correct[: self.done].sum())


class Timer:
    """The time of a stream, by the wall clock and by :func:`ttabench.observe.cost.clock`."""

    def __init__(self, progress: Progress, device: str) -> None:
        self._progress, self._device = progress, device
        self._started, self._clock = time.perf_counter() - progress.seconds, clock(device) - progress.worked

    def note(self) -> None:
        """Put the time until now into the progress."""
        self._progress.seconds = time.perf_counter() - self._started
        self._progress.worked = clock(self._device) - self._clock


class Saved(typing.Protocol):
    """Where the state of a long stream is kept, such as `ttabench.measure.streams.checkpoint.Checkpoint`."""

    def load(self, method: Method[Any], progress: Progress, device: str) -> bool:
        """Put a saved state into a prepared method and into `progress`; False if there is none to use."""

    def due(self) -> bool:
        """Whether it is time to save again."""

    def try_to_save(self, method: Method[Any], progress: Progress, device: str) -> None:
        """Save the state."""


def evaluate(
    method: Method[Any],
    images: ImageStream,
    protocol: Protocol,
    seed: int,
    device: str = "cpu",
    on_batch: OnBatch = silent,
    scored_classes: Sequence[int] = (),
    on_logits: OnLogits = silent,
    saved: Saved | None = None,
) -> Evaluation:
    """Run a prepared method over the images of a cell and score it; from its saved state if there is one.

    All batches except the last have the batch size of the protocol: where the corruption changes in a long
    stream, a batch has images of both. Memory does not grow during the stream.

    scored_classes   the classes that predictions are chosen from; () = all. The method sees all logits.
    on_logits        gets the logits that are scored, without the other classes and without foreign images.

    Raises UnusableModel if the logits cannot be scored (NaN, wrong shape).
    """
    progress = Progress.start(images.scored, method.model.num_classes)
    if saved is None or not saved.load(method, progress, device):
        method.counts.clear()
        torch.manual_seed(seed)
    timer, worked_before = Timer(progress, device), progress.worked
    with autocast(protocol, device):
        if protocol.frozen:
            adapt(method, images.order, protocol, device, on_batch)
        for end in score(method, images, protocol, device, progress, scored_classes, on_logits):
            on_batch(end, progress.done, progress.right)
            if saved is not None and end < images.total and saved.due():
                timer.note()
                saved.try_to_save(method, progress, device)
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    timer.note()
    correct, confidence = progress.correct[images.places], progress.confidence[images.places]
    return Evaluation(
        accuracy=100 * float(correct.mean()),
        correct=correct,
        seconds=progress.seconds,
        alarm=alarm_of_counts(progress.predicted, progress.labels),
        calibration=calibration_bins(confidence, correct),
        worked_before=worked_before,
    )


def adapt(method: Method[Any], order: Order, protocol: Protocol, device: str, report: OnBatch) -> None:
    """Adapt before scoring; does nothing if images are scored when they arrive."""
    seen = 0

    def tick() -> None:
        nonlocal seen
        seen += protocol.batch_size
        report(seen, 0, 0)

    stream = Stream(order.images, order.adapted, protocol.batch_size, device, tick)
    if protocol.mode == "offline":
        method.fit(stream, protocol.epochs)
    elif protocol.held_out:
        for x in stream:
            method.adapt(x)


def score(
    method: Method[Any],
    images: ImageStream,
    protocol: Protocol,
    device: str,
    progress: Progress,
    scored_classes: Sequence[int],
    on_logits: OnLogits,
) -> Iterator[int]:
    """Score batch after batch, from where `progress` is; how many images were seen, after each."""
    while progress.position < images.total:
        end = min(progress.position + protocol.batch_size, images.total)
        batch, labels = images.read(progress.position, end)
        logits = step(method, to_tensor(batch, device), progress.number, protocol)
        classes, probability = predictions(
            logits, len(labels), method.model.num_classes, progress.number + 1, scored_classes
        )
        is_scored = labels != FOREIGN
        scored_logits = logits if is_scored.all() else logits[torch.from_numpy(is_scored).to(logits.device)]
        on_logits(scored_logits[:, list(scored_classes)] if scored_classes else scored_logits)
        progress.add(classes[is_scored], probability[is_scored], labels[is_scored])
        progress.position, progress.number = end, progress.number + 1
        yield end


def step(method: Method[Any], x: Tensor, number: int, protocol: Protocol) -> Tensor:
    """The logits that are scored for batch `number` (0, 1 …) of a stream, as the protocol says."""
    if protocol.reset_period and number % protocol.reset_period == 0:
        method.reset()
    if protocol.frozen or number % protocol.adapts_every:
        return method.predict(x)
    return method.adapt(x)


def autocast(protocol: Protocol, device: str) -> AbstractContextManager[Any]:
    # No cache of cast weights, since methods change weights between forward passes.
    half = protocol.precision == "bfloat16"
    return torch.autocast(torch.device(device).type, torch.bfloat16, half, cache_enabled=False)


def predictions(
    logits: Tensor, batch: int, num_classes: int, number: int, scored: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The predicted classes (B,) and their softmax probabilities (B,); `number` of the batch is from 1.

    Raises UnusableModel for logits that cannot be scored.
    """
    if not isinstance(logits, Tensor) or logits.shape != (batch, num_classes):
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise UnusableModel(
            f"batch {number}: adapt() or predict() returned {shape}; expected logits ({batch}, {num_classes})"
        )
    if not bool(torch.isfinite(logits).all()):
        kind = "NaN" if bool(torch.isnan(logits).any()) else "infinite"
        raise UnusableModel(f"batch {number}: the model returned {kind} logits")
    logits = logits.detach()
    scored_logits = logits[:, list(scored)] if scored else logits
    top = scored_logits.argmax(dim=1)
    probability = scored_logits.float().softmax(dim=1).gather(1, top[:, None])[:, 0]
    packed = torch.stack((top.float(), probability)).cpu().numpy()  # one transfer
    classes: NDArray[np.int64] = packed[0].astype(np.int64)
    return np.asarray(scored, np.int64)[classes] if scored else classes, packed[1]
