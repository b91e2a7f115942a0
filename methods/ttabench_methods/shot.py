"""SHOT: source hypothesis transfer (Liang et al., ICML 2020). The last layer is frozen; the features learn.

| symbol  | name          |                                                                           |
| ------- | ------------- | ------------------------------------------------------------------------- |
| h_t     | head          | the last linear layer, frozen                                             |
| g_t     | –             | everything before it; all its parameters are learned                      |
| L_ent   | –             | mean softmax entropy (Eq. 3)                                              |
| L_div   | –             | −H(p̄), p̄ the mean softmax of the batch (Eq. 3)                            |
| ŷ       | labels        | pseudo-labels: nearest class centroid in cosine distance (Eqs. 4–6);      |
|         |               | online: the prediction where its probability exceeds `threshold`          |
| β       | label_weight  | weight of the cross-entropy with ŷ                                        |

Loss: L_ent + L_div + β · cross-entropy (Eq. 7).

Online is the form of later work, by default that of TTAB's code: batch norm uses the statistics of the batch;
the forward pass before the (last) update is scored. T3A's code is `statistics=source, optimizer=adam,
weight_decay=0, label_weight=0.1`; its SHOT-IM has `label_weight=0` instead.

Offline is the paper's form: `epochs` passes in random order, pseudo-labels from centroids before each pass, a
decaying learning rate. Batch norm is as in the official code: it learns with the statistics of the batch and
updates the running statistics, which are used for pseudo-labels and predictions.

Deviations: dropout is off. One learning rate for all layers, the paper's for its backbone. If no online
prediction is certain, the pseudo-label term is 0 (in T3A's and TTAB's code: NaN). A class that loses all its
images between the two rounds of labels has no centroid (official code: no distance).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ttabench import nn as tta
from ttabench.method import (
    Batches,
    Count,
    Method,
    Natural,
    Needs,
    NonNegative,
    Range,
    SourceData,
    UnitInterval,
)
from ttabench_methods import references
from ttabench_methods.centroids import nearest_centroid


@dataclass(frozen=True, slots=True, kw_only=True)
class SHOTConfig:
    """Defaults: the paper's (lr, momentum, weight decay, β, 15 epochs), TTAB's `threshold`.

    statistics    of batch norm, online: "batch", or "source", the stored ones.
    optimizer     Nesterov SGD, plain SGD or Adam (β₁ = momentum).
    steps         updates per batch, online.
    labellings    offline: how often pseudo-labels are made, at equal intervals; 0 = before each epoch.
    class_images  offline: classes predicted for at most this many images get no pseudo-labels.
    """

    statistics: Literal["batch", "source"] = "batch"
    optimizer: Literal["adam", "sgd", "nesterov"] = "nesterov"
    lr: NonNegative = 1e-3  # learning rate
    momentum: Annotated[float, Range(above=0, below=1)] = 0.9  # momentum of SGD, β₁ of Adam
    weight_decay: NonNegative = 1e-3  # weight decay of the optimiser
    information_weight: NonNegative = 1.0  # weight of L_ent + L_div
    label_weight: NonNegative = 0.3
    threshold: UnitInterval = 0.9  # online: least probability of a pseudo-label
    steps: Count = 1
    epochs: Count = 15  # offline: passes over the images
    labellings: Natural = 0
    class_images: Natural = 0


EPSILON = 1e-5  # inside logarithms, in all official codes


def information_maximisation(logits: Tensor, epsilon: float = 0.0) -> Tensor:
    """L_ent + L_div (Eq. 3) of logits (B, C): each prediction certain, all together diverse.

    L_ent is −Σ p log(p + ε) with ε = `epsilon`; L_div always has ε = 10⁻⁵.
    """
    p = logits.softmax(dim=1)
    mean = p.mean(dim=0)
    h = -(p * (p + epsilon).log()).sum(dim=1) if epsilon else tta.entropy(logits)
    return h.mean() + (mean * (mean + EPSILON).log()).sum()


class SHOT(Method[SHOTConfig]):
    """Information maximisation and self-training of the feature extractor."""

    name = "shot"
    paper = references.SHOT
    needs = Needs(gradient=True)
    Config = SHOTConfig
    batch_size = 64
    scores_frozen = "a forward pass after all updates; offline, with the updated running statistics"
    deviations = "online by default, as TTAB runs it; one learning rate for all layers; dropout is off"

    def setup(self, source: SourceData | None) -> None:
        cfg = self.config
        self.batch_norms = dict(tta.norm_modules(self.model, "batch"))
        if cfg.statistics == "batch":
            tta.use_batch_statistics(self.model)
        self.model.requires_grad_(True)
        self.model.linear.requires_grad_(False)
        self.parameters = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self.optimizer = tta.make_optimizer(
            cfg.optimizer, self.parameters.values(), cfg.lr, cfg.momentum, cfg.weight_decay
        )

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        for _ in range(self.config.steps):
            logits: Tensor = self.model(x)
            confidence, labels = tta.widen(logits.detach()).softmax(dim=1).max(dim=1)
            self.learn(logits, labels, confidence > self.config.threshold)
        return logits.detach()

    @torch.enable_grad()
    def fit(self, batches: Batches, epochs: int = 0) -> None:
        for name, layer in self.batch_norms.items():
            self.model.set_submodule(name, layer)
        epochs = epochs or self.config.epochs
        total_updates, updates = epochs * len(batches), 0
        every = max(1, total_updates // (self.config.labellings or epochs))
        for group in self.optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        for _ in range(epochs):
            for positions, x in batches.shuffled():
                if updates % every == 0:
                    labels = self.label(batches)
                updates += 1
                for group in self.optimizer.param_groups:
                    group["lr"] = group["initial_lr"] * (1 + 10 * updates / total_updates) ** -0.75
                batch_labels = labels[positions.to(labels.device)]
                tta.set_norm_mode(self.model, train=True)
                self.learn(
                    self.model(x), batch_labels, torch.ones_like(batch_labels, dtype=torch.bool), EPSILON
                )
                tta.set_norm_mode(self.model, train=False)

    def learn(self, logits: Tensor, labels: Tensor, certain: Tensor, epsilon: float = 0.0) -> None:
        """One step on Eq. 7 for logits (B, C) and labels (B,); only labels that are `certain` (B,) count."""
        logits = tta.widen(logits)
        label_loss = tta.masked_mean(cross_entropy(logits, labels, reduction="none"), certain)
        information = information_maximisation(logits, epsilon)
        loss = self.config.information_weight * information + self.config.label_weight * label_loss
        tta.minimise(loss, self.optimizer)

    @torch.no_grad()
    def label(self, batches: Batches) -> Tensor:
        """Pseudo-labels (n,) of all images, in stream order."""
        outputs = [self.model.features_and_logits(x) for x in batches]
        features, logits = (tta.widen(torch.cat(parts)) for parts in zip(*outputs, strict=True))
        return nearest_centroid(features, logits.softmax(dim=1), self.config.class_images)

    def adapted(self) -> str:
        count = sum(p.numel() for p in self.parameters.values())
        return f"all but the last layer ({count:,} parameters)"
