"""The collapse alarm: a method that predicts far fewer classes than there are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Alarm where predictions use less than this share of the classes beyond the first, which any prediction uses.
COLLAPSE = 0.5


def collapse_alarm(predicted: NDArray[np.int64], labels: NDArray[np.int64]) -> str:
    """The alarm of predictions (n,) on images of classes `labels` (n,); "" where there is none."""
    used, there = effective_classes(predicted), effective_classes(labels)
    if used - 1 < COLLAPSE * (there - 1):
        return f"collapse: predictions use {used:.1f} classes where {there:.1f} are there"
    return ""


def effective_classes(labels: NDArray[np.int64]) -> float:
    """exp of the entropy of the label histogram: how many classes are really in use."""
    p = np.bincount(labels) / len(labels)
    p = p[p > 0]
    return float(np.exp(-(p * np.log(p)).sum()))
