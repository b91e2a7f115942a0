"""TTAC: Gaussians of target features are aligned to the source's (Su, Xu and Jia, NeurIPS 2022).

| symbol      | name       |                                                                             |
| ----------- | ---------- | --------------------------------------------------------------------------- |
| z           | z          | features: the input of the last linear layer                                |
| μ_s, Σ_s    | source     | mean and covariance of source features: all, and for each predicted class   |
| μ_t, Σ_t, n | whole      | running Gaussian of all target features; starts empty                       |
| μ_k, Σ_k, n | by_class   | the same for class k predicted above `threshold`; starts as the source's    |
| c           | bias       | added to every covariance's diagonal: largest entry of Σ_s / `bias_divisor` |
| J           | divergence | KL(source ‖ target) + KL(target ‖ source)                                   |

Loss: `scale` · (J of all + 1/C Σ_k J_k), over the classes k that have features in this batch and at least
`class_min` features so far. All layers but the last learn. In this pass batch norm uses the batch's
statistics and updates its running statistics. Scored: a second forward pass, after the step, with the running
statistics.

Deviations: this is the form without a queue, which does not filter by the consistency of predictions over
time. Source classes are predicted classes. A batch with more features than the length of a running Gaussian
replaces all earlier features. With `official_quirks=True` it gets a larger weight, and the covariance may
become indefinite; the official code stops there. If class covariances need too much memory (a thousand
classes; the official ImageNet code keeps diagonals), `classes` is off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ttabench import nn as tta
from ttabench.method import (
    Architecture,
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
from ttabench_methods import extractor, references

MAX_NUMBERS = 200_000_000  # in all class covariances together
Gaussian = tuple[float, Tensor, Tensor]  # features so far, mean (k,), covariance (k, k)


@dataclass(frozen=True, slots=True, kw_only=True)
class TTACConfig:
    """Defaults: the official ones for CIFAR-10. source_images: 0 = all, as in the paper."""

    lr: NonNegative = 1e-2  # learning rate of SGD; with more than 10 classes 1e-3, as for CIFAR-100
    momentum: Momentum = 0.9  # momentum of SGD
    scale: NonNegative = 0.05  # weight of the loss
    threshold: UnitInterval = 0.9  # least probability with which an image counts for a class
    length: Count = 1280  # features that the running Gaussian of all averages over
    class_length: Count = 128  # features that the running Gaussian of a class averages over
    class_min: Count = 16  # features of a class before it counts in the loss
    bias_divisor: Positive = 30.0  # c is the largest entry of Σ_s over this
    classes: bool = True  # align the features of each class, too
    source_images: Natural = 10_000  # images for the source's Gaussians; 0 = all
    official_quirks: bool = False  # a batch above `length` gets a larger weight


def absorb(z: Tensor, running: Gaussian, length: int, official: bool = False) -> Gaussian:
    """The running Gaussian updated with features z (b, k); gradients flow through z."""
    n, mean, covariance = running
    n += len(z)
    a = 1 / n if n <= length else 1 / (length if official else max(length, len(z)))
    deviations = z - mean
    shift = a * deviations.sum(dim=0)
    covariance = (
        covariance + a * (deviations.T @ deviations - len(z) * covariance) - torch.outer(shift, shift)
    )
    return n, mean + shift, covariance


class Anchor:
    """A source Gaussian with c on its diagonal, and its inverse."""

    def __init__(self, mean: Tensor, covariance: Tensor, bias: Tensor) -> None:
        self.mean, self.ridge = mean, bias * torch.eye(len(mean)).to(covariance)
        self.covariance = covariance + self.ridge
        self.inverse = torch.linalg.inv(self.covariance)

    def divergence(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """J to a target Gaussian with the same c on its diagonal; the logarithms of determinants cancel."""
        covariance = covariance + self.ridge
        inverse = torch.linalg.inv(covariance)
        shift = mean - self.mean
        traces = (self.inverse * covariance).sum() + (inverse * self.covariance).sum()
        quadratic = torch.dot(shift, (self.inverse + inverse) @ shift)
        divergence: Tensor = (traces + quadratic) / 2 - len(mean)
        return divergence


class TTAC(Method[TTACConfig]):
    """Align running Gaussians of the features, of all and of each class, to the source's."""

    name = "ttac"
    paper = references.TTAC
    needs = Needs(gradient=True, source_data="statistics", source_statistics=("gaussian", "class_gaussians"))
    Config = TTACConfig
    family = "alignment"
    batch_size = 256
    scores = "a second forward pass, after the update, with the updated running statistics"
    deviations = (
        "without the queue; source classes are predicted classes; a large batch replaces the running "
        "Gaussian (official_quirks: it gets more weight); no class term if class covariances need too much "
        "memory"
    )

    @classmethod
    def for_dataset(cls, dataset: str, num_classes: int) -> Mapping[str, Any]:
        if num_classes >= 1000:
            return {"lr": 1e-3, "class_length": 64}
        return {"lr": 1e-3, "scale": 0.5, "class_length": 64} if num_classes > 10 else {}

    @classmethod
    def for_architecture(cls, arch: Architecture) -> Mapping[str, Any]:
        return {"classes": False} if arch.num_classes * arch.num_features**2 > MAX_NUMBERS else {}

    def setup(self, source: SourceData | None) -> None:
        if source is None:
            raise ValueError("TTAC needs Gaussians of source features; pass source data to prepare(source)")
        cfg = self.config
        mean, covariance = source.gaussian(self.model, cfg.source_images)
        bias = covariance.max() / cfg.bias_divisor
        self.source = Anchor(mean, covariance, bias)
        self.whole: Gaussian = 0, torch.zeros_like(mean), torch.zeros_like(covariance)
        self.by_class: dict[int, Gaussian] = {}
        self.anchors: dict[int, Anchor] = {}
        if cfg.classes:
            start_count = 1e-10 if cfg.official_quirks else 0
            class_gaussians = zip(*source.class_gaussians(self.model, cfg.source_images), strict=True)
            for k, (count, class_mean, class_covariance) in enumerate(class_gaussians):
                if count:
                    self.by_class[k] = start_count, class_mean, class_covariance
                    self.anchors[k] = Anchor(class_mean, class_covariance, bias)
        self.parameters = extractor.learn_extractor(self.model)
        self.optimizer = tta.make_optimizer("sgd", self.parameters.values(), cfg.lr, cfg.momentum)

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        z, logits = extractor.train_features(self.model, x)
        with torch.autocast(x.device.type, enabled=False):
            tta.minimise(self.loss(z, logits.detach()), self.optimizer)
        return self.predict(x)

    def loss(self, z: Tensor, logits: Tensor) -> Tensor:
        """The loss of features (B, k) with logits (B, C); updates the running Gaussians."""
        cfg = self.config
        whole = absorb(z, self.whole, cfg.length, cfg.official_quirks)
        self.whole = whole[0], whole[1].detach(), whole[2].detach()
        loss = self.source.divergence(*whole[1:])
        confidence, labels = logits.softmax(dim=1).max(dim=1)
        labels = torch.where(confidence > cfg.threshold, labels, -1)
        for k in sorted(set(labels.tolist()) & set(self.by_class)):
            updated = absorb(z[labels == k], self.by_class[k], cfg.class_length, cfg.official_quirks)
            self.by_class[k] = updated[0], updated[1].detach(), updated[2].detach()
            if updated[0] >= cfg.class_min:
                loss = loss + self.anchors[k].divergence(*updated[1:]) / logits.shape[1]
        return cfg.scale * loss

    def adapted(self) -> str:
        return extractor.describe(self.parameters)
