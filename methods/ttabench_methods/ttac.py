"""TTAC: Gaussians of target features are anchored to the source's (Su, Xu and Jia, NeurIPS 2022).

| symbol      | name       |                                                                             |
| ----------- | ---------- | --------------------------------------------------------------------------- |
| z           | z          | what enters the last linear layer                                           |
| μ_s, Σ_s    | source     | mean and covariance of source features, of all and of each predicted class  |
| μ_t, Σ_t, n | whole      | running Gaussian of all target features: starts empty                       |
| μ_k, Σ_k, n | by_class   | of those that are k with a probability over `threshold`: starts as source's |
| c           | bias       | added to every covariance's diagonal: largest entry of Σ_s / `bias_divisor` |
| J           | divergence | KL(source ‖ target) + KL(target ‖ source)                                   |

Loss: `scale` · (J of all + 1/C Σ_k J_k), k over the classes that this batch has features of and that have had
`class_min` so far. All but the last layer learns; batch norm uses the batch's statistics while it does, and
moves what it stores. Scored: a second forward pass, after the step, with what is stored.

Deviations: the form without a queue, which does not look at whether predictions stay the same over time.
Classes of the source are predicted ones. A batch with more features than a running Gaussian's length takes
the place of all before it; with `official_quirks=True` it counts for more than that, and the covariance may
turn indefinite, where the official code stops. Where class covariances have no room (a thousand classes; the
official ImageNet code keeps diagonals), `classes` is off.
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

ROOM = 200_000_000  # numbers in all class covariances together
Gaussian = tuple[float, Tensor, Tensor]  # features so far, mean (k,), covariance (k, k)


@dataclass(frozen=True, slots=True, kw_only=True)
class TTACConfig:
    """Defaults: official, CIFAR-10. source_images: 0 = all, as in the paper."""

    lr: NonNegative = 1e-3
    momentum: Momentum = 0.9
    scale: NonNegative = 0.05
    threshold: UnitInterval = 0.9
    length: Count = 1280
    class_length: Count = 128
    class_min: Count = 16
    bias_divisor: Positive = 30.0
    classes: bool = True
    source_images: Natural = 10_000
    official_quirks: bool = False


def absorb(z: Tensor, running: Gaussian, length: int, official: bool = False) -> Gaussian:
    """The running Gaussian once it has taken features z (b, k); gradients flow through z."""
    n, mean, covariance = running
    n += len(z)
    a = 1 / n if n <= length else 1 / (length if official else max(length, len(z)))
    apart = z - mean
    shift = a * apart.sum(dim=0)
    covariance = covariance + a * (apart.T @ apart - len(z) * covariance) - torch.outer(shift, shift)
    return n, mean + shift, covariance


class Anchor:
    """A source Gaussian with c on its diagonal, and its inverse."""

    def __init__(self, mean: Tensor, covariance: Tensor, bias: Tensor) -> None:
        self.mean, self.ridge = mean, bias * torch.eye(len(mean)).to(covariance)
        self.covariance = covariance + self.ridge
        self.inverse = torch.linalg.inv(self.covariance)

    def divergence(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """J to a target Gaussian, which gets the same c: the logarithms of determinants cancel."""
        covariance = covariance + self.ridge
        inverse = torch.linalg.inv(covariance)
        apart = mean - self.mean
        traces = (self.inverse * covariance).sum() + (inverse * self.covariance).sum()
        quadratic = torch.dot(apart, (self.inverse + inverse) @ apart)
        divergence: Tensor = (traces + quadratic) / 2 - len(mean)
        return divergence


class TTAC(Method[TTACConfig]):
    """Pull running Gaussians of the features, of all and of each class, to the source's."""

    name = "ttac"
    paper = references.TTAC
    needs = Needs(gradient=True, source_data="statistics")
    Config = TTACConfig
    family = "alignment"
    batch_size = 256
    scores = "a second forward pass, after the update, with the statistics moved by it"
    deviations = (
        "without the queue; source classes are predicted ones; a batch counts for at most a whole running "
        "Gaussian (official_quirks: more); no class term where class covariances have no room"
    )

    @classmethod
    def for_dataset(cls, dataset: str, num_classes: int) -> Mapping[str, Any]:
        if dataset.startswith("cifar10-"):
            return {"lr": 1e-2}
        if num_classes >= 1000:
            return {"class_length": 64}
        return {"scale": 0.5, "class_length": 64} if num_classes > 10 else {}

    @classmethod
    def for_architecture(cls, arch: Architecture) -> Mapping[str, Any]:
        return {"classes": False} if arch.num_classes * arch.num_features**2 > ROOM else {}

    def setup(self, source: SourceData | None) -> None:
        if source is None:
            raise ValueError("TTAC needs Gaussians of source features: call prepare(source) with some")
        cfg = self.config
        mean, covariance = source.gaussian(self.model, cfg.source_images)
        bias = covariance.max() / cfg.bias_divisor
        self.source = Anchor(mean, covariance, bias)
        self.whole: Gaussian = 0, torch.zeros_like(mean), torch.zeros_like(covariance)
        self.by_class: dict[int, Gaussian] = {}
        self.anchors: dict[int, Anchor] = {}
        if cfg.classes:
            start = 1e-10 if cfg.official_quirks else 0
            seen = zip(*source.class_gaussians(self.model, cfg.source_images), strict=True)
            for k, (count, own_mean, own_covariance) in enumerate(seen):
                if count:
                    self.by_class[k] = start, own_mean, own_covariance
                    self.anchors[k] = Anchor(own_mean, own_covariance, bias)
        self.parameters = extractor.learn_extractor(self.model)
        self.optimizer = tta.make_optimizer("sgd", self.parameters.values(), cfg.lr, cfg.momentum)

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        z, logits = extractor.train_features(self.model, x)
        with torch.autocast(x.device.type, enabled=False):
            tta.minimise(self.loss(z, logits.detach()), self.optimizer)
        return self.predict(x)

    def loss(self, z: Tensor, logits: Tensor) -> Tensor:
        """Of features (B, k) and logits (B, C), which the running Gaussians take."""
        cfg = self.config
        whole = absorb(z, self.whole, cfg.length, cfg.official_quirks)
        self.whole = whole[0], whole[1].detach(), whole[2].detach()
        loss = self.source.divergence(*whole[1:])
        confidence, labels = logits.softmax(dim=1).max(dim=1)
        labels = torch.where(confidence > cfg.threshold, labels, -1)
        for k in sorted(set(labels.tolist()) & set(self.by_class)):
            own = absorb(z[labels == k], self.by_class[k], cfg.class_length, cfg.official_quirks)
            self.by_class[k] = own[0], own[1].detach(), own[2].detach()
            if own[0] >= cfg.class_min:
                loss = loss + self.anchors[k].divergence(*own[1:]) / logits.shape[1]
        return cfg.scale * loss

    def adapted(self) -> str:
        return extractor.describe(self.parameters)
