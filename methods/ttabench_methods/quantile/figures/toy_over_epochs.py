"""How a matching in the plane goes, for six blobs and two moons: samples at some epochs, and metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ttabench_methods.quantile.toys import Example, match

from . import style
from .style import Array, Labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOTES = 200  # about how many epochs are noted


@dataclass(frozen=True)
class Course:
    """source (n, 2), labels (n,); corrected (p, n, 2) at the p epochs `shown`; metrics (e,) over `epochs`."""

    source: Array
    labels: Labels
    shown: Labels
    corrected: Array
    epochs: Labels
    loss: Array
    mse: Array
    wasserstein: Array


def follow(example: Example, epochs: int, lr: float, momentum: float, parts: tuple[float, ...]) -> Course:
    """Run Algorithm 1 on an example; show it after these `parts` of the epochs, from 0 to 1."""
    run = match(example, epochs, lr, momentum, every=max(1, epochs // NOTES))
    at = [round(part * (len(run.epochs) - 1)) for part in parts]
    return Course(
        source=example.source.double().numpy(),
        labels=example.labels.numpy(),
        shown=np.array([run.epochs[i] for i in at]),
        corrected=np.stack([run.corrected[i].double().numpy() for i in at]),
        epochs=np.array(run.epochs),
        loss=np.array(run.loss),
        mse=np.array(run.mse),
        wasserstein=np.array(run.wasserstein),
    )


def draw(course: Course, beside: Array | None = None) -> Figure:
    """Above: source and corrected samples at four epochs. Below: loss, MSE and Wasserstein distance.

    beside  the shifted samples (n, 2), drawn alone beside the source before all others.
    """
    wide, high = np.ptp(np.concatenate([course.source, *course.corrected]), axis=0)
    rows = 2 if beside is None else 3
    heights = rows * (1.27 * high / wide + 0.25) + 0.5, 1.2  # inches: the panels have equal scales
    figure = Figure(figsize=(style.COLUMN, sum(heights)), layout="constrained")
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=heights)[:, 0]
    every = panels = above.subplots(rows, 2, sharex=True, sharey=True).ravel()
    if beside is not None:
        panels = _alone(every, course, beside)
    for axes, epoch, corrected in zip(panels, course.shown, course.corrected, strict=True):
        _overlay(axes, course, corrected)
        axes.set_title(f"Epoch {epoch}" if epoch else "Epoch 0, the start", pad=3)
    style.plane(every)
    above.legend(
        handles=[
            style.key("source", "o"),
            style.key("corrected", "x"),
            style.key("class to its place", r"$\longrightarrow$", style.BLACK, 13),
        ],
        loc="outside upper center", ncols=3, columnspacing=1, handletextpad=0.4, borderaxespad=0.2,
    )  # fmt: skip
    curves = {
        "Quantile loss": (course.loss, style.BLUE),
        "MSE of pairs": (course.mse, style.VERMILION),
        "Wasserstein": (course.wasserstein, style.GREEN),
    }
    for axes, (title, (values, colour)) in zip(below.subplots(1, 3), curves.items(), strict=True):
        axes.plot(course.epochs, values, color=colour)
        highest = 1.08 * values.max() or 1  # all 0, where the start is the solution
        axes.set(ylim=(0, highest), xlim=(0, course.epochs[-1]))
        axes.set_title(title, pad=3)
        axes.set_xlabel("Epoch", labelpad=1)
        axes.locator_params(nbins=3)
        for epoch in course.shown:
            axes.axvline(epoch, color=style.GREY, linewidth=0.5, linestyle=":", zorder=0)
    return figure


def _alone(panels: NDArray[Any], course: Course, beside: Array) -> NDArray[Any]:
    """Source and shifted samples in a panel of their own each; the panels that are left."""
    style.source(panels[0], course.source, course.labels)
    style.corrected(panels[1], beside, course.labels)
    panels[0].set_title("Source", pad=3)
    panels[1].set_title("Shifted: turned by 180°", pad=3)
    return panels[2:]


def _overlay(axes: Axes, course: Course, corrected: Array) -> None:
    style.source(axes, course.source, course.labels)
    style.corrected(axes, corrected, course.labels)
    for label in np.unique(course.labels):
        members = course.labels == label
        start, end = corrected[members].mean(0), course.source[members].mean(0)
        if np.linalg.norm(end - start) > 0.02 * np.ptp(course.source):  # else it would be all head
            style.arrow(axes, start, end, width=1.0, head=5)
