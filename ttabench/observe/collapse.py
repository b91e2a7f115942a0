"""The collapse alarm: a method predicts far fewer classes than the images have."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# An alarm is raised if predictions use less than this share of the classes. The first class is not counted:
# every prediction uses at least one.
COLLAPSE = 0.5
DRAWS = 10


def alarm_of_counts(predicted: NDArray[np.int64], labels: NDArray[np.int64]) -> str:
    """The alarm for the numbers of predictions and of images of each class; "" if there is none."""
    used = effective_number(predicted)
    if used - 1 < COLLAPSE * (number_in_draws(labels) - 1):
        present = effective_number(labels)
        return f"collapse: predictions have {used:.1f} effective classes and labels have {present:.1f}"
    return ""


def effective_number(counts: NDArray[np.int64]) -> float:
    """The effective number of classes: exp of the entropy of a histogram of labels."""
    p = counts / counts.sum()
    p = p[p > 0]
    return float(np.exp(-(p * np.log(p)).sum()))


def number_in_draws(counts: NDArray[np.int64]) -> float:
    """The effective number of classes of as many images, drawn at random with these shares of the classes.

    Mistakes fall on random classes. Where there is one image of each of 1,000 classes, 1,000 draws have 565
    effective classes, and with ten images of each, 951. It is the mean of seeded draws.
    """
    draws = np.random.Generator(np.random.PCG64(0)).multinomial(counts.sum(), counts / counts.sum(), DRAWS)
    return float(np.mean([effective_number(draw) for draw in draws]))
