"""TENT: fully test-time adaptation by entropy minimisation.

Wang, Shelhamer, Liu, Olshausen, Darrell. ICLR 2021, https://arxiv.org/abs/2006.10726

| symbol | name       |                                                                        |
| ------ | ---------- | ---------------------------------------------------------------------- |
| μ, σ   | statistics | of the test batch, in every forward pass                               |
| γ, β   | norms      | affine parameters of the normalisation layers; nothing else is learned |
| H(ŷ)   | entropy    | −Σ p log p of the softmax, natural logarithm; the loss is its mean     |

Scored: the forward pass before the (last) update, as in the official code and the published version.

Deviations: dropout and stochastic depth stay in eval mode (the official code puts the whole model in train
mode). Without batch norm, all norm layers are adapted, as in the official code of SAR; its learning rate for
vision transformers on ImageNet, 0.001 · B/64 for batches of B images, is used with B = 64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ttabench.method import Count, Needs, SourceData
from ttabench.nn import NormAdapter, NormSettings, entropy, minimise
from ttabench_methods import references


@dataclass(frozen=True, slots=True, kw_only=True)
class TentConfig(NormSettings):
    """Defaults: the official CIFAR-10-C configuration (batch size 200).

    norms       "batch", as in the paper, or "all" norm layers.
    statistics  "batch", or "median" for MedBN.
    steps       updates per batch.
    """

    steps: Count = 1


class Tent(NormAdapter[TentConfig]):
    """Minimise the mean entropy of each batch over the affine parameters of the norm layers."""

    name = "tent"
    paper = references.TENT
    median_paper = references.MEDBN
    needs = Needs(gradient=True, norm_layers=("batch",))
    Config = TentConfig
    imagenet_batch_size = 64
    imagenet_vit_lr = 1e-3  # as the repositories of SAR and DeYO run it
    deviations = "dropout and stochastic depth stay in eval mode"
    entropy: Callable[[Tensor], Tensor] = staticmethod(entropy)

    @classmethod
    def for_dataset(cls, dataset: str, num_classes: int) -> Mapping[str, Any]:
        """ImageNet: the paper's."""
        return {"optimizer": "sgd", "lr": 2.5e-4} if num_classes >= 1000 else {}

    def setup(self, source: SourceData | None) -> None:
        self.collect()

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        for _ in range(self.config.steps):
            logits: Tensor = self.model(x)
            minimise(self.entropy(logits).mean(), self.optimizer)
        return logits.detach()
