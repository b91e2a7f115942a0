"""TEA: lower the energy of test images, raise that of imagined ones (Yuan et al., CVPR 2024).

| symbol | name      |                                                                                       |
| ------ | --------- | ------------------------------------------------------------------------------------- |
| E(x)   | energy    | −log Σ_c exp f_c(x), with f the logits                                                |
| x̃      | imagined  | images from K = `sgld_steps` steps of Langevin dynamics (SGLD):                       |
|        |           | x̃ ← x̃ − α ∂E/∂x̃ + σ ε, ε ~ N(0, 1)                                                  |
| α      | sgld_lr   | step of SGLD, in pixels of [0, 1]                                                     |
| σ      | sgld_std  | noise of SGLD                                                                         |
| B      | buffer    | images where SGLD goes on; at first U(−1, 1)                                          |
| ρ      | restart   | share of the images that SGLD starts anew, from U(−1, 1)                              |

Loss: mean E(x) − mean E(x̃), as many images x̃ as x. Adapted: affine parameters of batch norm, which uses the
statistics of the current batch, also where that is x̃. Scored: a second forward pass, after the update.

Deviations: a reset clears the buffer too; in the official code it stays. Without batch norm, all norm layers
are adapted. The official code has settings for images of 32 pixels alone; with 1,000 classes, the optimiser
is TENT's, and the buffer is smaller, for memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ttabench import nn as tta
from ttabench.method import Count, Natural, Needs, NonNegative, SourceData, UnitInterval
from ttabench_methods import references


@dataclass(frozen=True, slots=True, kw_only=True)
class TEAConfig(tta.NormSettings):
    """Defaults: the official CIFAR-10-C configuration (batch size 200)."""

    steps: Count = 1  # updates per batch
    sgld_steps: Natural = 20  # K: steps of SGLD per update
    sgld_lr: NonNegative = 0.1  # α: step of SGLD, in pixels of [0, 1]
    sgld_std: NonNegative = 0.01  # σ: noise of SGLD
    buffer: Count = 10_000  # images in the buffer, from which SGLD goes on
    restart: UnitInterval = 0.05  # ρ: share of the images that SGLD starts anew


def energy(logits: Tensor) -> Tensor:
    """E of logits: (B, C) → (B,)."""
    return -tta.widen(logits).logsumexp(dim=1)


class TEA(tta.NormAdapter[TEAConfig]):
    """Contrastive divergence: test images become likely, and what SGLD imagines unlikely."""

    name = "tea"
    paper = references.TEA
    needs = Needs(gradient=True, norm_layers=("batch",))
    Config = TEAConfig
    imagenet_batch_size = 64
    scores = "a second forward pass, after the update"
    deviations = (
        "a reset clears the buffer of images (official: it stays); settings for 1,000 classes are ours; "
        "without batch norm, all norm layers are adapted; dropout and stochastic depth stay in eval mode"
    )

    @classmethod
    def for_dataset(cls, dataset: str, num_classes: int) -> Mapping[str, Any]:
        """1,000 classes: TENT's optimiser, and 1,000 images in the buffer (ours)."""
        return {"optimizer": "sgd", "lr": 2.5e-4, "buffer": 1000} if num_classes >= 1000 else {}

    def setup(self, source: SourceData | None) -> None:
        self.collect()
        self.buffer: Tensor | None = None

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        for _ in range(self.config.steps):
            imagined = self.imagine(x)
            loss = energy(self.model(x)).mean() - energy(self.model(tta.channels_last(imagined))).mean()
            tta.minimise(loss, self.optimizer)
        return self.predict(x)

    def imagine(self, x: Tensor) -> Tensor:
        """x̃, as many images of the size of x (B, 3, H, W); the buffer keeps them."""
        buffer = self.uniform(self.config.buffer, x) if self.buffer is None else self.buffer
        places = torch.randint(len(buffer), (len(x),), device=x.device)
        anew = torch.rand(len(x), 1, 1, 1, device=x.device) < self.config.restart
        start = torch.where(anew, self.uniform(len(x), x), buffer[places])
        imagined = self.sgld(start)
        self.buffer = buffer.index_copy(0, *newest(places, imagined))
        return imagined

    @staticmethod
    def uniform(count: int, like: Tensor) -> Tensor:
        """Images of U(−1, 1)."""
        return 2 * torch.rand(count, *like.shape[1:], device=like.device, dtype=like.dtype) - 1

    def sgld(self, x: Tensor) -> Tensor:
        """K steps of Langevin dynamics from images (B, 3, H, W)."""
        for _ in range(self.config.sgld_steps):
            x = x.detach().requires_grad_(True)
            (downhill,) = torch.autograd.grad(energy(self.model(tta.channels_last(x))).sum(), x)
            x = x - self.config.sgld_lr * downhill + self.config.sgld_std * torch.randn_like(x)
        return x.detach()


def newest(places: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
    """Each place once, with the last of its images, so that writing does not depend on an order."""
    unique, which = torch.unique(places, return_inverse=True)
    order = torch.arange(len(places), device=places.device)
    last = torch.zeros_like(unique).scatter_reduce(0, which, order, "amax")
    return unique, images[last]
