"""A bad start on images: as in two moons, the loss falls from it, and the classes do not come back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure

from ttabench.figure import Bench, at_least

from . import style
from .forms import form
from .loss_vs_mse import PER_EPOCH, SETTINGS, Watched, errors, some
from .style import Array

# T at the start of training: scale and offset of all channels.
STARTS = {"the image": (1.0, 0.0), "its negative": (-1.0, 1.0)}
# Here matching may go as far as it can, so the rate is the method's own.
FREE = {name: value for name, value in SETTINGS.items() if name != "lr"}


@dataclass(frozen=True)
class Attempt:
    """From one start, over `epochs` (p,), in fractions: loss, MSE of pairs, accuracy (%), each (p,).

    lr  the learning rate.
    """

    start: str
    lr: float
    epochs: Array
    loss: Array
    mse: Array
    accuracy: Array


def figure(bench: Bench, *, severity: int = 5, epochs: int = 0, method: str = "quantile") -> Figure:
    """Matching that starts from the images, and from their negatives (epochs: 0 = the method's own).

    method=quantile_paper shows the paper's form, quantile_strict its Algorithm 1 to the letter.
    """
    attempts = compute(bench, severity, epochs, method)
    title = f"{method}, learning rate {attempts[0].lr:g}\n{bench.title}, severity {severity}"
    return draw(attempts, title)


def compute(bench: Bench, severity: int = 5, epochs: int = 0, method: str = "quantile") -> list[Attempt]:
    at_least(1, severity=severity)
    at_least(0, epochs=epochs)
    return [_from(start, bench, severity, epochs, method) for start in STARTS]


def _from(start: str, bench: Bench, severity: int, epochs: int, method: str) -> Attempt:
    images = bench.images(severity, -(-len(bench.labels) // PER_EPOCH))
    shown_form = bench.method(form(method), **FREE)
    scale, offset = STARTS[start]
    shown_form.decorruptor.scale.fill_(scale)
    shown_form.decorruptor.offset.fill_(offset)
    shown, clean = some(images), shown_form.model.features(some(bench.images(0, images.batch_size)))
    labels = torch.from_numpy(bench.labels[: len(shown)]).to(shown.device)
    rows: list[tuple[float, float, float]] = []

    @torch.no_grad()
    def measure() -> None:
        right = shown_form.model(shown_form.decorruptor(shown)).argmax(1) == labels
        rows.append((*errors(shown_form, shown, clean), 100 * right.float().mean().item()))

    measure()
    torch.manual_seed(bench.seed)
    shown_form.fit(Watched(images, measure), epochs)
    return Attempt(start, shown_form.config.lr, np.arange(len(rows)) / len(images), *np.array(rows).T)


def draw(attempts: list[Attempt], title: str) -> Figure:
    """Loss, error and accuracy over the epochs, a line for each start."""
    made = Figure(figsize=(style.COLUMN, 1.7), layout="constrained")
    looks = dict(zip(STARTS, ((style.BLUE, "-"), (style.VERMILION, "--")), strict=True))
    panels = made.subplots(1, 3)
    for axes, name, words in zip(
        panels, ("loss", "mse", "accuracy"), ("Quantile loss", "MSE of pairs", "Accuracy (%)"), strict=True
    ):
        for each in attempts:
            colour, line = looks[each.start]
            axes.plot(each.epochs, getattr(each, name), line, color=colour, label=each.start)
        axes.set(ylim=(-3, 103) if name == "accuracy" else (0, None), xlim=(0, attempts[0].epochs[-1]))
        axes.set_title(words, pad=3)
        axes.set_xlabel("Epoch", labelpad=1)
        axes.locator_params(nbins=3)
    lines, names = panels[0].get_legend_handles_labels()
    made.legend(lines, [f"start: {name}" for name in names], loc="outside lower center", ncols=2)
    made.suptitle(title, fontsize=8)
    return made
