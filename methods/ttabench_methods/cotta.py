"""CoTTA: continual adaptation by a mean teacher and stochastic restoration (Wang et al., CVPR 2022).

| symbol | name      |                                                                                  |
| ------ | --------- | -------------------------------------------------------------------------------- |
| θ      | student   | trained: every parameter called weight or bias                                   |
| θ′     | model     | the teacher: θ′ ← α θ′ + (1 − α) θ                                               |
| θ₀     | anchor    | the source model                                                                 |
| N      | views     | augmented views (`cotta_views`) that the teacher averages its logits over        |
| p_th   | threshold | views are used only if the anchor's mean confidence is below p_th                |
| α      | smoothing | momentum of the moving average θ′                                                |
| p      | restore   | probability that a weight goes back to the source after a step                   |

Batch norm uses the statistics of the current batch or view in all three nets.
Scored: the teacher's logits, averaged or not, before the update.

Deviations: views are drawn only where they are used; with `official_quirks=True` for every batch, as in the
official CIFAR code, which changes later random draws. The loss is symmetric on ImageNet, as in the
official code for it; the paper has no such form (`symmetric=False`). Dropout stays off.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ttabench import nn as tta
from ttabench.method import Count, Method, Momentum, Needs, NonNegative, SourceData, UnitInterval
from ttabench_methods import references
from ttabench_methods.cotta_views import View, random_view
from ttabench_methods.view_average import average_over_views


@dataclass(frozen=True, slots=True, kw_only=True)
class CoTTAConfig:
    """Defaults: the official CIFAR-10-C configuration (batch size 200)."""

    optimizer: Literal["adam", "sgd"] = "adam"  # optimiser of the student; official for ImageNet: sgd
    lr: NonNegative = 1e-3  # learning rate
    momentum: Momentum = 0.9  # momentum of SGD, β₁ of Adam
    smoothing: UnitInterval = 0.999
    restore: UnitInterval = 0.01
    threshold: NonNegative = 0.92  # views are used below this confidence of the anchor; above 1: always
    views: Count = 32
    symmetric: bool = False  # symmetric cross-entropy, official for ImageNet; the paper has no such form
    official_quirks: bool = False  # views are drawn for every batch, also where they are not used


class CoTTA(Method[CoTTAConfig]):
    """Learn from a slow, augmentation-averaged teacher; restore a few random weights after each step."""

    name = "cotta"
    paper = references.COTTA
    needs = Needs(gradient=True)
    Config = CoTTAConfig
    imagenet_batch_size = 64
    scores = "the teacher's forward pass, or its mean over views, before the update"
    scores_frozen = "the teacher's forward pass after all updates"
    restores = "a random share of the student's weights after every step"
    deviations = (
        "views are drawn only where they are used (official_quirks: always); symmetric loss on ImageNet"
    )

    view: View = staticmethod(random_view)

    @classmethod
    def for_dataset(cls, dataset: str, num_classes: int) -> Mapping[str, Any]:
        """CIFAR-100 and ImageNet: official. 200 classes have no official p_th and keep CIFAR-100's."""
        if num_classes >= 1000:
            return {"optimizer": "sgd", "lr": 0.01, "restore": 0.001, "threshold": 0.1, "symmetric": True}
        return {"threshold": 0.72} if num_classes >= 100 else {}

    def setup(self, source: SourceData | None) -> None:
        cfg = self.config
        tta.use_batch_statistics(self.model)
        self.anchor = copy.deepcopy(self.model)
        self.student = copy.deepcopy(self.model)
        self.parameters = {
            name: parameter
            for name, parameter in self.student.named_parameters()
            if name.rpartition(".")[2] in ("weight", "bias")
        }
        for parameter in self.parameters.values():
            parameter.requires_grad_(True)
        self.optimizer = tta.make_optimizer(cfg.optimizer, self.parameters.values(), cfg.lr, cfg.momentum)

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        target = self.pseudo_labels(x)
        logits = self.student(x)
        loss = tta.soft_cross_entropy(logits, target)
        if self.config.symmetric:
            loss = (loss + tta.soft_cross_entropy(target, logits)) / 2
        tta.minimise(loss.mean(), self.optimizer)
        tta.average_parameters(self.model, self.student, self.config.smoothing)
        self.restore_weights()
        return target

    @torch.no_grad()
    def pseudo_labels(self, x: Tensor) -> Tensor:
        """The teacher's logits (B, C), averaged over views if the anchor is uncertain."""
        confidence = tta.widen(self.anchor(x)).softmax(1).amax(1).mean()
        if confidence < self.config.threshold:
            return average_over_views(self.model, x, self.view, self.config.views)
        if self.config.official_quirks:
            for _ in range(self.config.views):
                self.view(x)
        return self.predict(x)

    @torch.no_grad()
    def restore_weights(self) -> None:
        """θ ← M ⊙ θ₀ + (1 − M) ⊙ θ, M ~ Bernoulli(p) element by element."""
        if self.config.restore:
            theta0 = dict(self.anchor.named_parameters())
            for name, theta in self.parameters.items():
                torch.where(self.draw_mask(theta), theta0[name], theta, out=theta)

    def draw_mask(self, parameter: Tensor) -> Tensor:
        return torch.rand(parameter.shape, device=parameter.device) < self.config.restore

    def adapted(self) -> str:
        return tta.describe(self.student, self.parameters)
