"""NEO: features are re-centred by their running mean on the target, without optimisation (ICLR 2026).

| symbol | name    |                                                                          |
| ------ | ------- | ------------------------------------------------------------------------ |
| z      | z       | features: the input of the last linear layer                             |
| m      | mean    | mean of all target features so far, those of the batch included          |
| W, b   | –       | the last linear layer: logits = W (z − m) + b                            |
| α      | alpha   | form "continual": m ← (1 − α) m + α · mean of the batch's z, from m = 0  |

The global mean of the source's features is assumed to be 0, so no source data are needed. Scored: the only
forward pass, with features centred by the m that includes the batch. There are no gradients; the network does
not change, and batch norm keeps the source statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ttabench import nn as tta
from ttabench.method import Method, SourceData, UnitInterval
from ttabench_methods import references


@dataclass(frozen=True, slots=True, kw_only=True)
class NEOConfig:
    """Defaults: the official code's.

    form  "cumulative", or "continual" for domains that change, with `alpha`.
    """

    form: Literal["cumulative", "continual"] = "cumulative"
    alpha: UnitInterval = 0.1


class NEO(Method[NEOConfig]):
    """Subtract the target's mean feature."""

    name = "neo"
    paper = references.NEO
    Config = NEOConfig
    family = "alignment"
    batch_size = 64
    scores = "the only forward pass, features centred by a mean that includes the batch"
    scores_frozen = "a forward pass, features centred by the mean of all batches"
    deviations = 'none; in the form "cumulative" each image has the same weight, in "continual" each batch'

    def setup(self, source: SourceData | None) -> None:
        weight = tta.widen(self.model.linear.weight.detach())
        self.mean = weight.new_zeros(self.model.num_features)
        self.seen = 0

    @torch.no_grad()
    def adapt(self, x: Tensor) -> Tensor:
        z = self.model.features(x)
        self.seen += len(z)
        share = self.config.alpha if self.config.form == "continual" else len(z) / self.seen
        self.mean = self.mean.lerp(tta.widen(z).mean(dim=0).to(self.mean), share)
        return self.centred(z)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        return self.centred(self.model.features(x))

    def centred(self, z: Tensor) -> Tensor:
        """W (z − m) + b: (B, k) → (B, C)."""
        return self.model.head((tta.widen(z) - self.mean).to(z.dtype))

    def adapted(self) -> str:
        return f"the mean of the features ({len(self.mean):,} numbers)"
