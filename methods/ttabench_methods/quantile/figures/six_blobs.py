"""Six blobs (appendix): a linear decorruptor that starts as the identity inverts a linear shift."""

from __future__ import annotations

from matplotlib.figure import Figure

from ttabench.figure import at_least
from ttabench_methods.quantile.toys import six_blobs

from .toy_over_epochs import Course, draw, follow

SHOWN = (0.0, 0.2, 0.8, 1.0)  # paper: epochs 1, 200, 800 and 1,000


def figure(*, epochs: int = 1000, lr: float = 0.02, seed: int = 0) -> Figure:
    """Six classes under a linear shift: samples at four epochs, and loss, MSE and Wasserstein distance."""
    return draw(compute(epochs, lr, seed))


def compute(epochs: int = 1000, lr: float = 0.02, seed: int = 0) -> Course:
    at_least(1, epochs=epochs)
    at_least(0, lr=lr)
    return follow(six_blobs(seed), epochs, lr, 0.0, SHOWN)
