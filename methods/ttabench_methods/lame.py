"""LAME: Laplacian adjusted maximum-likelihood estimation of a batch's classes (Boudiaf et al., CVPR 2022).

| symbol | name          |                                                                               |
| ------ | ------------- | ----------------------------------------------------------------------------- |
| q_i    | log_q         | softmax of the source classifier for image i of the batch, plus 10⁻¹⁰         |
| z̃_i    | log_z         | its corrected class probabilities                                             |
| φ(x_i) | features      | what enters the last linear layer, divided by its length                      |
| w_ij   | affinity      | "rbf": exp(−d_ij² / 2σ²), σ the mean distance to the k-th nearest image,      |
|        |               | counting the image itself; "knn": 1 where j is among the k nearest other      |
|        |               | images of i, else 0; "linear": φ(x_i)·φ(x_j). d_ij = ‖φ(x_i) − φ(x_j)‖         |
| k      | neighbours    |                                                                               |
| λ      | bound         | weight of the affinities                                                      |

Minimised over the batch: Σ_i KL(z̃_i ‖ q_i) − ½ λ Σ_ij w_ij z̃_i·z̃_j. The first term keeps z̃ near the
classifier's output; the second makes it similar for similar features. The concave-convex procedure updates
all i at once: z̃_i ∝ q_i ⊙ exp(λ Σ_j w_ij z̃_j) (with the ½ this minimises the objective for symmetric W).
Scored: the log-probabilities log z̃. Nothing is learned or kept, and batch norm keeps the source statistics.
LAME is made for label-correlated streams; on i.i.d. streams it lowers the accuracy.

Deviations: none. Where the paper is silent, this follows the official code: "rbf" as affinity, k = 5,
affinities that are not made symmetric (`symmetric=True` takes (W + Wᵀ)/2), the diagonal of "rbf" and "linear"
kept, and the end of the iteration (see `correct`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ttabench import nn as tta
from ttabench.method import Count, Method, NonNegative
from ttabench_methods import references


@dataclass(frozen=True, slots=True, kw_only=True)
class LAMEConfig:
    """Defaults: the official code's."""

    affinity: Literal["knn", "rbf", "linear"] = "rbf"
    neighbours: Count = 5  # k: neighbours of an image
    symmetric: bool = False  # affinities (W + Wᵀ)/2; official: false
    bound: NonNegative = 1.0
    iterations: Count = 100  # steps of the optimisation, at most


def affinities(features: Tensor, kind: str, neighbours: int, symmetric: bool = False) -> Tensor:
    """W: (B, k) unit vectors → (B, B)."""
    if kind == "linear":
        w = features @ features.T
    else:
        distance = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")
        if kind == "knn":
            without_self = distance + torch.diag(torch.full_like(distance[0], torch.inf))
            nearest = without_self.topk(min(neighbours, len(features) - 1), largest=False).indices
            w = torch.zeros_like(distance).scatter_(1, nearest, 1.0)
        else:
            sigma = distance.kthvalue(min(neighbours, len(features)), dim=1).values.mean()
            w = (-distance.square() / (2 * sigma.square()).clamp(min=1e-12)).exp()
    return (w + w.T) / 2 if symmetric else w


def correct(log_q: Tensor, w: Tensor, iterations: int) -> tuple[Tensor, int]:
    """log z̃ (B, C), and the number of steps made, for the weighted affinities λW (B, B).

    It stops after at least three steps, when Σ_i KL(z̃_i ‖ q_i) − Σ_ij λ w_ij z̃_i·z̃_j has a relative change
    of at most 10⁻⁸. As in the official code, z̃_i is the new value there, and z̃_j the one before the step.
    """
    log_z = torch.log_softmax(log_q, dim=1)
    previous = torch.inf
    for step in range(1, iterations + 1):
        affinity_term = w @ log_z.exp()
        log_z = torch.log_softmax(log_q + affinity_term, dim=1)
        z = log_z.exp()
        objective = float((z * (log_z.clamp(min=LOG_TINY) - log_q - affinity_term)).sum())
        if step > 2 and abs(objective - previous) <= 1e-8 * abs(previous):
            break
        previous = objective
    return log_z, step


LOG_TINY = -46.051701859880914  # ln 10⁻²⁰


class LAME(Method[LAMEConfig]):
    """Make the predictions of a batch similar for images with similar features."""

    name = "lame"
    paper = references.LAME
    Config = LAMEConfig
    batch_size = 64
    scores = "corrected log-probabilities of the only forward pass, in eval mode"
    scores_frozen = scores
    per_class = "which images of a batch are alike"
    deviations = "none; affinity (rbf, k = 5, not symmetric) and end of the iteration are the official code's"

    def adapt(self, x: Tensor) -> Tensor:
        return self.predict(x)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        return self.iterate(x)[0]

    def iterate(self, x: Tensor) -> tuple[Tensor, int]:
        """log z̃ (B, C) of images (B, 3, H, W), and the number of steps made."""
        cfg = self.config
        features, logits = self.model.features_and_logits(x)
        phi = torch.nn.functional.normalize(tta.widen(features), dim=1)
        with torch.autocast(x.device.type, enabled=False):
            w = cfg.bound * affinities(phi, cfg.affinity, cfg.neighbours, cfg.symmetric)
            log_q = (tta.widen(logits).softmax(dim=1) + 1e-10).log()
            return correct(log_q, w, cfg.iterations)

    def adapted(self) -> str:
        return "the predictions of each batch"
