"""The clean accuracy of a source classifier, and warnings about a low one."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ttabench.classifier import Classifier, Normalize
from ttabench.data.dataset import Labelled
from ttabench.errors import unknown
from ttabench.stream import Stream

__all__ = ["NORMALISATIONS", "accuracy_warning", "clean_accuracy", "normalisation"]

NORMALISATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}
"""Common normalisations: means and standard deviations of pixels in [0, 1]."""

TOLERANCE = 1.0  # allowed difference from the claimed accuracy in points, plus three standard errors
TRIAL_IMAGES = 1000  # images on which other normalisations are tried


@torch.no_grad()
def clean_accuracy(model: Callable[[Tensor], Tensor], data: Labelled, device: str = "cpu") -> float:
    """Accuracy in percent of an unadapted model in eval mode."""
    stream = Stream(data.images, np.arange(len(data)), 500, device)
    guesses = torch.cat([model(x).argmax(dim=1).cpu() for x in stream]).numpy()
    return 100 * float((guesses == data.labels).mean())


def normalisation(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if name not in NORMALISATIONS:
        raise unknown("normalisation", name, NORMALISATIONS)
    return NORMALISATIONS[name]


def accuracy_warning(
    classifier: Classifier, test: Labelled, accuracy: float, claimed: float | None, device: str
) -> str:
    """A warning about a low clean accuracy (in percent), with a better normalisation if there is one.

    "" if the accuracy is as claimed or, without a claim, clearly above chance: above twice the chance, or
    with few classes above the middle between chance and 100 %.
    """
    chance = 100 / classifier.num_classes
    low = min(2 * chance, (chance + 100) / 2)
    error = _standard_error(accuracy, len(test))
    if claimed is not None and abs(accuracy - claimed) > TOLERANCE + 3 * error:
        text = f"clean accuracy is {accuracy:.2f} %, but {claimed:.2f} % is claimed"
    elif claimed is None and accuracy < low + 3 * error:
        than = "little better" if accuracy > chance else "not better"
        text = f"clean accuracy is {accuracy:.2f} %, {than} than the {chance:.2f} % of guessing"
    else:
        return ""
    return text + _other_normalisation(classifier, test, device) + "."


def _standard_error(accuracy: float, count: int) -> float:
    """The standard error, in points, of an accuracy in percent; at least that of 1 or 99 %."""
    p = min(max(accuracy, 1), 99) / 100
    return 100 * math.sqrt(p * (1 - p) / count)


def _other_normalisation(classifier: Classifier, test: Labelled, device: str) -> str:
    step = max(1, len(test) // TRIAL_IMAGES)
    some = Labelled(test.images[::step], test.labels[::step])
    original = classifier.normalize
    accuracies: dict[str, float] = {}
    try:
        before = clean_accuracy(classifier, some, device)
        for name, (mean, std) in NORMALISATIONS.items():
            classifier.normalize = Normalize(mean, std).to(device)
            accuracies[name] = clean_accuracy(classifier, some, device)
    finally:
        classifier.normalize = original
    best = max(accuracies.values())
    margin = 2 * _standard_error(best, len(some))
    if best <= before + max(2.0, margin):
        return ""
    close = sorted(
        (name for name in accuracies if accuracies[name] >= best - margin), key=lambda name: -accuracies[name]
    )
    options = " or ".join(f"{name} ({accuracies[name]:.1f} %)" for name in close)
    return f"; it is {before:.1f} % on {len(some):,} of the images, where --normalize {options} does better"
