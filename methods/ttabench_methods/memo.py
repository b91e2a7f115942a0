"""MEMO: marginal entropy minimisation with one test point (Zhang et al., NeurIPS 2022).

| symbol   | name      |                                                                              |
| -------- | --------- | ---------------------------------------------------------------------------- |
| x̃_1 … x̃_B | views   | `augmix` views of one image                                                  |
| p̄_θ(y|x) | –         | mean of the softmax over the views (Eq. 1)                                   |
| ℓ(θ; x)  | marginal_entropy | entropy of p̄, natural logarithm (Eq. 2)                               |
| η        | lr        | θ ← θ − η ∇ℓ, all parameters, `steps` times                                  |
| N        | prior     | batch norm: N/(N + 1) source statistics + 1/(N + 1) those of the batch       |

Every image is adapted to by itself, and the model returns to the source before the next: results do not
depend on the batch size, and offline mode learns nothing beforehand. Scored: the image itself, after the
update.

Deviations: AdamW, which the paper uses for two ImageNet models, is not offered. For ImageNet the official
views start from a random resized crop; here they start from a crop at all sizes. Pixels are not rounded to
bytes between operations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from ttabench import nn as tta
from ttabench.method import Batches, Count, Method, Needs, NonNegative, SourceData
from ttabench_methods import references
from ttabench_methods.augmix import augmix

VALUES_AT_ONCE = 2**23  # pixel values that views are drawn for together


@dataclass(frozen=True, slots=True, kw_only=True)
class MEMOConfig:
    """Defaults: official, CIFAR-10 (32 views, lr 0.005); N = 16 is from the ImageNet experiments."""

    views: Count = 32
    lr: NonNegative = 5e-3
    steps: Count = 1
    prior: NonNegative = 16.0


def marginal_entropy(logits: Tensor) -> Tensor:
    """Entropy of the mean softmax over the views (Eq. 2): (V, C) → ()."""
    log_p = torch.log_softmax(tta.widen(logits), dim=1)
    log_mean = torch.logsumexp(log_p, dim=0) - math.log(len(logits))
    return -(log_mean.exp() * log_mean).sum()


class MEMO(Method[MEMOConfig]):
    """Make the views of an image agree, and be sure, before classifying it."""

    name = "memo"
    paper = references.MEMO
    needs = Needs(gradient=True)
    Config = MEMOConfig
    batch_size = 1
    scores = "a forward pass after the update, which is made for each image by itself"
    scores_frozen = scores
    restores = "everything, before each image"
    deviations = "views start from a crop at all image sizes; no AdamW"

    @classmethod
    def for_dataset(cls, dataset: str, num_classes: int) -> Mapping[str, Any]:
        """ImageNet: official, ResNet50."""
        return {"views": 64, "lr": 2.5e-4} if num_classes >= 1000 else {}

    def setup(self, source: SourceData | None) -> None:
        tta.adapt_batch_norm(self.model, weight=1 / (self.config.prior + 1))
        self.model.requires_grad_(True)

    def adapt(self, x: Tensor) -> Tensor:
        return self.predict(x)

    def fit(self, batches: Batches, epochs: int = 0) -> None:
        """Nothing: what one image teaches is forgotten before the next."""

    def predict(self, x: Tensor) -> Tensor:
        per_image = self.config.steps * self.config.views
        together = max(1, VALUES_AT_ONCE // (per_image * x[0].numel()))
        return torch.cat([self.classify_all(some) for some in torch.split(x, together)])

    def classify_all(self, x: Tensor) -> Tensor:
        """Logits (B, C) of images (B, 3, H, W); their views are drawn together, for speed only."""
        steps, views = self.config.steps, self.config.views
        drawn = augmix(x.repeat_interleave(steps * views, dim=0)).view(len(x), steps, views, *x.shape[1:])
        return torch.cat([self.classify(image[None], own) for image, own in zip(x, drawn, strict=True)])

    @torch.enable_grad()
    def classify(self, image: Tensor, views: Tensor) -> Tensor:
        """Logits (1, C) of one image (1, 3, H, W) after a step on each set of views (S, V, 3, H, W).

        The adapted parameters are a dictionary beside the model, which stays as it is.
        """
        theta: dict[str, Tensor] = dict(self.model.named_parameters())
        for some in views:
            loss = marginal_entropy(functional_call(self.model, theta, some))
            gradients = torch.autograd.grad(loss, list(theta.values()), materialize_grads=True)
            theta = {
                name: (p - self.config.lr * g).detach().requires_grad_(True)
                for (name, p), g in zip(theta.items(), gradients, strict=True)
            }
        with torch.no_grad():
            logits: Tensor = functional_call(self.model, theta, image)
        return logits

    def adapted(self) -> str:
        return f"all {sum(p.numel() for p in self.model.parameters()):,} parameters, for each image anew"
