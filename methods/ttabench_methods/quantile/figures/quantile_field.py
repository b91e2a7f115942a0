"""Quantile indices over the plane (appendix), of source, shifted and corrected samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from ttabench.figure import at_least
from ttabench_methods.quantile import quantile_index
from ttabench_methods.quantile.toys import match, six_blobs

from . import style
from .style import Array

TITLES = ("Source", "Shifted", "Corrected")
GRID = 61  # points per side, of which every sixth carries an arrow
EVERY = 6
CONTOURS = (0.25, 0.5, 0.75)
SHADES = ListedColormap(colormaps["Blues"](np.linspace(0, 0.65, 256)))  # black reads on all of them


@dataclass(frozen=True)
class Fields:
    """Of source, shifted and corrected: samples (3, n, 2), indices (3, g, g, 2) over axis (g,) squared.

    difference (3,) is the mean over the grid of ‖U(z) − U_source(z)‖.
    """

    axis: Array
    samples: Array
    indices: Array

    @property
    def difference(self) -> Array:
        distances: Array = np.linalg.norm(self.indices - self.indices[0], axis=-1).mean((1, 2))
        return distances


def figure(*, epochs: int = 800, lr: float = 0.02, seed: int = 0) -> Figure:
    """Quantile indices over the plane for source, shifted and corrected samples of six blobs."""
    return draw(compute(epochs, lr, seed))


def compute(epochs: int = 800, lr: float = 0.02, seed: int = 0) -> Fields:
    at_least(1, epochs=epochs)
    at_least(0, lr=lr)
    example = six_blobs(seed)
    run = match(example, epochs, lr, every=epochs)
    samples = torch.stack([example.source, example.target, run.corrected[-1]]).double()
    axis = torch.linspace(-21, 21, GRID, dtype=torch.float64)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1).reshape(-1, 2)
    indices: Tensor = torch.stack([quantile_index(grid, x) for x in samples])
    return Fields(axis.numpy(), samples.numpy(), indices.reshape(3, GRID, GRID, 2).numpy())


def draw(fields: Fields) -> Figure:
    """The three fields, and in the fourth place what their signs mean."""
    made = Figure(figsize=(style.COLUMN, 3.5), layout="constrained")
    *panels, rest = made.subplots(2, 2, sharex=True, sharey=True).ravel()
    some = slice(EVERY // 2, None, EVERY)
    edge = fields.axis[-1] + (fields.axis[-1] - fields.axis[-2]) / 2
    for axes, title, x, u, difference in zip(
        panels, TITLES, fields.samples, fields.indices, fields.difference, strict=True
    ):
        length = np.linalg.norm(u, axis=-1)
        shade = axes.imshow(
            length, SHADES, vmin=0, vmax=1, origin="lower", extent=2 * (-edge, edge), interpolation="bilinear"
        )
        contours = axes.contour(fields.axis, fields.axis, length, CONTOURS, colors=style.BLACK)
        contours.set(linewidth=0.6, linestyle="dashed")
        axes.scatter(x[:, 0], x[:, 1], 2, color=style.VERMILION, linewidths=0)
        arrows = u[some, some] / length[some, some, None]
        axes.quiver(
            fields.axis[some], fields.axis[some], *np.moveaxis(arrows, -1, 0),
            color=style.BLACK, width=0.008, scale=14, pivot="mid",
        )  # fmt: skip
        axes.set_title(title if title == "Source" else f"{title}: $\\Delta = {difference:.3f}$", pad=3)
    style.plane(panels)
    panels[1].set_xlabel("$x_1$", labelpad=1)  # nothing is below it that would carry them
    panels[1].tick_params(labelbottom=True)
    rest.set_axis_off()
    rest.legend(
        handles=[
            style.key("sample", "o", style.VERMILION, 2),
            style.key("direction of $U(z)$", r"$\rightarrow$", style.BLACK, 8),
            Line2D([], [], color=style.BLACK, linewidth=0.6, linestyle="dashed", label="length ¼, ½, ¾"),
            style.key("mean difference\nfrom the source", r"$\Delta$", style.BLACK, 6),
        ],
        loc="upper center", borderaxespad=0,
    )  # fmt: skip
    made.colorbar(
        shade, cax=rest.inset_axes((0.05, 0.12, 0.9, 0.08)), orientation="horizontal",
        label=r"Length $\|U(z)\|$", ticks=(0, 0.5, 1),
    )  # fmt: skip
    return made
