"""Pseudo-labels from class centroids, as SHOT makes them (Liang et al., ICML 2020)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot, pad


def nearest_centroid(features: Tensor, p: Tensor, least: int = 0) -> Tensor:
    """Pseudo-labels (Eqs. 4–6) of features (n, k) with softmax outputs (n, C): (n,) int64.

    Centroids weighted by the softmax give the first labels; centroids of these labels give the final ones.
    Only classes predicted for more than `least` images have a centroid. If no class has one, the predictions
    are the labels.
    """
    z = normalize(pad(features, (0, 1), value=1.0), dim=1)
    labels, weights = p.argmax(dim=1), p
    frequent = labels.bincount(minlength=p.shape[1]) > least
    for _ in range(2 if frequent.any() else 0):
        has_centroid = frequent & (weights.sum(dim=0) > 0)
        similarity = z @ normalize(weights.T @ z, dim=1).T
        labels = similarity.masked_fill(~has_centroid, -torch.inf).argmax(dim=1)
        weights = one_hot(labels, p.shape[1]).to(p.dtype)
    return labels
