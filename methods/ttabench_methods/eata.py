"""EATA: efficient test-time adaptation without forgetting (Niu et al., ICML 2022).

| symbol | name         |                                                                          |
| ------ | ------------ | ------------------------------------------------------------------------ |
| E(x)   | h            | softmax entropy, natural logarithm                                       |
| E₀     | e0           | `e0_factor` · ln C; samples at or above it are unreliable                |
| ε      | d_margin     | samples whose |cos| with the average prediction reaches it are redundant |
| m      | average      | moving average (0.9) of the mean softmax of the samples kept             |
| S(x)   | weight       | exp(E₀ − E(x)) of a sample kept, without gradient                        |
| ω, β   | fisher, fisher_alpha | Fisher information on clean images; weight of Σ ω (θ − θ₀)²      |

Loss: mean of S(x)·E(x) over the samples kept + β Σ ω (θ − θ₀)²; no step where none is kept. Scored: the
forward pass before the update. A uniform m and a one-hot prediction have the cosine 1/√C. If ε is smaller,
every confident sample is rejected; a warning and an alarm report it.

Deviations: Fisher images are training images (official: clean test images). Gradients are averaged over a
batch before they are squared, as in the official code, for which β was chosen; the paper's ω has
batches of one. A reset clears m; in the official code it does not. Dropout and stochastic depth stay in eval
mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity
from torch.nn.utils import parameters_to_vector

from ttabench import nn as tta
from ttabench.method import Count, Natural, Needs, NonNegative, SourceData
from ttabench_methods import references
from ttabench_methods.fisher import fisher_information


@dataclass(frozen=True, slots=True, kw_only=True)
class EATAConfig(tta.NormSettings):
    """Defaults: the authors' for CIFAR-10 (batch size 64). `norms="all"` is what the SAR repository does."""

    optimizer: Literal["adam", "sgd"] = "sgd"  # "adam", or "sgd" with momentum
    lr: NonNegative = 5e-3
    e0_factor: NonNegative = 0.4  # E₀ over ln C: samples of higher entropy are unreliable
    d_margin: NonNegative = 0.4  # ε: samples whose |cos| with the average prediction reaches it are redundant
    fisher_alpha: NonNegative = 1.0
    fisher_images: Natural = 2000  # clean images for the Fisher information; 0 = all
    fisher_batch_size: Count = 64  # images per batch of the Fisher information


class EATA(tta.NormAdapter[EATAConfig]):
    """Entropy of reliable, non-redundant samples; a penalty keeps important weights near the source."""

    name = "eata"
    paper = references.EATA
    median_paper = references.MEDBN
    needs = Needs(gradient=True, source_data="images", norm_layers=("batch",))
    Config = EATAConfig
    batch_size = 64
    imagenet_vit_lr = 1e-3  # as the repositories of SAR and DeYO run it, with batches of 64
    deviations = (
        "Fisher information from training images and squared batch gradients (the official code's); a reset "
        "clears the average prediction; dropout and stochastic depth stay in eval mode"
    )
    entropy: Callable[[Tensor], Tensor] = staticmethod(tta.entropy)

    @classmethod
    def needs_of(cls, config: EATAConfig) -> Needs:
        return replace(super().needs_of(config), source_data="images" if config.fisher_alpha else "")

    @classmethod
    def for_dataset(cls, dataset: str, num_classes: int) -> Mapping[str, Any]:
        """ImageNet: official. 200 classes have no official ε; fewer than 10 keep CIFAR-10's ε·√C."""
        if num_classes >= 1000:
            return {"lr": 2.5e-4, "d_margin": 0.05, "fisher_alpha": 2000 * cls.Config().fisher_alpha}
        if num_classes >= 200:
            return {"d_margin": 0.1}
        return {"d_margin": 0.4 * math.sqrt(10 / num_classes)} if num_classes < 10 else {}

    @torch.enable_grad()
    def setup(self, source: SourceData | None) -> None:
        cfg, least_cosine = self.config, self.model.num_classes**-0.5
        self.collect()
        self.e0 = cfg.e0_factor * math.log(self.model.num_classes)
        self.average: Tensor | None = None
        if cfg.fisher_alpha:
            images = tta.source_batches(source, cfg.fisher_batch_size, cfg.fisher_images)
            self.fisher = fisher_information(self.model, list(self.parameters.values()), images)
            self.theta0 = self.theta().detach().clone()
        self.alarm = ""
        if cfg.d_margin < least_cosine:
            alarm = f"d_margin {cfg.d_margin:g} < 1/√C = {least_cosine:.3g} rejects all confident samples"
            self.alarm = tta.warn_of_setting(self.name, alarm)

    def theta(self) -> Tensor:
        """θ: all adapted parameters in one vector (P,)."""
        return parameters_to_vector(self.parameters.values())

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        h, p = self.entropy(logits), tta.widen(logits.detach()).softmax(dim=1)
        kept = self.select(h.detach(), p)
        count = int(kept.sum())
        self.counts.update(seen=len(x), kept=count)
        if count:
            self.average = tta.moving_average(self.average, tta.masked_mean(p, kept))
            weight = (self.e0 - h.detach()).exp()
            loss = tta.masked_mean(weight * h, kept)
            if self.config.fisher_alpha:
                penalty = (self.fisher * (self.theta() - self.theta0).square()).sum()
                loss = loss + self.config.fisher_alpha * penalty
            tta.minimise(loss, self.optimizer)
        return logits.detach()

    def select(self, h: Tensor, p: Tensor) -> Tensor:
        """Which samples are reliable and not redundant: (B,), (B, C) → (B,) bool."""
        reliable = h < self.e0
        if self.average is None:
            return reliable
        return reliable & (cosine_similarity(self.average[None], p, dim=1).abs() < self.config.d_margin)

    def alarms(self) -> dict[str, Any]:
        return {"alarm": self.alarm, "kept": round(self.counts["kept"] / max(1, self.counts["seen"]), 4)}
