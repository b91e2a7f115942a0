"""Loss against error (Section 3): as the quantile loss falls, corrected images near the clean ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
import torch
from matplotlib.figure import Figure
from torch import Tensor

from ttabench.figure import Bench, at_least
from ttabench.method import Batches
from ttabench_methods.quantile import Quantile, quantile_loss

from . import style
from .forms import form
from .style import Array

PER_EPOCH = 4  # how often the two are measured
MEASURED = 1000  # on how many images at most
# From the identity and with no pull back to it, as in the paper: what falls, falls by training. And slowly,
# to be seen: at the learning rate that adapts best, Adam's first steps leap over half of the way and beyond.
# Nothing is trained for but the loss that is drawn, and the regulariser of the paper.
SETTINGS: Mapping[str, Any] = {
    "start": "identity", "proximity": 0.0, "per_class": 0.0, "information": 0.0, "lr": 1e-4,
}  # fmt: skip


@dataclass(frozen=True)
class Track:
    """Over `epochs` (p,), from 0, in fractions: the quantile loss and the mean squared error of pairs.

    loss   (p,) L_quant at the method's points, of the corrected test images.
    mse    (p,) mean of ‖f(T(x⁺)) − f(x)‖², x the clean counterpart of x⁺; nothing is fitted to it.
    """

    title: str
    epochs: Array
    loss: Array
    mse: Array

    def correlation(self, first: int = 0) -> float:
        """Pearson's, of the points from the `first` on: the start lies apart and might carry it alone."""
        return float(np.corrcoef(self.loss[first:], self.mse[first:])[0, 1])


def figure(bench: Bench, *, severity: int = 5, epochs: int = 0, method: str = "quantile") -> Figure:
    """The quantile loss and the squared error of features while matching (epochs: 0 = the method's own).

    method=quantile_paper shows the paper's form, quantile_strict its Algorithm 1 to the letter.
    """
    return draw(compute(bench, severity, epochs, method))


def compute(bench: Bench, severity: int = 5, epochs: int = 0, method: str = "quantile") -> Track:
    at_least(1, severity=severity)
    at_least(0, epochs=epochs)
    images = bench.images(severity, -(-len(bench.labels) // PER_EPOCH))
    shown_form = bench.method(form(method), **SETTINGS)
    shown, clean = some(images), shown_form.model.features(some(bench.images(0, images.batch_size)))
    rows: list[tuple[float, float]] = []

    def measure() -> None:
        rows.append(errors(shown_form, shown, clean))

    measure()
    torch.manual_seed(bench.seed)
    shown_form.fit(Watched(images, measure), epochs)
    loss, mse = np.array(rows).T
    title = f"{method}, learning rate {shown_form.config.lr:g}\n{bench.title}, severity {severity}"
    return Track(title, np.arange(len(rows)) / len(images), loss, mse)


@torch.no_grad()
def errors(method: Quantile, shown: Tensor, clean: Tensor) -> tuple[float, float]:
    """The quantile loss of images (n, 3, H, W), decorrupted, and their squared error from features (n, k)."""
    features = method.model.features(method.decorruptor(shown)).float()
    loss = quantile_loss(method.matching.points, features / method.matching.unit, method.matching.index)
    return loss.item(), (features - clean).square().sum(1).mean().item()


def some(images: Batches) -> Tensor:
    """The first images of a pass, :data:`MEASURED` at most."""
    batches = islice(images, -(-MEASURED // images.batch_size))
    return torch.cat(list(batches))[:MEASURED]


class Watched:
    """Batches that tell when each of a shuffled pass has been dealt with."""

    def __init__(self, images: Batches, after: Callable[[], None]) -> None:
        self.images, self.after = images, after
        self.count, self.batch_size = images.count, images.batch_size

    def __len__(self) -> int:
        return len(self.images)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.images)

    def shuffled(self) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self.images.shuffled():
            yield batch
            self.after()


def draw(track: Track) -> Figure:
    """Above: one against the other, with the correlation of all points and without the first. Below: both."""
    made = Figure(figsize=(style.COLUMN, 3.9), layout="constrained")
    above, below = made.subplots(2, 1)
    dots = above.scatter(track.loss, track.mse, c=track.epochs, cmap="cividis", s=12, linewidths=0)
    if len(track.loss) > 2:  # the line and its 95 % interval, of all points
        sns.regplot(
            x=track.loss, y=track.mse, ax=above, scatter=False, seed=0, color=style.GREY, line_kws={"lw": 0.8}
        )
    made.colorbar(dots, ax=above, label="Epoch", pad=0.02)
    above.set(xlabel="Quantile loss", ylabel="MSE of features")
    above.locator_params(axis="x", nbins=5)
    above.set_title(f"Correlation {track.correlation():.3f}, without the start {track.correlation(1):.3f}")
    both = pd.DataFrame(
        {"quantile loss": track.loss, "mean squared error (MSE)": track.mse}, index=track.epochs
    )
    sns.lineplot(both / both.iloc[0], palette=[style.BLUE, style.VERMILION], ax=below)
    below.set(xlabel="Epoch", ylabel="Relative to the start", ylim=(0, None), xlim=(0, track.epochs[-1]))
    made.suptitle(track.title, fontsize=8)
    return made
