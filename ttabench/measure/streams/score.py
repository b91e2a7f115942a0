"""Scoring of long streams, batch by batch. As in `ttabench.measure.scoring`, no other code sees labels."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ttabench.data.dataset import Labelled
from ttabench.measure.scoring import Evaluation, OnBatch, autocast, predictions, step
from ttabench.measure.streams.checkpoint import Checkpoint, Progress
from ttabench.measure.streams.images import FOREIGN, LongStream, Point, corrupt_at
from ttabench.measure.streams.windows import window_length, windows
from ttabench.method import Method
from ttabench.nn.pixels import to_tensor
from ttabench.observe.calibration import calibration_bins
from ttabench.observe.collapse import alarm_of_counts
from ttabench.observe.cost import Meter, Passes, clock
from ttabench.observe.label_free_scores import Collected
from ttabench.protocol import Protocol
from ttabench.system.malloc import give_back

CALIBRATION_IMAGES = 256
"""Clean test images on which the source classifier is measured, for the path of a ccc stream."""


def evaluate_stream(
    method: Method[Any],
    stream: LongStream,
    protocol: Protocol,
    seed: int,
    device: str = "cpu",
    on_batch: OnBatch | None = None,
    scored_classes: Sequence[int] = (),
    collected: Collected | None = None,
    meter: Meter | None = None,
    checkpoint: Checkpoint | None = None,
) -> Evaluation:
    """Run a prepared method over a long stream and score it; from the last saved state if there is one.

    All batches except the last have the batch size of the protocol: at a change of corruption, a batch has
    images of both corruptions. Memory does not grow during the stream.

    collected, meter   see `label_free_scores` and `cost` in `ttabench.observe`; part of the saved state.

    Raises UnusableModel if the logits cannot be scored (NaN, wrong shape).
    """
    report = on_batch or (lambda seen, scored, right: None)
    progress = Progress.start(stream.scored, method.model.num_classes)
    collected, meter = collected or Collected(), meter or Meter(Passes())
    if checkpoint is not None:
        checkpoint.beside = {"collected": collected, "passes": meter.passes}
    if checkpoint is None or not checkpoint.load(method, progress, device):
        method.counts.clear()
        torch.manual_seed(seed)
    meter.seconds = worked_before = progress.worked
    n_correct = int(progress.correct[: progress.done].sum())
    length = window_length(stream.scored)
    full_windows = progress.done // length
    seconds_before, started, clock_start = progress.seconds, time.perf_counter(), clock(device)
    with autocast(protocol, device):
        while progress.position < stream.total:
            end = min(progress.position + protocol.batch_size, stream.total)
            images, labels = stream.read(progress.position, end)
            logits = step(method, to_tensor(images, device), progress.number, protocol)
            classes, probability = predictions(
                logits, len(labels), method.model.num_classes, progress.number + 1, scored_classes
            )
            is_scored = labels != FOREIGN
            scored_logits = (
                logits if is_scored.all() else logits[torch.from_numpy(is_scored).to(logits.device)]
            )
            collected.add(scored_logits[:, list(scored_classes)] if scored_classes else scored_logits)
            progress.add(classes[is_scored], probability[is_scored], labels[is_scored])
            n_correct += int((classes[is_scored] == labels[is_scored]).sum())
            progress.position, progress.number = end, progress.number + 1
            progress.seconds = seconds_before + time.perf_counter() - started
            report(end, progress.done, n_correct)
            if progress.done // length != full_windows:
                full_windows = progress.done // length
                give_back()
            if checkpoint is not None and end < stream.total and checkpoint.due():
                progress.worked = worked_before + clock(device) - clock_start
                checkpoint.try_to_save(method, progress, device)
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    correct = progress.correct
    return Evaluation(
        accuracy=100 * float(correct.mean()),
        correct=correct,
        seconds=seconds_before + time.perf_counter() - started,
        alarm=alarm_of_counts(progress.predicted, progress.labels),
        calibration=calibration_bins(progress.confidence, correct),
        windows=windows(correct),
    )


class SourceAccuracy:
    """The accuracy of a classifier, in percent, on some clean images under the corruptions of a point."""

    def __init__(
        self, classifier: torch.nn.Module, clean: Labelled, device: str, scored_classes: Sequence[int] = ()
    ) -> None:
        chosen = np.random.Generator(np.random.PCG64(0)).permutation(len(clean))[:CALIBRATION_IMAGES]
        self._classifier, self._device, self._scored = classifier, device, scored_classes
        self._images: NDArray[np.uint8] = clean.images[np.sort(chosen)]
        self._labels = clean.labels[np.sort(chosen)]

    @torch.no_grad()
    def __call__(self, point: Point) -> float:
        images = corrupt_at(self._images, point, seed=0)
        logits = self._classifier(to_tensor(images, self._device))
        classes, _ = predictions(logits, len(images), logits.shape[1], 1, self._scored)
        return 100 * float((classes == self._labels).mean())
