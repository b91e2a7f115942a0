"""SHOT: source hypothesis transfer (Liang et al., ICML 2020). The last layer stays, the features move to it.

| symbol  | name          |                                                                           |
| ------- | ------------- | ------------------------------------------------------------------------- |
| h_t     | head          | the last linear layer, frozen                                             |
| g_t     | –             | everything before it; all its parameters are learned                      |
| L_ent   | –             | mean softmax entropy (Eq. 3)                                              |
| L_div   | –             | −H(p̄), p̄ the mean softmax of the batch (Eq. 3)                            |
| ŷ       | labels        | pseudo-labels: nearest class centroid in cosine distance (Eqs. 4–6);      |
|         |               | online: the prediction where its probability exceeds `threshold`          |
| β       | label_weight  | weight of the cross-entropy with ŷ                                        |

Loss: L_ent + L_div + β · cross-entropy (Eq. 7). Online is the form in which T3A and TTAB run it: one step
per batch; scored is the forward pass before it. Offline is the paper's own: `epochs` passes in random order,
pseudo-labels from centroids before each, a decaying learning rate.

Deviations: batch norm uses the statistics of the batch throughout (the paper predicts with running ones), and
dropout is off. One learning rate for all layers, the paper's for its backbone. Where online no prediction is
certain, the pseudo-label term is 0 (in T3A's and TTAB's code: NaN).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, one_hot, pad

from ttabench import nn as tta
from ttabench.method import Batches, Count, Method, Needs, NonNegative, Range, SourceData, UnitInterval
from ttabench_methods import references


@dataclass(frozen=True, slots=True, kw_only=True)
class SHOTConfig:
    """Defaults: the paper's (lr, momentum, weight decay, β, 15 epochs), TTAB's `threshold`."""

    lr: NonNegative = 1e-3
    momentum: Annotated[float, Range(above=0, below=1)] = 0.9
    weight_decay: NonNegative = 1e-3
    label_weight: NonNegative = 0.3
    threshold: UnitInterval = 0.9
    epochs: Count = 15


def information_maximisation(logits: Tensor) -> Tensor:
    """L_ent + L_div (Eq. 3) of logits (B, C): predictions certain one by one, diverse together."""
    mean = logits.softmax(dim=1).mean(dim=0)
    return tta.entropy(logits).mean() + (mean * (mean + 1e-5).log()).sum()


def nearest_centroid(features: Tensor, p: Tensor) -> Tensor:
    """Pseudo-labels (Eqs. 4–6) of features (n, k) with softmax outputs (n, C): (n,) int64.

    Centroids weighted by the softmax give first labels, centroids of those the final ones. Classes
    that nothing is predicted as have no centroid.
    """
    z = normalize(pad(features, (0, 1), value=1.0), dim=1)
    labels, share = p.argmax(dim=1), p
    for _ in range(2):
        centroids = (share.T @ z) / share.sum(dim=0)[:, None].clamp(min=1e-8)
        used = torch.zeros_like(p[0], dtype=torch.bool).scatter_(0, labels, True)
        similarity = (z @ normalize(centroids, dim=1).T).masked_fill(~used, -torch.inf)
        labels = similarity.argmax(dim=1)
        share = one_hot(labels, p.shape[1]).to(p.dtype)
    return labels


class SHOT(Method[SHOTConfig]):
    """Information maximisation and self-training of the feature extractor."""

    name = "shot"
    paper = references.SHOT
    needs = Needs(gradient=True)
    Config = SHOTConfig
    batch_size = 64
    deviations = "online by default, as later work runs it; batch statistics throughout; one learning rate"

    def setup(self, source: SourceData | None) -> None:
        cfg = self.config
        tta.use_batch_statistics(self.model)
        self.model.requires_grad_(True)
        self.model.linear.requires_grad_(False)
        self.parameters = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self.optimizer = torch.optim.SGD(
            self.parameters.values(), cfg.lr, cfg.momentum, 0, cfg.weight_decay, nesterov=True, fused=True
        )

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        confidence, labels = tta.widen(logits.detach()).softmax(dim=1).max(dim=1)
        self.learn(logits, labels, confidence > self.config.threshold)
        return logits.detach()

    @torch.enable_grad()
    def fit(self, batches: Batches, epochs: int = 0) -> None:
        epochs = epochs or self.config.epochs
        steps, done = epochs * len(batches), 0
        for _ in range(epochs):
            labels = self.label(batches)
            for positions, x in batches.shuffled():
                done += 1
                for group in self.optimizer.param_groups:
                    group["lr"] = self.config.lr * (1 + 10 * done / steps) ** -0.75
                own = labels[positions.to(labels.device)]
                self.learn(self.model(x), own, torch.ones_like(own, dtype=torch.bool))

    def learn(self, logits: Tensor, labels: Tensor, certain: Tensor) -> None:
        """One step on Eq. 7 for logits (B, C), labels (B,) and which of them count (B,)."""
        logits = tta.widen(logits)
        labelled = tta.masked_mean(cross_entropy(logits, labels, reduction="none"), certain)
        loss = information_maximisation(logits) + self.config.label_weight * labelled
        tta.minimise(loss, self.optimizer)

    @torch.no_grad()
    def label(self, batches: Batches) -> Tensor:
        """Pseudo-labels (n,) of all images, in stream order."""
        seen = [self.model.features_and_logits(x) for x in batches]
        features, logits = (tta.widen(torch.cat(parts)) for parts in zip(*seen, strict=True))
        return nearest_centroid(features, logits.softmax(dim=1))

    def adapted(self) -> str:
        count = sum(p.numel() for p in self.parameters.values())
        return f"all but the last layer ({count:,} parameters)"
