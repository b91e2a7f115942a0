"""RMT: robust mean teacher, with symmetric cross-entropy and contrast (Döbler et al., CVPR 2023).

| symbol  | name        |                                                                                 |
| ------- | ----------- | ------------------------------------------------------------------------------- |
| θ       | model       | the student: every parameter called weight or bias is trained                   |
| θ′      | teacher     | θ′ ← α θ′ + (1 − α) θ, with α = `smoothing`                                     |
| L_SCE   | symmetric   | −½ Σ q log p − ½ Σ p log q of the student's p and the teacher's q               |
| x̃       | view        | one random view of the batch, as in CoTTA                                      |
| c_k     | prototypes  | mean source feature of each class                                               |
| L_CL    | contrast    | supervised contrast of an image's feature, its view's and the nearest prototype |
| τ       | temperature | of L_CL; features pass a projection of two layers and are normalised            |
| L_S     | replay_loss | cross-entropy on source images                                                  |

Loss: `self_training` · mean of (L_SCE(x) + L_SCE(x̃))/2 + `contrast` · L_CL + `replay` · L_S. Before the
first batch, teacher and student are warmed up with L_SCE on source images, at a rate that grows linearly.
Batch norm uses the statistics of the current batch. Scored: the sum of the student's and the teacher's
logits, before the update.

Deviations: methods see no source labels, so the classes of source images are those that the source network
predicts; the official code has the true ones. Replay draws from `source_images` images, not from all, and as
many as the target batch has. Dropout and stochastic depth stay in eval mode, as in the official code.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy, normalize

from ttabench import nn as tta
from ttabench.method import (
    Count,
    Method,
    Momentum,
    Natural,
    Needs,
    NonNegative,
    Positive,
    SourceData,
    UnitInterval,
)
from ttabench_methods import references
from ttabench_methods.cotta_views import View, random_view


@dataclass(frozen=True, slots=True, kw_only=True)
class RMTConfig:
    """Defaults: the official CIFAR-10-C configuration (batch size 200); source_images is ours, for memory."""

    optimizer: Literal["adam", "nesterov"] = "adam"  # official for ImageNet: nesterov
    lr: NonNegative = 1e-3  # learning rate
    momentum: Momentum = 0.9  # momentum of SGD, β₁ of Adam
    smoothing: UnitInterval = 0.999  # α of the teacher
    temperature: Positive = 0.1  # τ of the contrast
    projection: Count = 128  # width of the projection of features
    self_training: NonNegative = 1.0  # weight of the symmetric cross-entropy
    contrast: NonNegative = 1.0  # weight of the contrast
    replay: NonNegative = 1.0  # weight of the cross-entropy on source images; 0: the source-free form
    source_images: Count = 5000  # source images for prototypes, warm-up and replay
    source_batch_size: Count = 200  # images per batch of prototypes and warm-up
    warmup_images: Natural = 50_000  # source images that the warm-up passes, again and again; 0: no warm-up


def symmetric(logits: Tensor, target: Tensor) -> Tensor:
    """L_SCE of two rows of logits: (B, C), (B, C) → (B,)."""
    return (tta.soft_cross_entropy(logits, target) + tta.soft_cross_entropy(target, logits)) / 2


def contrastive(z: Tensor, temperature: float) -> Tensor:
    """L_CL of unit features (V, B, d), V kinds for each of B images: those of one image attract each other.

    The mean over all V·B rows of −log of the softmax share of a row's own kinds among all other rows.
    """
    kinds, images, _ = z.shape
    rows = z.flatten(0, 1)
    itself = torch.eye(len(rows), dtype=torch.bool, device=z.device)
    log_p = (rows @ rows.T / temperature).masked_fill(itself, -torch.inf).log_softmax(dim=1)
    own = torch.arange(images, device=z.device).repeat(kinds)
    same = (own[:, None] == own[None]) & ~itself
    return -log_p.masked_fill(~same, 0).sum(dim=1).div(kinds - 1).mean()


class RMT(Method[RMTConfig]):
    """Learn from a slow teacher by a symmetric loss, and keep features near their source prototypes."""

    name = "rmt"
    paper = references.RMT
    needs = Needs(gradient=True, source_data="images")
    Config = RMTConfig
    imagenet_batch_size = 64
    scores = "the student's logits plus the teacher's, before the update"
    scores_frozen = "the student's logits plus the teacher's after all updates"
    deviations = (
        "source images have the classes that the source network predicts (official: true labels), and "
        "source_images of them are used (official: all)"
    )
    view: View = staticmethod(random_view)

    @classmethod
    def for_dataset(cls, dataset: str, num_classes: int) -> Mapping[str, Any]:
        """ImageNet: official; fewer source images, since they are kept in memory."""
        if num_classes < 1000:
            return {}
        return {"optimizer": "nesterov", "lr": 0.01, "source_images": 2000, "source_batch_size": 64}

    def setup(self, source: SourceData | None) -> None:
        cfg = self.config
        self.images = self.labels = torch.empty(0)
        batches = [*tta.source_batches(source, cfg.source_batch_size, cfg.source_images)]
        with torch.no_grad():
            self.labels = torch.cat([self.model(x).argmax(1) for x in batches])
        tta.use_batch_statistics(self.model)
        self.prototypes = self.class_means(batches)
        self.images = torch.cat([(255 * x).round().to(torch.uint8) for x in batches])
        self.teacher = copy.deepcopy(self.model)
        self.parameters = tta.weights_and_biases(self.model)
        width = self.prototypes.shape[1]
        layers = nn.Linear(width, cfg.projection), nn.ReLU(), nn.Linear(cfg.projection, cfg.projection)
        self.projector = nn.Sequential(*layers).to(self.prototypes.device, self.prototypes.dtype)
        # Two groups, since the warm-up has no gradient for the projector: torch starts momentum by group.
        groups = [{"params": [*part]} for part in (self.parameters.values(), self.projector.parameters())]
        self.optimizer = tta.make_optimizer(cfg.optimizer, groups, cfg.lr, cfg.momentum)
        self.warm_up(cfg.warmup_images // cfg.source_batch_size)
        if not cfg.replay:
            self.images, self.labels = self.images[:0], self.labels[:0]

    @torch.no_grad()
    def class_means(self, batches: list[Tensor]) -> Tensor:
        """Mean feature of each class that is predicted at all: (≤ C, k)."""
        z = torch.cat([tta.widen(self.model.features(x)) for x in batches])
        return torch.stack([z[self.labels == label].mean(0) for label in torch.unique(self.labels)])

    @torch.enable_grad()
    def warm_up(self, steps: int) -> None:
        """Student and teacher on source images, at a learning rate that grows linearly."""
        for step in range(1, steps + 1):
            for group in self.optimizer.param_groups:
                group["lr"] = self.config.lr * step / steps
            x, _ = self.draw(self.config.source_batch_size)
            loss = symmetric(self.model(x), self.teacher(x)).mean()
            tta.minimise(loss, self.optimizer)
            tta.average_parameters(self.teacher, self.model, self.config.smoothing)

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        """Source images (b, 3, H, W) in [0, 1] and their classes (b,), at random."""
        chosen = torch.randperm(len(self.images))[:count].to(self.images.device)
        x = tta.channels_last(self.images[chosen].to(self.prototypes.dtype) / 255)
        return x, self.labels[chosen]

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        cfg = self.config
        z, logits = self.model.features_and_logits(x)
        view_z, view_logits = self.model.features_and_logits(tta.channels_last(self.view(x)))
        with torch.no_grad():
            target = self.teacher(x)
        loss = cfg.self_training * (symmetric(logits, target) + symmetric(view_logits, target)).mean() / 2
        loss = loss + cfg.contrast * self.contrast_loss(tta.widen(z), tta.widen(view_z))
        if cfg.replay:
            loss = loss + cfg.replay * self.replay_loss(len(x))
        tta.minimise(loss, self.optimizer)
        tta.average_parameters(self.teacher, self.model, cfg.smoothing)
        scored: Tensor = (logits + target).detach()
        return scored

    def contrast_loss(self, z: Tensor, view_z: Tensor) -> Tensor:
        """L_CL of features (B, k) and of those of the view (B, k)."""
        with torch.no_grad():
            nearest = cosine_similarity(z[:, None], self.prototypes[None], dim=2).argmax(dim=1)
        kinds = torch.stack([self.prototypes[nearest], z, view_z])
        return contrastive(normalize(tta.widen(self.projector(kinds)), dim=2), self.config.temperature)

    def replay_loss(self, count: int) -> Tensor:
        x, labels = self.draw(count)
        return cross_entropy(self.model(x), labels)

    def predict(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            logits: Tensor = self.model(x) + self.teacher(x)
        return logits

    def adapted(self) -> str:
        return tta.describe(self.model, self.parameters)
