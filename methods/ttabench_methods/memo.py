"""MEMO: marginal entropy minimisation with one test point (Zhang et al., NeurIPS 2022).

| symbol   | name      |                                                                              |
| -------- | --------- | ---------------------------------------------------------------------------- |
| x̃_1 … x̃_B | views   | `augmix` views of one image                                                  |
| p̄_θ(y|x) | –         | mean of the softmax over the views (Eq. 1)                                   |
| ℓ(θ; x)  | marginal_entropy | entropy of p̄, natural logarithm (Eq. 2)                               |
| η        | lr        | `steps` steps of SGD or AdamW on ℓ, all parameters                           |
| N        | prior     | batch norm: N/(N + 1) source statistics + 1/(N + 1) those of its input       |

The model adapts to each image separately and returns to the source before the next image: results do not
depend on the batch size, and offline mode learns nothing in advance. Scored: the image itself, after the
update. Where the paper is silent, this follows the official code: batch norm takes the unbiased variance of
its input, and no gradient flows through its statistics.

Deviations: the optimiser is reset after each image too; with `official_quirks=True` its state (AdamW's
averages) stays from image to image, as in the official code. For ImageNet the official views start from a
random resized crop; here they start from a crop at all sizes. Pixels are not rounded to bytes between
operations.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ttabench import nn as tta
from ttabench.method import Batches, Count, Method, Needs, NonNegative, SourceData
from ttabench_methods import references
from ttabench_methods.augmix import augmix

VALUES_AT_ONCE = 2**23  # pixel values of all views that are made together


@dataclass(frozen=True, slots=True, kw_only=True)
class MEMOConfig:
    """Defaults: official, CIFAR-10 (32 views, SGD, lr 0.005); N = 16 is from the ImageNet experiments.

    optimizer  "sgd", without momentum, or "adamw", official for two ImageNet models (lr 1e-5, weight_decay
               0.01; decoupled, where SGD's is an L2 term).
    """

    views: Count = 32
    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: NonNegative = 5e-3  # η: learning rate
    weight_decay: NonNegative = 0.0  # weight decay of the optimiser; official: 0.01 with AdamW
    steps: Count = 1  # updates per image
    prior: NonNegative = 16.0
    official_quirks: bool = False  # the optimiser keeps its state from image to image


def marginal_entropy(logits: Tensor) -> Tensor:
    """Entropy of the mean softmax over the views (Eq. 2): (V, C) → ()."""
    log_p = torch.log_softmax(tta.widen(logits), dim=1)
    log_mean = torch.logsumexp(log_p, dim=0) - math.log(len(logits))
    return -(log_mean.exp() * log_mean).sum()


class MEMO(Method[MEMOConfig]):
    """Make the predictions for the views of an image certain and equal before classifying it."""

    name = "memo"
    paper = references.MEMO
    needs = Needs(gradient=True)
    Config = MEMOConfig
    batch_size = 1
    scores = "a forward pass after the update; each image is adapted to separately"
    scores_frozen = scores
    restores = "everything, before each image"
    deviations = (
        "views start from a crop at all image sizes; the optimiser is reset after each image "
        "(official_quirks: it keeps its state)"
    )

    @classmethod
    def for_dataset(cls, dataset: str, num_classes: int) -> Mapping[str, Any]:
        """ImageNet: official, ResNet50."""
        return {"views": 64, "lr": 2.5e-4} if num_classes >= 1000 else {}

    def setup(self, source: SourceData | None) -> None:
        cfg = self.config
        tta.adapt_batch_norm(self.model, "unbiased", weight=1 / (cfg.prior + 1), gradient=False)
        self.parameters = dict(self.model.requires_grad_(True).named_parameters())
        self.theta0 = tta.snapshot(self.parameters)
        momentum = 0.9 if cfg.optimizer == "adamw" else 0.0
        self.optimizer = tta.make_optimizer(
            cfg.optimizer, self.parameters.values(), cfg.lr, momentum, cfg.weight_decay
        )

    def adapt(self, x: Tensor) -> Tensor:
        per_image = self.config.steps * self.config.views
        together = max(1, VALUES_AT_ONCE // (per_image * x[0].numel()))
        return torch.cat([self.classify_all(some) for some in torch.split(x, together)])

    def fit(self, batches: Batches, epochs: int = 0) -> None:
        """Do nothing: the model returns to the source after each image."""

    def predict(self, x: Tensor) -> Tensor:
        state = copy.deepcopy(self.optimizer.state_dict())
        logits = self.adapt(x)
        self.optimizer.load_state_dict(state)
        return logits

    def classify_all(self, x: Tensor) -> Tensor:
        """Logits (B, C) of images (B, 3, H, W); their views are drawn together, for speed only."""
        return torch.cat(
            [self.classify(image[None], views) for image, views in zip(x, self.draw_views(x), strict=True)]
        )

    def draw_views(self, x: Tensor) -> Tensor:
        """For each image and step its views: (B, 3, H, W) → (B, S, V, 3, H, W)."""
        steps, views = self.config.steps, self.config.views
        drawn = tta.channels_last(augmix(x.repeat_interleave(steps * views, dim=0)))
        return drawn.view(len(x), steps, views, *x.shape[1:])

    @torch.enable_grad()
    def classify(self, image: Tensor, views: Tensor) -> Tensor:
        """Logits (1, C) of one image (1, 3, H, W) after a step on each set of views (S, V, 3, H, W)."""
        for some in views:
            tta.minimise(marginal_entropy(self.model(some)), self.optimizer)
        with torch.no_grad():
            logits: Tensor = self.model(image)
        self.forget()
        return logits

    def forget(self) -> None:
        """Back to the source."""
        tta.pull(self.parameters, self.theta0)
        self.optimizer.zero_grad()
        if not self.config.official_quirks:
            self.optimizer.state.clear()

    def adapted(self) -> str:
        return f"all {sum(p.numel() for p in self.model.parameters()):,} parameters, for each image anew"
