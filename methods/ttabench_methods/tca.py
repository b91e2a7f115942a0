"""LinearTCA: a linear map gives target features the correlations of the certain ones (You et al., ICML 2025).

| symbol   | name     |                                                                                     |
| -------- | -------- | ----------------------------------------------------------------------------------- |
| z        | z        | features: the input of the last linear layer, k numbers                             |
| μ_t, C_t | target   | mean and covariance (divided by n − 1) of all target features so far                |
| –        | supports | pseudo-source: the `filter_k` features of least entropy of each predicted class    |
| μ_s, C_s | –        | mean and covariance of the supports                                                 |
| W        | map      | (k, k), from the identity `steps` steps of Adam on ‖Wᵀ C_t W − C_s‖²_F              |

Scored: the last layer on (z − μ_t) W + μ_s. The network does not change; batch norm keeps the source's
statistics. Offline, as in the paper, W is computed after all images have been seen; online, after each batch
from all images so far. The memory does not grow: it holds moments, and `filter_k` features per class.

Deviations: the official code takes r_j · `filter_k` supports of class j, with r_j the number of labels j
*among the test labels*, divided by that of label 0. Here no label is used, and every class has the same
number of supports: for balanced labels this is the same. The online form is our addition.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ttabench import nn as tta
from ttabench.method import Batches, Count, Method, NonNegative, SourceData
from ttabench_methods import references


@dataclass(frozen=True, slots=True, kw_only=True)
class TCAConfig:
    """Defaults: the official ones for CIFAR."""

    filter_k: Count = 20  # supports per class: the features of least entropy
    steps: Count = 20  # steps of Adam for the map W
    lr: NonNegative = 1e-3  # learning rate of Adam


def most_certain(labels: Tensor, entropies: Tensor, sizes: Tensor) -> Tensor:
    """Positions of the `sizes` (C,) lowest entropies of each class: (S,) int64, (S,) → (≤ S,)."""
    order = entropies.argsort(stable=True)
    order = order[labels[order].argsort(stable=True)]  # by class, then by entropy
    counts = labels.bincount(minlength=len(sizes))
    rank = torch.arange(len(labels), device=labels.device) - (counts.cumsum(0) - counts)[labels[order]]
    return order[rank < sizes[labels[order]]]


def align(target: Tensor, source: Tensor, steps: int, lr: float) -> Tensor:
    """W (k, k) for covariances C_t, C_s: the gradient of ‖Wᵀ C_t W − C_s‖²_F is 4 C_t W (Wᵀ C_t W − C_s)."""
    w = nn.Parameter(torch.eye(len(target)).to(target))
    optimizer = torch.optim.Adam([w], lr)
    for _ in range(steps):
        with torch.no_grad():
            cw = target @ w
            w.grad = 4 * cw @ (w.T @ cw - source)
        optimizer.step()
    return w.detach()


class TCA(Method[TCAConfig]):
    """Give the features the mean and covariance of the most certain features."""

    name = "tca"
    paper = references.TCA
    Config = TCAConfig
    family = "alignment"
    mode = "offline"
    batch_size = 128
    scores = "the only forward pass, its features mapped by the statistics of all batches up to this one"
    scores_frozen = "a forward pass, its features mapped by the statistics of all images"
    deviations = (
        "every class has the same number of supports (the official code takes the numbers from the test "
        "labels); the online form is ours"
    )

    def setup(self, source: SourceData | None) -> None:
        linear = self.model.linear.weight
        self.supports = tta.widen(linear.new_zeros(0, self.model.num_features))
        self.labels = torch.zeros(0, dtype=torch.long, device=linear.device)
        self.entropies = self.supports.new_zeros(0)
        self.sizes = torch.full((self.model.num_classes,), self.config.filter_k, device=linear.device)
        self.target = tta.RunningMoments("covariance")
        self.map: Tensor | None = None

    @torch.no_grad()
    def adapt(self, x: Tensor) -> Tensor:
        z = self.take(x)
        self.solve()
        return self.mapped(z)

    @torch.no_grad()
    def fit(self, batches: Batches, epochs: int = 0) -> None:
        """One pass for any number of epochs: a second pass would add the same images."""
        for x in batches:
            self.take(x)
        self.solve()

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        return self.mapped(self.model.features(x))

    def take(self, x: Tensor) -> Tensor:
        """Features (B, k) of images; add them to the moments and supports."""
        z, logits = self.model.features_and_logits(x)
        features = tta.widen(z)
        self.target.add(features)
        self.supports = torch.cat([self.supports, features])
        self.labels = torch.cat([self.labels, logits.argmax(dim=1)])
        self.entropies = torch.cat([self.entropies, tta.entropy(logits)])
        kept = most_certain(self.labels, self.entropies, self.sizes)
        self.supports, self.labels, self.entropies = (
            values[kept] for values in (self.supports, self.labels, self.entropies)
        )
        return z

    def solve(self) -> None:
        """Compute W from moments and supports."""
        source = tta.RunningMoments("covariance")
        source.add(self.supports)
        covariances = self.target.second(correction=1), source.second(correction=1)
        with torch.autocast(self.supports.device.type, enabled=False):
            self.map = align(*covariances, self.config.steps, self.config.lr)
        self.source_mean = source.mean

    def mapped(self, z: Tensor) -> Tensor:
        """Logits (B, C) of (z − μ_t) W + μ_s; of z before the first batch."""
        if self.map is None:
            return self.model.head(z)
        with torch.autocast(z.device.type, enabled=False):
            aligned = (tta.widen(z) - self.target.mean) @ self.map + self.source_mean
        return self.model.head(aligned.to(z.dtype))

    def adapted(self) -> str:
        return f"a linear map of the features ({self.model.num_features**2:,} numbers)"
