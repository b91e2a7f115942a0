"""The quantile index in the plane (appendix): the mean of the unit vectors from samples to quantile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure

from ttabench_methods.quantile import quantile_index

from . import style
from .style import Array

POINT = (0.6, 0.4)
SAMPLES = ((-1.4, 0.4), (-0.7, -0.1), (1.5, -1.1))


@dataclass(frozen=True)
class Index:
    """samples (n, 2) relative to the quantile; units (n, 2), samples to quantile; index (2,), their mean."""

    samples: Array
    units: Array
    index: Array


def figure() -> Figure:
    """The quantile index U_F(z): three samples around z, their unit vectors, and the mean of these."""
    return draw(compute())


def compute(point: tuple[float, float] = POINT, samples: tuple[tuple[float, float], ...] = SAMPLES) -> Index:
    z, x = torch.tensor([point], dtype=torch.float64), torch.tensor(samples, dtype=torch.float64)
    units = (z - x) / torch.linalg.vector_norm(z - x, dim=1, keepdim=True)
    return Index((x - z).numpy(), units.numpy(), quantile_index(z, x)[0].numpy())


def draw(shown: Index) -> Figure:
    made = Figure(figsize=(style.COLUMN, 1.95), layout="constrained")
    left, right = made.subplots(1, 2)
    left.scatter(*shown.samples.T, s=22, color=style.BLUE, label="sample $X_i$")
    left.scatter(0, 0, s=30, color=style.BLACK, marker="D", label="quantile $z$")
    for x, unit in zip(shown.samples, shown.units, strict=True):
        left.annotate("", (0, 0), x, arrowprops={"arrowstyle": "-", "linestyle": ":", "color": style.GREY})
        style.arrow(left, x, x + unit, style.BLUE)
        style.arrow(right, np.zeros(2), unit, style.BLUE)
    style.arrow(right, np.zeros(2), shown.index, style.VERMILION, width=2.2)
    circle = np.linspace(0, 2 * np.pi, 200)
    right.plot(np.cos(circle), np.sin(circle), color=style.GREY, linewidth=0.6)
    right.text(shown.index[0] - 0.3, shown.index[1] + 0.12, "$U_F(z)$", color=style.VERMILION)
    left.set_title("Data seen from $z$")
    right.set_title("Unit vectors and mean")
    reach = 1.18 * np.abs(shown.samples).max()
    left.set(xlim=(-reach, reach), ylim=(-reach, reach))
    right.set(xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), xticks=(-1, 0, 1), yticks=(-1, 0, 1))
    left.legend(loc="upper right", handletextpad=0.1, borderaxespad=0)
    for axes in (left, right):
        axes.set_aspect("equal")
    left.set_xlabel("$x_1 - z_1$", labelpad=1)
    left.set_ylabel("$x_2 - z_2$", labelpad=0)
    right.set_xlabel("$u_1$", labelpad=1)
    right.set_ylabel("$u_2$", labelpad=-4)
    return made
