"""What the paper's figures have in common: width, colours, and how samples in the plane are drawn.

All are as wide as a column, so that nothing shrinks in print. Colours are Okabe and Ito's, which the
colour-blind can tell apart; no meaning hangs on colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

COLUMN = 3.3  # inches
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE, GREY = "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#8A8A8A"
CLASSES = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, BLACK, YELLOW, GREY, "#7A4B1E")


def colours(labels: Labels) -> list[str]:
    """One per sample, by its class; they repeat from the eleventh class on."""
    return [CLASSES[label % len(CLASSES)] for label in labels]


def source(axes: Axes, x: Array, labels: Labels, size: float = 4) -> None:
    """Source samples (n, 2): dots."""
    axes.scatter(x[:, 0], x[:, 1], size, colours(labels), alpha=0.5, linewidths=0)


def corrected(axes: Axes, x: Array, labels: Labels, size: float = 5) -> None:
    """Corrected target samples (n, 2): crosses."""
    axes.scatter(x[:, 0], x[:, 1], size, colours(labels), marker="x", linewidths=0.5)


def arrow(
    axes: Axes, start: Array, end: Array, colour: str = BLACK, width: float = 1.2, head: float = 7
) -> None:
    """From `start` to `end`, both (2,)."""
    look = {"arrowstyle": "-|>", "color": colour, "linewidth": width, "mutation_scale": head}
    axes.annotate("", tuple(end), tuple(start), arrowprops={**look, "shrinkA": 0, "shrinkB": 0})


def key(text: str, marker: str, colour: str = GREY, size: float = 4) -> Line2D:
    """An entry for a legend."""
    edge = 0.7 if marker == "x" else 0
    return Line2D(
        [], [], linestyle="", marker=marker, markersize=size, color=colour, label=text, markeredgewidth=edge
    )


def plane(panels: Iterable[Axes]) -> None:
    """Panels of one plane: equal scales, and words only where they are needed."""
    for axes in panels:
        axes.set_aspect("equal")
        axes.set_xlabel("$x_1$", labelpad=1)
        axes.set_ylabel("$x_2$", labelpad=1)
        axes.label_outer()
