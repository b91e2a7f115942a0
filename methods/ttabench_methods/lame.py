"""LAME: Laplacian adjusted maximum-likelihood estimation of a batch's classes (Boudiaf et al., CVPR 2022).

| symbol | name          |                                                                               |
| ------ | ------------- | ----------------------------------------------------------------------------- |
| q_i    | log_q         | softmax of the source classifier for image i of the batch                     |
| z̃_i    | log_z         | its corrected class probabilities                                             |
| φ(x_i) | features      | what enters the last linear layer, divided by its length                      |
| w_ij   | affinity      | "knn": 1 where j is among the `neighbours` nearest of i; "rbf": a Gaussian of |
|        |               | the distance, as wide as the mean distance to those; "linear": φ(x_i)·φ(x_j)  |

Minimised over the batch: Σ_i KL(z̃_i ‖ q_i) − ½ Σ_ij w_ij z̃_i·z̃_j: near the classifier's answer, and alike
where features are. Scored: the log-probabilities log z̃. Nothing is learned or remembered, and batch norm
keeps the source statistics. Meant for label-correlated streams; on i.i.d. ones it does harm.

Deviations: written from the paper alone. W is symmetrised, which the objective does not notice; the factor
½ makes the published update a minimiser's. Each step lowers the objective where W is positive semidefinite,
as with "rbf" and "linear". Which affinity and k the paper's tables use is unverified.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ttabench import nn as tta
from ttabench.method import Count, Method
from ttabench_methods import references


@dataclass(frozen=True, slots=True, kw_only=True)
class LAMEConfig:
    """neighbours: k (5: unverified). iterations: at most (100), while the objective moves."""

    affinity: Literal["knn", "rbf", "linear"] = "knn"
    neighbours: Count = 5
    iterations: Count = 100


def affinities(features: Tensor, kind: str, neighbours: int) -> Tensor:
    """W: (B, k) unit vectors → (B, B), symmetric."""
    if kind == "linear":
        return features @ features.T
    distance = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")
    others = distance + torch.diag(torch.full_like(distance[0], torch.inf))
    near = others.topk(min(neighbours, len(features) - 1), largest=False)
    if kind == "knn":
        w = torch.zeros_like(distance).scatter_(1, near.indices, 1.0)
        return (w + w.T) / 2
    width = near.values[:, -1:].mean() if near.values.numel() else distance.new_ones(())
    return (-(distance.square()) / (2 * width.square()).clamp(min=1e-12)).exp()


def objective(log_z: Tensor, log_q: Tensor, w: Tensor) -> Tensor:
    """Σ_i KL(z_i ‖ q_i) − ½ Σ_ij w_ij z_i·z_j, of log-probabilities (B, C) and affinities (B, B)."""
    z = log_z.exp()
    return (z * (log_z - log_q)).sum() - (z * (w @ z)).sum() / 2


def correct(log_q: Tensor, w: Tensor, iterations: int) -> Tensor:
    """log z̃ (B, C), by the concave-convex procedure: z_i ∝ q_i ⊙ exp(Σ_j w_ij z_j) for all i at once."""
    log_z, before = log_q, objective(log_q, log_q, w)
    for _ in range(iterations):
        log_z = torch.log_softmax(log_q + w @ log_z.exp(), dim=1)
        now = objective(log_z, log_q, w)
        if (now - before).abs() <= 1e-8 * before.abs():
            break
        before = now
    return log_z


class LAME(Method[LAMEConfig]):
    """Make the predictions of a batch agree where its features are close."""

    name = "lame"
    paper = references.LAME
    Config = LAMEConfig
    batch_size = 64
    scores = "corrected log-probabilities of the only forward pass, in eval mode"
    scores_frozen = scores
    deviations = "affinities are symmetrised; the paper's affinity is unverified"

    def adapt(self, x: Tensor) -> Tensor:
        return self.predict(x)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        features, logits = self.model.features_and_logits(x)
        phi = torch.nn.functional.normalize(tta.widen(features), dim=1)
        with torch.autocast(x.device.type, enabled=False):
            w = affinities(phi, self.config.affinity, self.config.neighbours)
            return correct(torch.log_softmax(tta.widen(logits), dim=1), w, self.config.iterations)

    def adapted(self) -> str:
        return "the predictions of each batch"
