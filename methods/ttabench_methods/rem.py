"""REM: entropy keeps its rank as more of the object is masked (Han et al., ICML 2025).

| symbol    | name     |                                                                                    |
| --------- | -------- | ---------------------------------------------------------------------------------- |
| m_i       | share    | of the tokens that are masked at level i: i · `mask_step`, i = 0 … `levels` − 1     |
| p_i       | chain    | prediction without the m_i tokens that the class token attends to most, in the last |
|           |          | block and averaged over heads                                                      |
| H_i       | entropy  | of p_i                                                                             |
| L_MCL     | agree    | Σ_{i > j} cross-entropy of p_i with the target p_j: masked predictions follow       |
| L_ERL     | ranked   | Σ_{i < j} max(H_i − H_j + margin, 0): less masked, more certain                    |
| λ         | ranking  | weight of L_ERL                                                                    |

Targets, and the entropy H_j, have no gradient. Loss: L_MCL + λ L_ERL, means over the batch. Adapted: layer
norm but the top ones (`nn.top_norms`). Scored: the forward pass without masks, before the update.

Deviations: the top layers are found by structure, in the official code by the names of ViT-B. Masked tokens
are left out before the first block, as in the official code; the paper speaks of masked images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from ttabench import nn as tta
from ttabench.method import Needs, NonNegative, Range, SourceData, UnitInterval
from ttabench_methods import references
from ttabench_methods.tokens import ClassAttention, KeptTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class REMConfig(tta.NormSettings):
    """Defaults: the official configuration for CIFAR-10-C (batch size 20) and ImageNet-C (50)."""

    norms: Literal["batch", "all"] = "all"
    levels: Annotated[int, Range(least=2)] = 3  # predictions per batch, with the one that sees all tokens
    mask_step: UnitInterval = 0.1  # share of the tokens that each level masks further
    ranking: NonNegative = 1.0  # λ: weight of the ranking loss
    margin: NonNegative = 0.0  # margin of the ranking loss, in units of ln C


def ranked(entropies: list[Tensor], margin: float) -> Tensor:
    """L_ERL of entropies (B,) from the least to the most masked: a scalar."""
    pairs = [(h, more) for i, h in enumerate(entropies) for more in entropies[i + 1 :]]
    return sum(
        ((h - more.detach() + margin).clamp_min(0).mean() for h, more in pairs),
        start=torch.zeros_like(entropies[0][0]),
    )


def agree(chain: list[Tensor]) -> Tensor:
    """L_MCL of logits (B, C) from the least to the most masked: a scalar."""
    pairs = [(logits, target) for i, logits in enumerate(chain) for target in chain[:i]]
    return sum(
        (tta.soft_cross_entropy(logits, target.detach()).mean() for logits, target in pairs),
        start=torch.zeros_like(tta.widen(chain[0][0, 0])),
    )


class REM(tta.NormAdapter[REMConfig]):
    """Predictions on masked images follow those on whole ones, and are less certain."""

    name = "rem"
    paper = references.REM
    needs = Needs(
        gradient=True,
        norm_layers=("layer",),
        tags=("transformer", "class_token"),
        rules_out=("no_room_for_prompts",),
    )
    Config = REMConfig
    batch_size = 20
    imagenet_batch_size = 50
    deviations = (
        "the layers that are not adapted are found by structure; tokens are masked as in the official code "
        "(paper: images); dropout and stochastic depth stay in eval mode"
    )

    @classmethod
    def needs_of(cls, config: REMConfig) -> Needs:
        return cls.needs

    def setup(self, source: SourceData | None) -> None:
        self.collect(skip=tta.top_norms(self.model))

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        with ClassAttention(self.model) as attention:
            logits: Tensor = self.model(x)
        chain = [logits, *(self.masked(x, attention.scores, i) for i in range(1, self.config.levels))]
        tta.minimise(self.loss(chain), self.optimizer)
        return logits.detach()

    def masked(self, x: Tensor, scores: Tensor, level: int) -> Tensor:
        """Logits (B, C) without the tokens of the highest scores (B, N)."""
        count = max(1, int(scores.shape[1] * (1 - level * self.config.mask_step)))
        kept = scores.topk(count, dim=1, largest=False).indices
        with KeptTokens(self.model, kept):
            logits: Tensor = self.model(x)
        return logits

    def loss(self, chain: list[Tensor]) -> Tensor:
        margin = self.config.margin * math.log(self.model.num_classes)
        entropies = [tta.entropy(logits) for logits in chain]
        return agree(chain) + self.config.ranking * ranked(entropies, margin)
