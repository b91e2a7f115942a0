"""Scoring: the only code that sees labels. It orders the images of a cell, adapts, and scores."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ttabench.data.dataset import Labelled
from ttabench.errors import UnusableModel
from ttabench.measure.contamination import Mixture, foreign_images, interleave
from ttabench.measure.stream import Images, Stream, arrange
from ttabench.method import Method
from ttabench.observe.calibration import calibration_bins
from ttabench.observe.collapse import collapse_alarm
from ttabench.protocol import Protocol

# (images seen, images scored, correct ones among these)
OnBatch = Callable[[int, int, int], None]
# logits (b, C) of the scored images of a batch, for the classes that are scored
OnLogits = Callable[[Tensor], None]


@dataclass(frozen=True)
class Evaluation:
    """accuracy in percent; seconds to adapt and score.

    correct      (n,) bool, for the scored images, in the order of the test set or of the long stream.
    calibration  :func:`ttabench.observe.calibration.calibration_bins` of the scored images.
    windows      accuracy over a long stream, see :mod:`ttabench.measure.streams.windows`; {} otherwise.
    """

    accuracy: float
    correct: NDArray[np.bool_]
    seconds: float
    alarm: str
    calibration: dict[str, list[float]]
    windows: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Order:
    """The images of a cell, and their order.

    images   the test images at positions 0 … n−1, then foreign images.
    adapted  positions used for adaptation before scoring (offline and held-out protocols).
    scored   positions in the order in which they are scored.
    labels   (n,) of the test images.
    """

    images: Images
    adapted: NDArray[np.int64]
    scored: NDArray[np.int64]
    labels: NDArray[np.int64]


def evaluate(
    method: Method[Any],
    data: Labelled,
    protocol: Protocol,
    seed: int,
    device: str = "cpu",
    on_batch: OnBatch | None = None,
    scored_classes: Sequence[int] = (),
    on_logits: OnLogits | None = None,
) -> Evaluation:
    """Run a prepared method over one corrupted test set and score it.

    scored_classes   the classes that predictions are chosen from; () = all. The method sees all logits.
    on_logits        gets the logits that are scored, without the other classes and without foreign images.

    Raises UnusableModel if the logits cannot be scored (NaN, wrong shape).
    """
    report = on_batch or (lambda seen, scored, right: None)
    order = put_in_order(data, protocol, seed)
    method.counts.clear()
    torch.manual_seed(seed)
    started = time.perf_counter()
    with autocast(protocol, device):
        adapt(method, order, protocol, device, report)
        predicted, confidence = score(method, order, protocol, device, report, scored_classes, on_logits)
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    labels = order.labels
    if protocol.held_out:
        positions = np.sort(order.scored)
        predicted, confidence, labels = predicted[positions], confidence[positions], labels[positions]
    correct = predicted == labels
    return Evaluation(
        accuracy=100 * float(correct.mean()),
        correct=correct,
        seconds=seconds,
        alarm=collapse_alarm(predicted, labels),
        calibration=calibration_bins(confidence, correct),
    )


def put_in_order(data: Labelled, protocol: Protocol, seed: int) -> Order:
    """The images of a cell in the order of its stream, with foreign images for a contaminated protocol."""
    n = min(protocol.limit or len(data), len(data))
    images: Images = data.images[:n]
    labels = data.labels[:n]
    order = arrange(protocol.order, labels, seed)
    if protocol.contamination:
        foreign = foreign_images(protocol.contamination, data.images[:n], seed)
        images = Mixture(data.images[:n], foreign)
        order = interleave(order, n, len(foreign), seed)
    if not protocol.held_out:
        return Order(images, order, order, labels)
    cut = len(order) - round(protocol.held_out * n)
    return Order(images, order[:cut], order[cut:], labels)


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
    order: Order,
    protocol: Protocol,
    device: str,
    report: OnBatch,
    scored_classes: Sequence[int] = (),
    on_logits: OnLogits | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The predicted classes (n,) of the test images, and their softmax probabilities (n,).

    Images that are not scored have class −1 and probability 0.
    """
    n = len(order.labels)
    predicted = np.full(n, -1, np.int64)
    confidence = np.zeros(n, np.float32)
    done = scored = n_correct = 0
    stream = Stream(order.images, order.scored, protocol.batch_size, device)
    for number, x in enumerate(stream):
        logits = step(method, x, number, protocol)
        positions = order.scored[done : done + len(x)]
        is_test = positions < n
        classes, probability = predictions(
            logits, len(x), method.model.num_classes, number + 1, scored_classes
        )
        predicted[positions[is_test]] = classes[is_test]
        confidence[positions[is_test]] = probability[is_test]
        if on_logits is not None:
            scored_logits = logits if is_test.all() else logits[torch.from_numpy(is_test).to(logits.device)]
            on_logits(scored_logits[:, list(scored_classes)] if scored_classes else scored_logits)
        done += len(x)
        scored += int(is_test.sum())
        n_correct += int((classes[is_test] == order.labels[positions[is_test]]).sum())
        report(done, scored, n_correct)
    return predicted, confidence


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
