"""ASR: ETA with adaptive and selective resets (Lim et al., ICLR 2026).

| symbol | name           |                                                                              |
| ------ | -------------- | ---------------------------------------------------------------------------- |
| C_t    | concentration  | entropy of the softmax of the batch's mean logits: low when few classes win  |
| C̄      | usual          | its average, C̄ ← μ C̄ + (1 − μ) C_t; after a reset ln(α₀ C), for C classes    |
| φ_t    | disagreement   | share of the batch that the source network predicts differently              |
| μ      | momentum_now   | 1 − μ₀ + μ₀ φ_t, with μ₀ = `adaptivity`                                      |
| λ      | strength       | λ₀ φ²_{t−1}, with λ₀ = `penalty`: weight of the regulariser                  |
| r      | kept_share     | max(r₀ − r₁ (C̄ − C_t), 0): share of the parameters, from the input on, that  |
|        |                | a reset leaves; r₀ = `keep`, r₁ = `keep_slope`                               |
| F      | importance     | squared gradients: the mean from reset to reset, averaged over resets        |
| θ̄      | centre         | the same of the parameters                                                   |

A reset comes where C_t < C̄: parameters near the output go back to the source, the optimiser and ETA's average
prediction start anew. The loss is ETA's, plus λ Σ F (θ − θ̄)² once there was a reset. Filters and scored
forward pass are ETA's: see `eata`.

Deviations: those of `eta`. ROID, the paper's other host, is not here, nor the window that the official code
has for batches of one image. The official settings differ by network and by difficulty of CCC: here those of
ResNet-50, and with 1,000 classes and neither batch nor group norm those of ViT-B on CCC's medium and easy
streams.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from ttabench import nn as tta
from ttabench.method import Architecture, NonNegative, Positive, SourceData, UnitInterval
from ttabench_methods import references
from ttabench_methods.eta import ETA, ETAConfig

RESETS_MOMENTUM = 0.9  # of importance and centre, over resets


@dataclass(frozen=True, slots=True, kw_only=True)
class ASRConfig(ETAConfig):
    """ETA's, and the official settings for ResNet-50."""

    adaptivity: UnitInterval = 0.15  # μ₀: largest weight of a batch in the average concentration C̄
    penalty: NonNegative = 5.0  # λ₀: weight of the regulariser, times squared disagreement with the source
    start: Positive = 0.5  # α₀: C̄ starts at ln(α₀ C), for C classes
    keep: UnitInterval = 0.5  # r₀: largest share of the parameters, from the input on, that a reset leaves
    keep_slope: NonNegative = 20.0  # r₁: how fast this share falls as predictions concentrate


def concentration(logits: Tensor) -> float:
    """C_t of logits (B, C)."""
    return tta.entropy(tta.widen(logits).mean(dim=0, keepdim=True)).item()


class ASR(ETA):
    """Entropy of reliable samples; a reset comes when predictions concentrate on few classes."""

    name = "asr"
    paper = references.ASR
    Config = ASRConfig
    imagenet_vit_lr = 0.0  # the official code has one rate for all networks
    restores = "the parameters near the output, when predictions concentrate on few classes"
    deviations = (
        "host ETA alone (paper: ROID too); settings of ViT-B are those of CCC's medium and easy streams; "
        "without batch norm, all norm layers are adapted; dropout and stochastic depth stay in eval mode"
    )

    config: ASRConfig

    @classmethod
    def for_architecture(cls, arch: Architecture) -> Mapping[str, Any]:
        """ViT-B: official, for 1,000 classes."""
        settings = super().for_architecture(arch)
        if arch.num_classes < 1000 or {"batch", "group"} & set(arch.norm_layers):
            return settings
        return {**settings, "adaptivity": 0.99, "start": 0.005, "keep_slope": 50.0}

    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        self.source = copy.deepcopy(self.model).requires_grad_(False)
        self.origin = tta.snapshot(self.parameters)
        self.importance: Tensor | None = None
        self.centre: Tensor | None = None
        self.strength = 0.0
        self.begin()

    def begin(self) -> None:
        """What a reset starts anew, besides parameters and optimiser."""
        self.average = None
        self.usual = math.log(self.config.start * self.model.num_classes)
        self.batches = 0
        self.squares = torch.zeros_like(self.theta().detach())
        self.places = torch.zeros_like(self.squares)

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        self.learn(logits)
        scored = logits.detach()
        self.watch(x, scored)
        return scored

    def learn(self, logits: Tensor) -> None:
        """A step on ETA's loss and the regulariser; squared gradients and parameters are summed up."""
        h, p = self.entropy(logits), tta.widen(logits.detach()).softmax(dim=1)
        kept = self.select(h.detach(), p)
        count = int(kept.sum())
        self.counts.update(seen=len(logits), kept=count)
        self.batches += 1
        theta = self.theta().detach().clone()
        self.places += theta
        if not count:
            return
        self.average = tta.moving_average(self.average, tta.masked_mean(p, kept))
        loss = tta.masked_mean((self.e0 - h.detach()).exp() * h, kept)
        self.optimizer.zero_grad(set_to_none=False)
        torch.autograd.backward(loss)
        gradients = [torch.zeros_like(q) if q.grad is None else q.grad for q in self.parameters.values()]
        gradient = parameters_to_vector(gradients)
        self.squares += gradient.square()
        if self.importance is not None and self.centre is not None:
            gradient = gradient + 2 * self.strength * self.importance * (theta - self.centre)
        parts = torch.split(gradient, [q.numel() for q in self.parameters.values()])
        for q, part in zip(self.parameters.values(), parts, strict=True):
            q.grad = part.view_as(q).clone()
        self.optimizer.step()

    @torch.no_grad()
    def watch(self, x: Tensor, logits: Tensor) -> None:
        """Reset, or move C̄, after a batch (B, 3, H, W) with these logits (B, C)."""
        cfg, now = self.config, concentration(logits)
        disagreement = (self.source(x).argmax(1) != logits.argmax(1)).float().mean().item()
        self.strength = cfg.penalty * disagreement**2
        if now < self.usual:
            self.consolidate()
            self.restart(max(cfg.keep - cfg.keep_slope * (self.usual - now), 0.0))
        else:
            momentum_now = cfg.adaptivity * disagreement + 1 - cfg.adaptivity
            self.usual = momentum_now * self.usual + (1 - momentum_now) * now

    def consolidate(self) -> None:
        """F and θ̄: means over the batches since the last reset, averaged over resets."""
        squares, places = self.squares / self.batches, self.places / self.batches
        self.importance = tta.moving_average(self.importance, squares, RESETS_MOMENTUM)
        self.centre = tta.moving_average(self.centre, places, RESETS_MOMENTUM)

    def restart(self, kept_share: float) -> None:
        """All but the first `kept_share` of the parameters are the source's again; the optimiser is new."""
        self.counts["resets"] += 1
        names = list(self.parameters)
        back = {name: self.parameters[name] for i, name in enumerate(names) if i >= kept_share * len(names)}
        self.counts["reset_parameters"] += len(back)
        tta.pull(back, self.origin)
        self.optimizer.state.clear()
        self.begin()

    def alarms(self) -> dict[str, object]:
        return {**super().alarms(), "resets": self.counts["resets"]}
