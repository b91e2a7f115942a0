"""Quantile matching on all images and on a part of them; the decorruptor of higher InfoMax is kept.

With many images an epoch has many updates. Under some corruptions they match features to those of other
classes, and the accuracy falls. The quantile loss does not show this, the predictions do.

| symbol | name    |                                                                              |
| ------ | ------- | ---------------------------------------------------------------------------- |
| T_all  | –       | the decorruptor of `quantile`, trained on all images                         |
| T_part | –       | the same, trained on `part` of the images, drawn at random, for as many epochs |
| I      | infomax | entropy of the mean prediction − mean entropy of the predictions, all images |

Kept: T_part if it has the higher I, else T_all. With at most `part` images there is T_all alone. The labels
play no role. It costs `part` / n more than `quantile`, for n images, and two passes.

Scored: as in `quantile`. Online there is no choice: each batch is seen once.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ttabench.method import Batches, Count, SourceData
from ttabench.nn import widen

from .config import QuantileConfig
from .method import Quantile

__all__ = ["SelectedQuantile", "SelectedQuantileConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedQuantileConfig(QuantileConfig):
    """Defaults: those of `quantile`, which were chosen on the four extra corruptions; `part`: our choice.

    Raises ValueError on settings that exclude each other.
    """

    part: Count = 1000  # images of the second training; our choice

    def __post_init__(self) -> None:
        QuantileConfig.__post_init__(self)
        if self.batch_norm == "target":
            raise ValueError("batch_norm is 'target', and both decorruptors share one classifier; set source")


class Part:
    """Some images of a set, drawn at random and kept in memory; in the order of the set."""

    def __init__(self, batches: Batches, count: int) -> None:
        chosen = torch.zeros(batches.count, dtype=torch.bool)
        chosen[torch.randperm(batches.count)[:count]] = True
        parts = torch.split(chosen, batches.batch_size)
        self.images = torch.cat([x[mask.to(x.device)] for x, mask in zip(batches, parts, strict=True)])
        self.count, self.batch_size = len(self.images), batches.batch_size

    def __len__(self) -> int:
        return math.ceil(self.count / self.batch_size)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(torch.split(self.images, self.batch_size))

    def shuffled(self) -> Iterator[tuple[Tensor, Tensor]]:
        for positions in torch.split(torch.randperm(self.count), self.batch_size):
            yield positions, self.images[positions.to(self.images.device)]


class SelectedQuantile(Quantile):
    """Quantile matching on all images and on a part of them; InfoMax chooses."""

    name = "quantile_selected"
    Config = SelectedQuantileConfig
    config: SelectedQuantileConfig
    deviations = (
        "not in the paper: offline, with more than 1,000 images (part), a second decorruptor is trained on "
        "1,000 of them, and the one of higher InfoMax is kept; see also the deviations of quantile"
    )

    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        self.infomax: list[float] = []  # of T_all and T_part

    def fit(self, batches: Batches, epochs: int = 0) -> None:
        start = copy.deepcopy(self.decorruptor.state_dict())
        super().fit(batches, epochs)
        if batches.count <= self.config.part:
            return
        of_all = self._trained()
        self.infomax = [self._infomax(batches)]
        self.decorruptor.load_state_dict(start)
        self.optimizer.state.clear()
        super().fit(Part(batches, self.config.part), epochs)
        self.infomax.append(self._infomax(batches))
        if self.infomax[0] >= self.infomax[1]:
            self._take(of_all)

    def _trained(self) -> tuple[Any, ...]:
        """What a training leaves."""
        return copy.deepcopy(self.decorruptor.state_dict()), self.losses, self.kept, self.views

    def _take(self, trained: tuple[Any, ...]) -> None:
        state, self.losses, self.kept, self.views = trained
        self.decorruptor.load_state_dict(state)

    @torch.no_grad()
    def _infomax(self, batches: Iterable[Tensor]) -> float:
        """I of one forward pass, without views."""
        p = torch.cat([widen(self.model(self.decorruptor(x))).softmax(1) for x in batches])
        return float(torch.special.entr(p.mean(0)).sum() - torch.special.entr(p).sum(1).mean())

    def alarms(self) -> dict[str, Any]:
        names = ("infomax_of_all", "infomax_of_part")
        return {**super().alarms(), **dict(zip(names, [round(one, 4) for one in self.infomax], strict=False))}
