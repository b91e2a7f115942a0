"""TTT++'s feature alignment, online and without its queue (Liu et al., NeurIPS 2021).

| symbol   | name       |                                                                              |
| -------- | ---------- | ---------------------------------------------------------------------------- |
| z        | z          | features: the input of the last linear layer, d numbers                      |
| μ_s      | mean       | mean of source features                                                      |
| C_s      | covariance | their covariance                                                             |
| μ_t, C_t | –          | the same of the batch, C_t divided by b − 1                                  |
| CORAL    | coral      | ‖C_s − C_t‖²_F / 4d²                                                         |
| MMD      | mmd        | mean over the entries of (μ_s − μ_t)²                                        |
| –        | noise      | expected CORAL and MMD between the source and b source images                |

Loss: `scale` · (CORAL / its noise + ½ MMD / its noise). All layers but the last learn. In this pass batch
norm uses the batch's statistics and updates its running statistics. Scored: a second forward pass, after the
step, with the running statistics.

Deviations: alignment only, without the contrastive task and its head. No queue: moments are those of the
batch. The noise is computed from C_s, for Gaussian features; the official code averages over source batches.
It also passes over the target until the *test error* stops falling, and lowers the learning rate by it, which
needs labels; here each batch is seen once, or in each epoch of an offline protocol. A batch of one image has
no covariance.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ttabench import nn as tta
from ttabench.method import Method, Momentum, Natural, Needs, NonNegative, SourceData
from ttabench_methods import extractor, references


@dataclass(frozen=True, slots=True, kw_only=True)
class CORALConfig:
    """Defaults: the official ones for CIFAR-10, but a tenth of the lr, so that small networks do not diverge.
    source_images: 0 = all.
    """

    lr: NonNegative = 1e-3  # learning rate; a tenth of the official one
    momentum: Momentum = 0.9  # momentum of SGD
    scale: NonNegative = 0.05  # weight of the loss
    source_images: Natural = 10_000  # images for the source's moments; 0 = all


def coral(source: Tensor, target: Tensor) -> Tensor:
    """‖C_s − C_t‖²_F / 4d² of covariances (d, d)."""
    return (source - target).square().sum() / (4 * len(source) ** 2)


def mmd(source: Tensor, target: Tensor) -> Tensor:
    """mean (μ_s − μ_t)² of means (d,)."""
    return (source - target).square().mean()


def noise(covariance: Tensor, b: int) -> tuple[Tensor, Tensor]:
    """Expected CORAL and MMD between a Gaussian of this covariance (d, d) and b draws from it."""
    d, trace = len(covariance), covariance.trace()
    wishart = (trace.square() + covariance.square().sum()) / max(b - 1, 1)
    return wishart / (4 * d**2), trace / (d * b)


class CORAL(Method[CORALConfig]):
    """Match mean and covariance of the features."""

    name = "coral"
    paper = references.CORAL
    needs = Needs(gradient=True, source_data="statistics", source_statistics=("gaussian",))
    Config = CORALConfig
    family = "alignment"
    batch_size = 256
    scores = "a second forward pass, after the update, with the updated running statistics"
    deviations = (
        "TTT++'s alignment alone, without its contrastive task and its queue; the test error does not decide "
        "when to stop, nor the learning rate (official code: both); a tenth of the official lr"
    )

    def setup(self, source: SourceData | None) -> None:
        if source is None:
            raise ValueError("CORAL needs moments of source features; pass source data to prepare(source)")
        cfg = self.config
        self.mean, self.covariance = source.gaussian(self.model, cfg.source_images)
        self.parameters = extractor.learn_extractor(self.model)
        self.optimizer = tta.make_optimizer("sgd", self.parameters.values(), cfg.lr, cfg.momentum)

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        z, _ = extractor.train_features(self.model, x)
        with torch.autocast(x.device.type, enabled=False):
            tta.minimise(self.loss(z), self.optimizer)
        return self.predict(x)

    def loss(self, z: Tensor) -> Tensor:
        """The loss of features (b, d)."""
        batch = tta.RunningMoments("covariance")
        batch.add(z)
        coral_noise, mmd_noise = noise(self.covariance, len(z))
        loss = mmd(self.mean, batch.mean) / mmd_noise / 2
        if len(z) > 1:
            loss = loss + coral(self.covariance, batch.second(correction=1)) / coral_noise
        return self.config.scale * loss

    def adapted(self) -> str:
        return extractor.describe(self.parameters)
