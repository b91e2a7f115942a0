"""ROID: weight ensembling, diversity weighting and prior correction (Marsden et al., WACV 2024).

| symbol  | name       |                                                                               |
| ------- | ---------- | ----------------------------------------------------------------------------- |
| L_SLR   | slr        | soft likelihood ratio: −Σ_c ŷ_c log(ŷ_c / (1 − ŷ_c)), ŷ clipped at `clip`     |
| ȳ       | average    | moving average (`average_momentum`) of the mean softmax, uniform at first     |
| w_div   | diversity  | 1 − cos(ȳ, ŷ), scaled to 0 … 1 over the batch                                 |
| w_cert  | certainty  | −H(ŷ), scaled to 0 … 1 over the batch                                         |
| w       | weight     | exp(w_div · w_cert / τ); 0 where w_div is below its mean                      |
| τ       | temperature |                                                                              |
| α       | ensemble   | θ ← α θ + (1 − α) θ₀ after every step                                         |
| p̄, γ    | prior      | mean softmax of the batch, smoothed by γ = max(1/B, 1/C) / max p̄              |

Loss: (Σ w · L_SLR + Σ w · symmetric cross-entropy with one view of the image) / B, the view's sum over the
images with w > 0. Adapted: affine parameters of the norm layers. Scored: the forward pass before the update,
times the smoothed prior.

Deviations: the prior multiplies probabilities, as in Bayes' rule, and B is the number of images in the
current batch. With `official_quirks=True`, as in the official code, the prior multiplies logits, and the loss
of a short batch is divided by the size of the largest batch so far. If a weight is constant in a batch (one
image), it is 1; the official code divides by 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from ttabench import nn as tta
from ttabench.method import Needs, Positive, Range, SourceData, UnitInterval
from ttabench_methods import references
from ttabench_methods.roid_views import reflected_view


@dataclass(frozen=True, slots=True, kw_only=True)
class ROIDConfig(tta.NormSettings):
    """Defaults: the official CIFAR configuration (batch size 200)."""

    norms: Literal["batch", "all"] = "all"
    average_momentum: UnitInterval = 0.9  # momentum of the average prediction ȳ
    temperature: Positive = 1 / 3  # τ, in the weight of an image
    clip: Annotated[float, Range(above=0, below=1)] = 0.99  # largest ŷ in the soft likelihood ratio
    ensemble: UnitInterval = 0.99
    consistency: bool = True  # add the cross-entropy with a view of the image
    prior_correction: bool = True  # multiply predictions by the smoothed prior
    official_quirks: bool = False  # the prior multiplies logits; short batches count less


def slr(p: Tensor, clip: float) -> Tensor:
    """Soft likelihood ratio of softmax outputs: (B, C) → (B,). Beyond `clip` there is no gradient."""
    p = p.clamp(0, clip)
    return -(p * (p / (1 - p) + 1e-5).log()).sum(dim=1)


def unit_range(values: Tensor) -> Tensor:
    """Scaled to 0 … 1 over the batch; 1 where all are the same: (B,) → (B,)."""
    low, high = values.aminmax()
    return torch.where(high > low, (values - low) / (high - low), 1)


def weights(p: Tensor, average: Tensor, temperature: float) -> Tensor:
    """w of softmax outputs (B, C), given their moving average (C,): (B,)."""
    diversity = unit_range(1 - cosine_similarity(average[None], p, dim=1))
    certainty = unit_range(torch.special.entr(p).sum(dim=1).neg())
    return (diversity * certainty / temperature).exp().where(diversity >= diversity.mean(), 0)


def smoothed_prior(p: Tensor) -> Tensor:
    """(p̄ + γ) / (1 + γ C) of softmax outputs (B, C): (C,), sums to 1."""
    prior = p.mean(dim=0)
    gamma = max(1 / len(p), 1 / p.shape[1]) / prior.max()
    return (prior + gamma) / (1 + gamma * p.shape[1])


class ROID(tta.NormAdapter[ROIDConfig]):
    """Self-training on certain, diverse samples; weight ensembling keeps the weights near the source."""

    name = "roid"
    paper = references.ROID
    needs = Needs(gradient=True, norm_layers=("batch", "group", "layer", "instance"))
    Config = ROIDConfig
    imagenet_batch_size = 64
    scores = "the forward pass before the update, corrected by the prior"
    scores_frozen = "a forward pass after all updates, corrected by the prior"
    restores = "a part of what it learned, after every step"
    deviations = (
        "the prior multiplies probabilities (official_quirks: logits); the loss of a short batch is divided "
        "by its own size (official_quirks: by the full size)"
    )
    view: Callable[[Tensor], Tensor] = staticmethod(reflected_view)

    @classmethod
    def for_dataset(cls, dataset: str, num_classes: int) -> Mapping[str, Any]:
        """ImageNet: official (batch size 64)."""
        return {"optimizer": "nesterov", "lr": 2.5e-4} if num_classes >= 1000 else {}

    def setup(self, source: SourceData | None) -> None:
        self.collect()
        self.theta0 = tta.snapshot(self.parameters)
        self.average = torch.full_like(self.model.linear.weight[:, 0], 1 / self.model.num_classes)
        self.full = 0  # images in the largest batch so far

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        tta.minimise(self.loss(x, logits), self.optimizer)
        self.pull_back()
        return self.correct(logits.detach())

    def loss(self, x: Tensor, logits: Tensor) -> Tensor:
        """The loss of a batch (B, 3, H, W) with these logits (B, C): a scalar. Moves ȳ."""
        p = tta.widen(logits).softmax(dim=1)
        w = weights(p.detach(), self.average, self.config.temperature)
        self.average = tta.moving_average(self.average, p.mean(dim=0), self.config.average_momentum)
        self.full = max(self.full, len(x))
        loss = (w * slr(p, self.config.clip)).sum()
        if self.config.consistency:
            kept = (w > 0).nonzero().squeeze(1)  # positions, since each boolean mask makes a GPU wait
            image_logits, view_logits = logits[kept], self.model(self.view(x[kept]))
            symmetric = (
                tta.soft_cross_entropy(view_logits, image_logits)
                + tta.soft_cross_entropy(image_logits, view_logits)
            ) / 2
            loss = loss + (w[kept] * symmetric).sum()
        return loss / (self.full if self.config.official_quirks else len(x))

    def pull_back(self) -> None:
        """Weight ensembling: θ ← α θ + (1 − α) θ₀."""
        tta.pull(self.parameters, self.theta0, 1 - self.config.ensemble)

    def correct(self, logits: Tensor) -> Tensor:
        """Logits (B, C) weighted by the batch's own prior."""
        if not self.config.prior_correction:
            return logits
        prior = smoothed_prior(tta.widen(logits).softmax(dim=1))
        return logits * prior if self.config.official_quirks else logits + prior.log()

    def predict(self, x: Tensor) -> Tensor:
        return self.correct(super().predict(x))
