"""Quantile indices over the plane (appendix), of source, shifted and corrected samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, hsv_to_rgb
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
    """Left: the three fields, colour for direction and strength of colour for length. Right: what the signs
    mean, and how far shifted and corrected are from the source at each point.
    """
    made = Figure(figsize=(style.COLUMN, 5.1), layout="constrained")
    grid = made.subplots(3, 2, sharex=True, sharey=True)
    some = slice(EVERY // 2, None, EVERY)
    edge = fields.axis[-1] + (fields.axis[-1] - fields.axis[-2]) / 2
    window = 2 * (-edge, edge)
    for axes, title, x, u in zip(grid[:, 0], TITLES, fields.samples, fields.indices, strict=True):
        length = np.linalg.norm(u, axis=-1)
        axes.imshow(colour(u), origin="lower", extent=window, interpolation="bilinear")
        contours = axes.contour(fields.axis, fields.axis, length, CONTOURS, colors=style.BLACK)
        contours.set(linewidth=0.6, linestyle="dashed")
        axes.scatter(x[:, 0], x[:, 1], 2, color=style.BLACK, linewidths=0)
        arrows = u[some, some] / length[some, some, None]
        axes.quiver(
            fields.axis[some], fields.axis[some], *np.moveaxis(arrows, -1, 0),
            color=style.BLACK, width=0.008, scale=14, pivot="mid",
        )  # fmt: skip
        axes.set_title(title, pad=3)
    away = np.linalg.norm(fields.indices[1:] - fields.indices[0], axis=-1)
    for axes, here, difference in zip(grid[1:, 1], away, fields.difference[1:], strict=True):
        shade = axes.imshow(here, SHADES, vmin=0, vmax=away.max(), origin="lower", extent=window)
        axes.set_title(f"$\\Delta = {difference:.3f}$", pad=3)
    style.plane([*grid[:, 0], *grid[1:, 1]])
    made.colorbar(
        shade,
        ax=list(grid[1:, 1]),
        location="bottom",
        shrink=0.8,
        pad=0.02,
        label=r"$\Vert U(z) - U_{source}(z) \Vert$",
    )
    _key(grid[0, 1])
    return made


def colour(u: Array) -> Array:
    """Indices (…, 2) as colours (…, 3): the hue is the direction, white is length 0, full colour is 1."""
    hue = (np.arctan2(u[..., 1], u[..., 0]) / (2 * np.pi)) % 1
    length = np.clip(np.linalg.norm(u, axis=-1), 0, 1)
    shown: Array = hsv_to_rgb(np.stack([hue, 0.75 * length, np.ones_like(hue)], axis=-1))
    return shown


def _key(rest: Axes) -> None:
    """A wheel of all directions and lengths, and the other signs."""
    rest.set_axis_off()
    wheel = rest.inset_axes((0.32, 0.0, 0.36, 0.36))
    axis = np.linspace(-1, 1, 101)
    u = np.stack(np.meshgrid(axis, axis, indexing="xy"), -1)
    inside = (np.linalg.norm(u, axis=-1) <= 1)[..., None]
    wheel.imshow(np.where(inside, colour(u), 1.0), origin="lower", extent=(-1, 1, -1, 1))
    wheel.set_axis_off()
    wheel.set_title("$U(z)$, length 0 to 1", pad=1, fontsize=7)
    rest.legend(
        handles=[
            style.key("sample", "o", style.BLACK, 2),
            style.key("direction of $U(z)$", r"$\rightarrow$", style.BLACK, 8),
            Line2D([], [], color=style.BLACK, linewidth=0.6, linestyle="dashed", label="length ¼, ½, ¾"),
            style.key("mean difference", r"$\Delta$", style.BLACK, 6),
        ],
        loc="upper center", borderaxespad=0,
    )  # fmt: skip
