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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ttabench.method import Architecture, Method, Needs, Paper, SourceData
from ttabench.nn import (
    describe,
    entropy,
    make_optimizer,
    minimise,
    norm_affine,
    norm_needs,
    use_batch_statistics,
)


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


class Tent(Method[TentConfig]):
    """Minimise the mean entropy of each batch over the affine parameters of the norm layers."""

    name = "tent"
    paper = Paper(
        key="wang2021tent",
        title="Tent: Fully Test-Time Adaptation by Entropy Minimization",
        authors="Wang, Dequan and Shelhamer, Evan and Liu, Shaoteng and Olshausen, Bruno and Darrell, Trevor",
        venue="ICLR",
        year=2021,
        url="https://arxiv.org/abs/2006.10726",
    )
    needs = Needs(gradient=True, norm_layers=("batch",))
    Config = TentConfig
    deviations = "dropout and stochastic depth stay in eval mode"

    @classmethod
    def needs_of(cls, config: TentConfig) -> Needs:
        return Needs(gradient=True, norm_layers=norm_needs(config.norms, config.statistics))

    @classmethod
    def for_architecture(cls, arch: Architecture) -> Mapping[str, Any]:
        return {} if "batch" in arch.norm_layers else {"norms": "all"}

    def setup(self, source: SourceData | None) -> None:
        use_batch_statistics(self.model, self.config.statistics)
        self.parameters = norm_affine(self.model, self.config.norms)
        self.optimizer = make_optimizer(
            self.config.optimizer, self.parameters.values(), self.config.lr, self.config.momentum
        )

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        for _ in range(self.config.steps):
            logits: Tensor = self.model(x)
            minimise(entropy(logits).mean(), self.optimizer)
        return logits.detach()

    def adapted(self) -> str:
        return describe(self.model, self.parameters)
