"""RoTTA: for correlated streams in a changing domain (Yuan et al., CVPR 2023).

| symbol   | name               |                                                                          |
| -------- | ------------------ | ------------------------------------------------------------------------ |
| θ_S      | student            | trained: affine parameters of batch norm                                 |
| θ_T      | model              | the teacher: θ_T ← (1 − ν) θ_T + ν θ_S                                   |
| α        | alpha              | robust batch norm: (μ, σ²) ← (1 − α)·(μ, σ²) + α·(the batch's)           |
| N        | capacity           | images in the memory (CSTU: classes balanced, by age and uncertainty)    |
| λ_t, λ_u | lambda_t, lambda_u | weights of age and uncertainty in the score of memory items              |
| A        | age                | arrivals since an item entered the memory, over N                        |
| ν        | nu                 | share of the student in the teacher's update                             |

After every `update_every` arrivals, also within a batch, the student takes one step on a random view of the
memory. Both nets run on it in train mode and update their running statistics; all other passes use these.
Scored: the teacher's forward pass in eval mode, before the batch enters the memory.

Deviations: none; dropout stays off. Batch norm only, as the authors have confirmed.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ttabench import nn as tta
from ttabench.method import Count, Method, Momentum, Needs, NonNegative, SourceData, UnitInterval
from ttabench_methods import references
from ttabench_methods.cotta_views import View, random_view
from ttabench_methods.memory import CSTU, Item


@dataclass(frozen=True, slots=True, kw_only=True)
class RoTTAConfig:
    """Defaults: the official configuration for CIFAR-10-C and CIFAR-100-C (batch size 64)."""

    optimizer: Literal["adam", "sgd"] = "adam"  # optimiser of the student
    lr: NonNegative = 1e-3  # learning rate
    momentum: Momentum = 0.9  # momentum of SGD, β₁ of Adam
    alpha: UnitInterval = 0.05
    nu: UnitInterval = 0.001
    capacity: Count = 64
    update_every: Count = 64  # images of the stream between two updates
    lambda_t: NonNegative = 1.0
    lambda_u: NonNegative = 1.0


def timeliness(age: Tensor) -> Tensor:
    """Weight e^(−A) / (1 + e^(−A)) of items of age A in the loss: (n,) → (n,)."""
    return torch.exp(-age) / (1 + torch.exp(-age))


class RoTTA(Method[RoTTAConfig]):
    """A student learns from a slow teacher on a balanced, recent memory; robust batch-norm statistics."""

    name = "rotta"
    paper = references.ROTTA
    needs = Needs(gradient=True, norm_layers=("batch",))
    Config = RoTTAConfig
    batch_size = 64
    scores = "the teacher's forward pass in eval mode, before the batch enters the memory"
    scores_frozen = "the teacher's forward pass in eval mode, after all updates"

    view: View = staticmethod(random_view)

    def setup(self, source: SourceData | None) -> None:
        cfg = self.config
        tta.adapt_batch_norm(self.model, weight=cfg.alpha, track=True)
        self.student = copy.deepcopy(self.model)
        self.parameters = tta.norm_affine(self.student, "batch")
        self.optimizer = tta.make_optimizer(cfg.optimizer, self.parameters.values(), cfg.lr, cfg.momentum)
        self.memory = CSTU(cfg.capacity, self.model.num_classes, cfg.lambda_t, cfg.lambda_u)
        self.arrived = 0

    def adapt(self, x: Tensor) -> Tensor:
        logits = self.predict(x)
        labels, uncertainties = logits.argmax(1).tolist(), tta.stabilised_entropy(logits).tolist()
        for image, label, uncertainty in zip(x, labels, uncertainties, strict=True):
            self.memory.insert(Item(image.clone(), self.arrived, uncertainty), label)
            self.arrived += 1
            if self.arrived % self.config.update_every == 0:
                self.update()
        return logits

    @torch.enable_grad()
    def update(self) -> None:
        """One step of the student on the memory, then the teacher follows."""
        items = self.memory.items()
        images = torch.stack([item.image for item in items])
        age = torch.tensor([self.arrived - item.arrival for item in items], device=images.device)
        for net in (self.model, self.student):
            tta.set_norm_mode(net, train=True)
        with torch.no_grad():
            target = self.model(images)
        logits = self.student(self.view(images))
        loss = timeliness(age / self.config.capacity) * tta.soft_cross_entropy(logits, target)
        tta.minimise(loss.mean(), self.optimizer)
        for net in (self.model, self.student):
            tta.set_norm_mode(net, train=False)
        tta.average_parameters(self.model, self.student, 1 - self.config.nu)

    def adapted(self) -> str:
        return tta.describe(self.student, self.parameters)
