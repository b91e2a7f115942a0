"""T3A: class prototypes take the place of the last layer's weights (Iwasawa and Matsuo, NeurIPS 2021).

| symbol | name       |                                                                                 |
| ------ | ---------- | ------------------------------------------------------------------------------- |
| f_θ(x) | z          | features: the input of the last linear layer                                    |
| ω_k    | –          | weights of that layer for class k: the first support of its class               |
| S_k    | supports   | features of unit length that were predicted as class k                          |
| H      | entropies  | softmax entropy of the source classifier at each support                        |
| M      | filter_k   | supports kept per class: those of lowest entropy                                |
| c_k    | prototypes | mean of S_k                                                                     |

Scored: z·c_k; the supports already include the current batch. No gradients; the network does not change, and
batch norm keeps the source statistics. At most M·C features are kept.

Deviations: none from the paper. With `official_quirks=True`, as in the official code (and TTAB's and FOA's):
each c_k is divided by its length (the paper's mean is shorter if the supports differ), and the class of ω_k
as a support is the one that the last layer predicts for it (in the paper: k).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ttabench import nn as tta
from ttabench.method import Count, Method, SourceData
from ttabench_methods import references


@dataclass(frozen=True, slots=True, kw_only=True)
class T3AConfig:
    """Defaults: the paper chooses M among 1, 5, 20, 50 and 100 by validation on the source; here 100.

    filter_k  M: features per class that are kept, those of least entropy.
    """

    filter_k: Count = 100
    official_quirks: bool = False  # prototypes of length 1; the last layer predicts the labels of its weights


def most_certain(labels: Tensor, entropies: Tensor, count: int) -> Tensor:
    """Positions, ascending, of the `count` lowest entropies of each class: (S,) int64, (S,) → (≤ S,)."""
    order = entropies.argsort(stable=True)
    order = order[labels[order].argsort(stable=True)]  # by class, then by entropy
    classes = labels[order]
    rank = torch.arange(len(labels), device=labels.device) - torch.searchsorted(classes, classes)
    return order[rank < count].sort().values


def prototypes(supports: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """c_k: (S, k) supports with their classes (S,) → (C, k) means, 0 without supports."""
    sums = supports.new_zeros(num_classes, supports.shape[1]).index_add_(0, labels, supports)
    sizes = sums.new_zeros(num_classes).index_add_(0, labels, torch.ones_like(labels, dtype=sums.dtype))
    return sums / sizes.clamp(min=1)[:, None]


class T3A(Method[T3AConfig]):
    """Classify by the mean of the certain features seen so far, class by class."""

    name = "t3a"
    paper = references.T3A
    Config = T3AConfig
    batch_size = 32
    scores = "inner products with the prototypes, which include the batch"
    scores_frozen = "inner products with the prototypes of all batches"
    per_class = "prototypes"
    deviations = (
        "none (official_quirks, as in the official code: prototypes of length 1; the last layer predicts the "
        "labels of its own weights)"
    )

    @torch.no_grad()
    def setup(self, source: SourceData | None) -> None:
        weight = self.model.linear.weight
        self.supports = normalize(weight.detach(), dim=1)
        logits = self.model.head(weight)
        self.labels = torch.arange(self.model.num_classes, device=weight.device)
        if self.config.official_quirks:
            self.labels = logits.argmax(dim=1)
        self.entropies = tta.entropy(logits)

    @torch.no_grad()
    def adapt(self, x: Tensor) -> Tensor:
        z, logits = self.model.features_and_logits(x)
        self.supports = torch.cat([self.supports, normalize(z, dim=1).to(self.supports)])
        self.labels = torch.cat([self.labels, logits.argmax(dim=1)])
        self.entropies = torch.cat([self.entropies, tta.entropy(logits).to(self.entropies)])
        kept = most_certain(self.labels, self.entropies, self.config.filter_k)
        self.supports, self.labels, self.entropies = (
            values[kept] for values in (self.supports, self.labels, self.entropies)
        )
        return self.classify(z)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        return self.classify(self.model.features(x))

    def classify(self, z: Tensor) -> Tensor:
        """z·c_k: (B, k) → (B, C)."""
        centres = prototypes(self.supports, self.labels, self.model.num_classes)
        if self.config.official_quirks:
            centres = normalize(centres, dim=1)
        return z.to(centres) @ centres.T

    def adapted(self) -> str:
        return f"the last layer, as {len(self.labels):,} supports"
