"""Source data for networks that ttabench did not train: constant channels, and images of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ttabench.classifier import Classifier
from ttabench.classifier.norm_layers import norm_modules
from ttabench.measure.source_access import BATCH, SourceImages, SourceProvider
from ttabench.measure.source_statistics import CELLS, Batches, invert, rows
from ttabench.nn import on_output

PIXELS = 500 * 64 * 64
"""In one forward pass of a summary: memory grows with the pixels of a batch."""


class AnyNetwork(SourceProvider):
    """Summaries of the source data for any network; mixed with a class that has the images.

    A channel may be constant on all source images, as in real networks: its quantiles are this value. A
    summary reads at most `PIXELS` pixels at once. A method that asks for images gets the batches it asks for.
    """

    _images: Any

    def batches(self, batch_size: int, limit: int = 0, shuffle: bool = False) -> Iterator[Tensor]:
        self._serve("images", "images", limit)
        return super()._take(batch_size, limit, shuffle)  # type: ignore[safe-super]

    def quantiles(
        self, classifier: Classifier, levels: tuple[float, ...], limit: int = 0
    ) -> dict[str, Tensor]:
        self._serve("statistics", f"{len(levels)} quantiles per channel of norm layers", limit)
        return self._once(
            ("quantiles", limit, levels),
            classifier,
            lambda: quantiles(classifier, lambda: self._take(BATCH, limit), levels),
        )

    def _take(self, batch_size: int, limit: int, shuffle: bool = False) -> Iterator[Tensor]:
        values = self._images[:1].numel() if isinstance(self._images, Tensor) else self._images[:1].size
        most = max(1, PIXELS // (values // 3))
        return super()._take(min(batch_size, most), limit, shuffle)  # type: ignore[safe-super]


class SourceOfAnyNetwork(AnyNetwork, SourceImages):
    """The clean training images of a dataset, see :class:`AnyNetwork`."""


@torch.no_grad()
def quantiles(
    classifier: Classifier, again: Callable[[], Batches], levels: tuple[float, ...]
) -> dict[str, Tensor]:
    """Quantiles (C, Q) as `source_statistics.quantiles` gives them; of a constant channel, its value.

    Where no channel is constant, they are the same bit for bit.
    """
    layers = dict(norm_modules(classifier))
    ends: dict[str, tuple[Tensor, Tensor]] = {}
    counts: dict[str, Tensor] = {}

    def widest(name: str, output: Tensor) -> None:
        values = rows(layers[name], output)
        low, high = values.amin(dim=0), values.amax(dim=0)
        if name in ends:
            low, high = torch.minimum(low, ends[name][0]), torch.maximum(high, ends[name][1])
        ends[name] = low, high

    def count(name: str, output: Tensor) -> None:
        low, high = ends[name]
        scale = CELLS / (high - low)
        scale = torch.where(scale.isfinite(), scale, 0)  # all values of a constant channel: the first cell
        cell = ((rows(layers[name], output) - low) * scale).clamp_(0, CELLS - 1).long()
        cell += CELLS * torch.arange(len(low), device=low.device)
        histogram = cell.flatten().bincount(minlength=CELLS * len(low)).view(len(low), CELLS)
        counts[name] = counts[name] + histogram if name in counts else histogram

    for act in (widest, count):
        with on_output(layers, act):
            for x in again():
                classifier(x)
    return {name: invert(counts[name], *ends[name], levels) for name in counts}
