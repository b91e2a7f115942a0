"""SPA: a deteriorated image is to be predicted as the image itself (Niu et al., ICML 2025).

| symbol | name      |                                                                                     |
| ------ | --------- | ----------------------------------------------------------------------------------- |
| g      | predictor | a linear map of the features, the identity at first; for deteriorated images alone   |
| x̃_l   | masked    | low frequencies of the image, a fifth of the side, each lost with probability `mask` |
| x̃_n   | noisy     | (1 − α²) x + α² ε, one α and one ε ~ N(0, 1) for each of `grid`² squares             |
| α      | amounts   | learned to raise the loss, with mean α² = `noise`                                   |

Loss: for each x̃, KL(prediction on x ‖ prediction on x̃ through g), the mean over the images that are predicted
with more confidence than their x̃. The target has no gradient. Adapted: affine parameters of all norm layers,
and g. Scored: the forward pass of the images, before the update. Pixels are moved to [−1, 1] for noise and
mask, as ViT-B's normalisation does.

Deviations: the official code has images of 224 pixels with squares of 16; here `grid` squares of any size
stand for them. It normalises ResNet-50's images otherwise, and clips them to [−1, 1] as well. Settings of
networks with batch norm are those of group norm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from ttabench import nn as tta
from ttabench.method import Architecture, Count, Needs, NonNegative, SourceData, UnitInterval
from ttabench_methods import references

LOW = 0.2  # side of the square of low frequencies, over that of the image
AMOUNTS_LR = 1.0  # learning rate of the amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class SPAConfig(tta.NormSettings):
    """Defaults: the official configuration for ViT-B on ImageNet-C (batch size 64)."""

    norms: Literal["batch", "all"] = "all"
    optimizer: Literal["sgd", "nesterov"] = "sgd"
    lr: NonNegative = 0.01
    predictor_lr: NonNegative = 0.05  # learning rate of g
    mask: UnitInterval = 0.2  # probability that a low frequency is lost
    noise: UnitInterval = 0.4  # mean share of noise, α²
    grid: Count = 14  # squares per side with an amount of noise each


def symmetric_mask(images: Tensor, lost: float) -> Tensor:
    """What is left of each frequency, 0 or 1, of images (B, 3, H, W), in the order of `torch.fft.fft2`.

    A frequency and its opposite, which are one wave, share a draw, so that real images stay real.
    """
    height, width = images.shape[-2:]
    rows, columns = (low_frequencies(side, images.device) for side in (height, width))
    kept = torch.rand(*images.shape, device=images.device) >= lost
    first = (rows[1] < 0)[:, None] | ((rows[1] == 0)[:, None] & (columns[1] >= 0))
    mask = kept | ~(first & rows[0][:, None] & columns[0])
    opposite = mask.flip((-2, -1)).roll((1, 1), (-2, -1))
    return (mask & opposite).to(images.dtype)


def low_frequencies(side: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Which of the frequencies of a side are low, and the frequencies: (side,) bool, (side,) int."""
    frequency = torch.fft.fftfreq(side, 1 / side, device=device).round().long()
    count = max(1, int(side * LOW))
    begin = side - (side - count) // 2 - count
    shifted = frequency + side // 2
    return (begin <= shifted) & (shifted < begin + count), frequency


def without_low_frequencies(x: Tensor, lost: float) -> Tensor:
    """Images whose low frequencies are lost at random: (B, 3, H, W) → (B, 3, H, W)."""
    wide = tta.widen(x)
    left: Tensor = torch.fft.ifft2(torch.fft.fft2(wide) * symmetric_mask(wide, lost)).real
    return left.to(x.dtype)


def noisy(x: Tensor, amounts: Tensor) -> Tensor:
    """Images (B, 3, H, W) mixed with noise by the squares of amounts (G, G); the batch shares the noise."""
    share = interpolate(amounts.square()[None, None], x.shape[-2:]).to(x.dtype)
    noise = torch.randn(1, *x.shape[1:], device=x.device, dtype=x.dtype)
    return ((1 - share) * x + share * noise).clamp(-1, 1)


class SPA(tta.NormAdapter[SPAConfig]):
    """Consistency of an image with itself under masked frequencies and under learned noise."""

    name = "spa"
    paper = references.SPA
    needs = Needs(gradient=True, norm_layers=("batch", "group", "layer", "instance"))
    Config = SPAConfig
    batch_size = 64
    deviations = (
        "grid squares of any size (official: 16 pixels of 224); pixels in [−1, 1] on every network; settings "
        "with batch norm are those of group norm; dropout and stochastic depth stay in eval mode"
    )

    @classmethod
    def for_architecture(cls, arch: Architecture) -> Mapping[str, Any]:
        """ResNet-50 with group norm: official; also with batch norm."""
        if not {"batch", "group"} & set(arch.norm_layers):
            return {}
        return {"lr": 2.5e-3, "predictor_lr": 0.025, "mask": 0.1, "noise": 0.1}

    def setup(self, source: SourceData | None) -> None:
        cfg, like = self.config, self.model.linear.weight
        self.collect()
        self.predictor = nn.Parameter(torch.eye(self.model.num_features).to(like))
        self.optimizer.add_param_group({"params": [self.predictor], "lr": cfg.predictor_lr})
        self.amounts = nn.Parameter(torch.full((cfg.grid, cfg.grid), cfg.noise**0.5).to(like))
        self.amounts_optimizer = tta.make_optimizer("sgd", [self.amounts], AMOUNTS_LR)

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            logits: Tensor = self.model(x)
        pixels = 2 * x - 1
        masked = without_low_frequencies(pixels, self.config.mask)
        self.optimizer.zero_grad()
        self.amounts_optimizer.zero_grad()
        torch.autograd.backward(self.consistency(masked, logits))  # one graph in memory at a time
        torch.autograd.backward(self.consistency(noisy(pixels, self.amounts), logits))
        self.optimizer.step()
        self.raise_amounts()
        return logits.detach()

    def consistency(self, pixels: Tensor, logits: Tensor) -> Tensor:
        """KL of deteriorated images in [−1, 1] with the logits (B, C) of the images: a scalar."""
        z = self.model.features(tta.channels_last((pixels + 1) / 2))
        low = self.model.head(z @ self.predictor.T.to(z.dtype))
        p, q = tta.widen(logits).softmax(dim=1), tta.widen(low).log_softmax(dim=1)
        surer = p.amax(dim=1) > q.detach().exp().amax(dim=1)
        divergence = (torch.special.xlogy(p, p) - p * q).sum(dim=1)
        return tta.masked_mean(divergence, surer)

    @torch.no_grad()
    def raise_amounts(self) -> None:
        """A step of the amounts uphill, back to their mean share of noise, at most 1."""
        if self.amounts.grad is not None:
            self.amounts.grad.neg_()
        self.amounts_optimizer.step()
        scale = (self.amounts.square().mean() / self.config.noise).sqrt() if self.config.noise else 1.0
        self.amounts.div_(scale).clamp_(-1, 1)
