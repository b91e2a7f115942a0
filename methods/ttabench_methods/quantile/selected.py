"""Quantile matching on all images and on a part of them; the longer training has to be worth it.

With many images an epoch has many updates. Under some corruptions these move features to those of other
classes: the accuracy falls, and the quantile loss hardly does. Where they help, the loss falls by half.

| symbol | name     |                                                                                |
| ------ | -------- | ------------------------------------------------------------------------------ |
| T_all  | –        | the decorruptor of `quantile`, trained on all images                           |
| T_part | –        | the same, trained on `part` of the images, drawn at random, for as many epochs |
| L      | compared | the quantile loss of all images, with T_all and with T_part                    |

Kept: T_all if L(T_all) ≤ `worth` · L(T_part), else T_part. With at most `part` images there is T_all alone.
Labels play no role. For n images it costs `part` / n more than `quantile`, and two passes.

Scored: as in `quantile`. Online there is no choice: each batch is seen once.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ttabench.method import Batches, Count, Positive, SourceData

from .config import QuantileConfig
from .method import Quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedQuantileConfig(QuantileConfig):
    """Defaults: those of `quantile`, chosen on the four extra corruptions; `part` and `worth`: our choice.

    Raises ValueError on settings that exclude each other.
    """

    part: Count = 1000  # images of the second training; our choice
    worth: Positive = 0.667  # T_all is kept up to this share of T_part's loss; our choice

    def __post_init__(self) -> None:
        QuantileConfig.__post_init__(self)
        if self.batch_norm == "target":
            raise ValueError("batch_norm is 'target', and both decorruptors share one classifier; set source")


class DrawnImages:
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
    """Quantile matching on all images, or on a part of them if the loss falls as low."""

    name = "quantile_selected"
    Config = SelectedQuantileConfig
    config: SelectedQuantileConfig
    deviations = (
        "not in the paper: offline, with more than 1,000 images (part), a second decorruptor is trained on "
        "1,000 of them, and kept unless the first has two thirds of its loss or less (worth); see also the "
        "deviations of quantile"
    )

    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        self.compared: list[float] = []  # losses of all images with T_all and T_part

    def fit(self, batches: Batches, epochs: int = 0) -> None:
        if batches.count <= self.config.part:
            super().fit(batches, epochs)
            return
        start = copy.deepcopy(self.decorruptor.state_dict())
        super().fit(batches, epochs)
        of_all = copy.deepcopy(self.decorruptor.state_dict()), self.losses, self.kept, self.views
        self.compared = [self._loss(batches)]
        self.decorruptor.load_state_dict(start)
        self.optimizer.state.clear()
        super().fit(DrawnImages(batches, self.config.part), epochs)
        self.compared.append(self._loss(batches))
        if self.compared[0] <= self.config.worth * self.compared[1]:
            state, self.losses, self.kept, self.views = of_all
            self.decorruptor.load_state_dict(state)

    def _loss(self, batches: Batches) -> float:
        return self.matching.loss_of(self._all_features(batches))

    def alarms(self) -> dict[str, Any]:
        names = ("loss_of_all", "loss_of_part")
        return {
            **super().alarms(),
            **dict(zip(names, [round(one, 6) for one in self.compared], strict=False)),
        }
