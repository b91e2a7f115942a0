"""The accuracy of the source classifier under two corruptions at once, for the path of a ccc stream."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ttabench.data.dataset import Labelled
from ttabench.measure.scoring import predictions
from ttabench.measure.streams.images import Point, corrupt_at
from ttabench.nn.pixels import to_tensor

CALIBRATION_IMAGES = 256
"""Clean test images on which the source classifier is measured."""


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
