"""The collapse alarm: a method predicts far fewer classes than the images have."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# An alarm is raised if predictions use less than this share of the classes. The first class is not counted:
# every prediction uses at least one.
COLLAPSE = 0.5


def collapse_alarm(predicted: NDArray[np.int64], labels: NDArray[np.int64]) -> str:
    """The alarm for predictions (n,) on images of classes `labels` (n,); "" if there is none."""
    return alarm_of_counts(np.bincount(predicted), np.bincount(labels))


def alarm_of_counts(predicted: NDArray[np.int64], labels: NDArray[np.int64]) -> str:
    """The same for the numbers of predictions and of images of each class."""
    used, present = effective_number(predicted), effective_number(labels)
    if used - 1 < COLLAPSE * (present - 1):
        return f"collapse: predictions have {used:.1f} effective classes and labels have {present:.1f}"
    return ""


def effective_number(counts: NDArray[np.int64]) -> float:
    """The effective number of classes: exp of the entropy of a histogram of labels."""
    p = counts / counts.sum()
    p = p[p > 0]
    return float(np.exp(-(p * np.log(p)).sum()))
