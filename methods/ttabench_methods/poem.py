"""POEM: protected online entropy matching (Bar, Shaer, Romano, NeurIPS 2024).

A bettor gains if the entropies of the stream have another distribution than those of source images. The
network is adapted against the shift that the bet describes (see `betting`).

| symbol | name       |                                                                              |
| ------ | ---------- | ---------------------------------------------------------------------------- |
| Z      | h          | softmax entropy of an image of the stream, before the update                 |
| F_s    | cdf        | distribution of the entropies of source images                               |
| u      | –          | F_s(Z): uniform if there is no shift                                         |
| ε, Q   | bettor     | the bet, and Q(u) = ½ ε u² + (1 − ½ ε) u, the distribution it describes      |
| Z̃      | target     | F_s⁻¹(Q(u)): the matched entropy; Z if ε = 0                                 |
| E₀     | e0         | `e0_factor` · ln C; with `weighted`, images at or above it do not count      |

Loss: mean of exp(E₀ − Z) · ½ (Z − Z̃)² over the images below E₀, weight and Z̃ without gradient; without
`weighted`, mean of ½ (Z − Z̃)² over all. No step before `delayed_start` images have been seen. All logits
are divided by `temperature`. Adapted: affine parameters of the norm layers. Scored: the forward pass before
the update.

Source entropies come from training images, for which a network is more certain than for new images. So a
small shift is measured even if there is none (official: a held-out quarter of the validation images).

Deviations: training images; temperature 1 (official: calibrated with labels, 1.8 on CIFAR-10, on ImageNet 0.9
for ResNet50-GN and 1.025 for ViT-B); batches of 64, as ETA (official: 1 on ImageNet, 4 on CIFAR). With
`official_quirks=True`, as in the official code: the weight is squared, the bettor does not learn from the
first image, ε may exceed its limit by a step, momentum alone moves the weights if no image is below E₀, and
the top layers are left out by SAR's names, but not the final norm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from ttabench import nn as tta
from ttabench.errors import UserError
from ttabench.method import Natural, Needs, NonNegative, Positive, Range, SourceData
from ttabench_methods import references
from ttabench_methods.betting import CDF, Bettor, Values


@dataclass(frozen=True, slots=True, kw_only=True)
class POEMConfig(tta.NormSettings):
    """Defaults: the official CIFAR script; `source_images` a quarter of the test set (0: all there are).

    gamma     learning rate of the bettor.
    eps_clip  limit of the bettor's ε.
    """

    norms: Literal["batch", "all"] = "all"
    optimizer: Literal["adam", "adamw", "sgd", "nesterov"] = "sgd"
    weighted: bool = True  # weight images by their entropy, and leave out those at or above E₀
    e0_factor: NonNegative = 0.4  # E₀ over ln C
    gamma: NonNegative = 1 / (8 * math.sqrt(3))  # learning rate of the bettor
    eps_clip: Annotated[float, Range(above=0, below=2)] = 1.8  # limit of the bet ε
    delayed_start: Natural = 100  # images that the bettor sees before the first update
    temperature: Positive = 1.0  # temperature of the softmax
    source_images: Natural = 2500  # images for the source's entropies; 0 = all; a quarter of the test set
    official_quirks: bool = False  # squared weights of images; momentum moves the weights also without a loss


class POEM(tta.NormAdapter[POEMConfig]):
    """Match the entropies of the stream to those of the source, guided by a bet on their shift."""

    name = "poem"
    paper = references.POEM
    needs = Needs(
        gradient=True,
        source_data="statistics",
        source_statistics=("entropies",),
        norm_layers=("batch", "group", "layer", "instance"),
    )
    Config = POEMConfig
    vit_lr = 1e-3  # ViT-B
    batch_size = 64
    deviations = (
        "entropies of training images (official: held-out ones); temperature 1 (official: chosen with "
        "labels); weights of images are not squared (official_quirks: squared)"
    )

    @classmethod
    def for_dataset(cls, dataset: str, num_classes: int) -> Mapping[str, Any]:
        """ImageNet: official (ResNet50-GN)."""
        return {"lr": 2.5e-4, "source_images": 12_500} if num_classes >= 1000 else {}

    def setup(self, source: SourceData | None) -> None:
        cfg = self.config
        if source is None:
            raise UserError(
                "poem needs entropies of clean source images; pass source data to prepare(source)."
            )
        self.cdf = CDF(as_values(source.entropies(self.model, cfg.source_images, cfg.temperature)))
        quirks = cfg.official_quirks
        self.collect(skip=tta.top_norms_by_name(self.model) - {"net.norm"} if quirks else ())
        self.e0 = cfg.e0_factor * math.log(self.model.num_classes)
        self.bettor = Bettor(cfg.gamma, cfg.eps_clip, quirks)

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x) / self.config.temperature
        h = tta.entropy(logits)
        target = self.match(h.detach())
        reliable = h.detach() < self.e0 if self.config.weighted else torch.ones_like(h, dtype=torch.bool)
        any_reliable = self.config.official_quirks or bool(reliable.any())
        if any_reliable and self.bettor.seen >= self.config.delayed_start:
            tta.minimise(tta.masked_mean(self.loss(h, target), reliable), self.optimizer)
        return logits.detach()

    def match(self, h: Tensor) -> Tensor:
        """Z̃ for the entropies of a batch, with one bet per image: (B,) → (B,)."""
        protected = [self.bettor(u) for u in self.cdf(as_values(h)).tolist()]
        return torch.from_numpy(self.cdf.inverse(np.array(protected))).to(h)

    def loss(self, h: Tensor, target: Tensor) -> Tensor:
        """½ (Z − Z̃)² per image, times the weight with `weighted`: (B,), (B,) → (B,)."""
        squared_error = (h - target).square() / 2
        if not self.config.weighted:
            return squared_error
        weight = (self.e0 - h.detach()).exp()
        return squared_error * (weight.square() if self.config.official_quirks else weight)

    def predict(self, x: Tensor) -> Tensor:
        return super().predict(x) / self.config.temperature

    def alarms(self) -> dict[str, Any]:
        return {"bet": round(self.bettor.bet, 4), "log_wealth": round(self.bettor.log_wealth, 3)}


def as_values(h: Tensor) -> Values:
    """A vector (n,) in double precision, off the device."""
    return h.cpu().double().numpy()
