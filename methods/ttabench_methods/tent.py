"""TENT: fully test-time adaptation by entropy minimisation.

Wang, Shelhamer, Liu, Olshausen, Darrell. ICLR 2021, https://arxiv.org/abs/2006.10726

| symbol | name       |                                                                        |
| ------ | ---------- | ---------------------------------------------------------------------- |
| μ, σ   | statistics | of the test batch, in every forward pass                               |
| γ, β   | norms      | affine parameters of the normalisation layers: all that is learned     |
| H(ŷ)   | entropy    | −Σ p log p of the softmax, natural logarithm; the loss is its mean     |

Scored: the forward pass before the (last) update, as in the official code and the published version.

Deviations: dropout and stochastic depth stay in eval mode (the official code puts the whole model in
train mode). Where there is no batch norm, all norm layers are adapted, as the official code of SAR does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ttabench.method import Needs, SourceData
from ttabench.nn import NormAdapter, entropy, minimise, require_positive
from ttabench_methods import references


@dataclass(frozen=True, slots=True, kw_only=True)
class TentConfig:
    """Defaults: the official CIFAR-10-C configuration (batch size 200).

    norms       "batch", as in the paper, or "all" norm layers.
    statistics  "batch", or "median" for MedBN.
    steps       updates per batch, ≥ 1.
    """

    norms: Literal["batch", "all"] = "batch"
    statistics: Literal["batch", "median"] = "batch"
    optimizer: Literal["adam", "sgd"] = "adam"
    lr: float = 1e-3
    momentum: float = 0.9
    steps: int = 1

    def __post_init__(self) -> None:
        require_positive(self, "steps")


class Tent(NormAdapter[TentConfig]):
    """Minimise the mean entropy of each batch over the affine parameters of the norm layers."""

    name = "tent"
    paper = references.TENT
    needs = Needs(gradient=True, norm_layers=("batch",))
    Config = TentConfig
    deviations = "dropout and stochastic depth stay in eval mode"

    def setup(self, source: SourceData | None) -> None:
        self.collect()

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        for _ in range(self.config.steps):
            logits: Tensor = self.model(x)
            minimise(entropy(logits).mean(), self.optimizer)
        return logits.detach()
