"""The clean accuracy of a source classifier, and warnings about a low one."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ttabench.classifier import Classifier
from ttabench.data.dataset import Labelled
from ttabench.errors import unknown
from ttabench.models.input_trials import better_classes, better_input, predictions, probabilities, some_of
from ttabench.models.label_noise import noisy_labels

NORMALISATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "bytes": ((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255)),
}
"""Common normalisations: means and standard deviations of pixels in [0, 1]; ``bytes`` gives 0 to 255."""

TOLERANCE = 1.0  # allowed difference from the claimed accuracy in points, plus three standard errors


def clean_accuracy(model: Callable[[Tensor], Tensor], data: Labelled, device: str = "cpu") -> float:
    """Accuracy in percent of an unadapted model in eval mode."""
    return 100 * float((predictions(model, data, device) == data.labels).mean())


def normalisation(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if name not in NORMALISATIONS:
        raise unknown("normalisation", name, NORMALISATIONS)
    return NORMALISATIONS[name]


def accuracy_warning(classifier: Classifier, test: Labelled, accuracy: float, device: str) -> str:
    """A warning about a low clean accuracy (in percent), with a better way to prepare images if there is one.

    "" if the accuracy is clearly above chance: above twice the chance, or with few classes above the middle
    between chance and 100 %.
    """
    if not (text := _low(classifier.num_classes, len(test), accuracy, claimed=None)):
        return ""
    return f"{text}{better_input(classifier, test, NORMALISATIONS, device, {})}."


def input_warning(
    classifier: Classifier,
    test: Labelled,
    guesses: NDArray[np.int64],
    claimed: float | None,
    device: str,
) -> tuple[str, bool]:
    """A warning about a network from elsewhere, and whether it is close to chance.

    Also where the accuracy is high: other ways to prepare the images, and other class numbers, are tried.

    guesses   (n,): its predictions on the clean images.
    """
    accuracy = 100 * float((guesses == test.labels).mean())
    low = _low(classifier.num_classes, len(test), accuracy, claimed)
    better = better_classes(guesses, test.labels) or better_input(classifier, test, NORMALISATIONS, device)
    if not better:
        some = some_of(test)
        better = noisy_labels(probabilities(classifier, some, device), some.labels)
    if not low and not better:
        return "", False
    return f"{low or f'clean accuracy is {accuracy:.2f} %'}{better}.", bool(low) and claimed is None


def _low(num_classes: int, count: int, accuracy: float, claimed: float | None) -> str:
    """What is wrong with a clean accuracy, without a full stop; ""."""
    chance = 100 / num_classes
    low = min(2 * chance, (chance + 100) / 2)
    error = _standard_error(accuracy, count)
    if claimed is not None and abs(accuracy - claimed) > TOLERANCE + 3 * error:
        return f"clean accuracy is {accuracy:.2f} %, but {claimed:.2f} % is claimed"
    if claimed is None and accuracy < low + 3 * error:
        than = "little better" if accuracy > chance else "not better"
        return f"clean accuracy is {accuracy:.2f} %, {than} than the {chance:.2f} % of guessing"
    return ""


def _standard_error(accuracy: float, count: int) -> float:
    """The standard error, in points, of an accuracy in percent; at least that of 1 or 99 %."""
    p = min(max(accuracy, 1), 99) / 100
    return 100 * math.sqrt(p * (1 - p) / count)
