"""Scoring: the only code that sees labels."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ttabench.contamination import Mixture, foreign_images, interleave
from ttabench.data.dataset import Labelled
from ttabench.errors import UnusableModel
from ttabench.method import Method
from ttabench.protocol import Protocol
from ttabench.stream import Images, Stream, arrange

# (images seen, images scored, of those right)
OnBatch = Callable[[int, int, int], None]

# Alarm where predictions use less than this share of the classes beyond the first, which any prediction uses.
COLLAPSE = 0.5


@dataclass(frozen=True)
class Evaluation:
    """accuracy in percent; seconds to adapt and score.

    correct (n,) bool, of the images that are scored, in the order of the test set.
    """

    accuracy: float
    correct: NDArray[np.bool_]
    seconds: float
    alarm: str


def evaluate(
    method: Method[Any],
    data: Labelled,
    protocol: Protocol,
    seed: int,
    device: str = "cpu",
    on_batch: OnBatch | None = None,
) -> Evaluation:
    """Run a prepared method over one corrupted test set and score it.

    Raises UnusableModel where the logits cannot be scored (NaN, wrong shape).
    """
    report = on_batch or (lambda seen, scored, right: None)
    n = min(protocol.limit or len(data), len(data))
    images: Images = data.images[:n]
    labels = data.labels[:n]
    order = arrange(protocol.order, labels, seed)
    if protocol.contamination:
        foreign = foreign_images(protocol.contamination, data.images[:n], seed)
        images = Mixture(data.images[:n], foreign)
        order = interleave(order, n, len(foreign), seed)
    predicted = np.full(n, -1, np.int64)
    seen = 0

    def tick() -> None:
        nonlocal seen
        seen += protocol.batch_size
        report(seen, 0, 0)

    method.counts.clear()
    adapted_on = len(order) - round(protocol.held_out * n)
    scored_on = order[adapted_on:] if protocol.held_out else order

    torch.manual_seed(seed)
    # No cache of cast weights: methods change weights between two forward passes.
    amp = torch.autocast(
        torch.device(device).type, torch.bfloat16, protocol.precision == "bfloat16", cache_enabled=False
    )
    started = time.perf_counter()
    with amp:
        before = Stream(images, order[:adapted_on], protocol.batch_size, device, tick)
        if protocol.mode == "offline":
            method.fit(before, protocol.epochs)
        elif protocol.held_out:
            for x in before:
                method.adapt(x)
        done = scored = right = 0
        for number, x in enumerate(Stream(images, scored_on, protocol.batch_size, device), start=1):
            if protocol.reset == "episodic":
                method.reset()
            logits = method.predict(x) if protocol.frozen else method.adapt(x)
            where = scored_on[done : done + len(x)]
            own = where < n
            predicted[where[own]] = _classes(logits, len(x), number)[own]
            done += len(x)
            scored += int(own.sum())
            right += int((predicted[where[own]] == labels[where[own]]).sum())
            report(done, scored, right)
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    if protocol.held_out:
        chosen = np.sort(scored_on)
        predicted, labels = predicted[chosen], labels[chosen]
    correct = predicted == labels
    return Evaluation(
        accuracy=100 * float(correct.mean()),
        correct=correct,
        seconds=time.perf_counter() - started,
        alarm=_collapse(predicted, labels),
    )


def _classes(logits: Tensor, batch: int, number: int) -> NDArray[np.int64]:
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != batch:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise UnusableModel(f"batch {number}: logits have shape {shape}; expected ({batch}, classes)")
    if not bool(torch.isfinite(logits).all()):
        kind = "NaN" if bool(torch.isnan(logits).any()) else "infinite"
        raise UnusableModel(f"batch {number}: the model returned {kind} logits")
    best: NDArray[np.int64] = logits.detach().argmax(dim=1).cpu().numpy()
    return best


def _effective(labels: NDArray[np.int64]) -> float:
    """exp of the entropy of the label histogram: how many classes are really in use."""
    p = np.bincount(labels) / len(labels)
    p = p[p > 0]
    return float(np.exp(-(p * np.log(p)).sum()))


def _collapse(predicted: NDArray[np.int64], labels: NDArray[np.int64]) -> str:
    used, there = _effective(predicted), _effective(labels)
    if used - 1 < COLLAPSE * (there - 1):
        return f"collapse: predictions use {used:.1f} classes where {there:.1f} are there"
    return ""


@torch.no_grad()
def clean_accuracy(model: Callable[[Tensor], Tensor], data: Labelled, device: str = "cpu") -> float:
    """Accuracy in percent of an unadapted model in eval mode."""
    stream = Stream(data.images, np.arange(len(data)), 500, device)
    guesses = torch.cat([model(x).argmax(dim=1).cpu() for x in stream]).numpy()
    return 100 * float((guesses == data.labels).mean())
