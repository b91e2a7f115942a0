"""Random views of images: those of CoTTA and RoTTA.

The list of transforms is that of Wang et al., Continual Test-Time Domain Adaptation (CVPR 2022), in its
official code: colour jitter in random order, affine map, Gaussian blur, mirror, noise. Pixels are in
[0, 1] before and after. One set of draws serves the whole batch; the scalars come from torch's CPU
generator, the noise from that of the batch's device.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from ttabench_methods.colour import colour_jitter, uniform

View = Callable[[Tensor], Tensor]

MARGIN = 2  # pixels beyond the image that the 5 × 5 blur uses


def random_view(x: Tensor) -> Tensor:
    """One random view of a batch (B, 3, H, W) in [0, 1], same shape and range."""
    x = colour_jitter(x.clamp(0, 1))
    x = blur(affine(x), sigma=uniform(0.001, 0.5))
    if torch.rand(1).item() < 0.5:
        x = x.flip(-1)
    noise = torch.randn(x.shape, device=x.device, dtype=torch.float32)
    return x.add(noise, alpha=0.005).clamp_(0, 1)


def affine(x: Tensor) -> Tensor:
    """Rotate by ±15°, shift by up to an eighth of the side (whole pixels), scale by 0.9 to 1.1.

    Bilinear; border pixels are repeated outwards. Returns (B, 3, H + 4, W + 4): the image and MARGIN around
    it.
    """
    height, width = x.shape[-2:]
    angle = math.radians(uniform(-15, 15))
    shift_x = round(uniform(-width / 8, width / 8))
    shift_y = round(uniform(-height / 8, height / 8))
    scale = uniform(0.9, 1.1)
    u = from_centre(width, x) - shift_x
    v = from_centre(height, x)[:, None] - shift_y
    cos, sin = math.cos(angle) / scale, math.sin(angle) / scale
    grid = torch.stack([(cos * u + sin * v) * (2 / width), (cos * v - sin * u) * (2 / height)], -1)
    return grid_sample(
        x, grid.expand(len(x), -1, -1, -1), mode="bilinear", padding_mode="border", align_corners=False
    )


def from_centre(side: int, like: Tensor) -> Tensor:
    """Pixel positions of a side and its margins, 0 in the middle: (side + 4,)."""
    reach = (side - 1) / 2 + MARGIN
    return torch.linspace(-reach, reach, side + 2 * MARGIN, device=like.device, dtype=like.dtype)


def blur(x: Tensor, sigma: float) -> Tensor:
    """Gaussian blur, 5 × 5, normalised: (B, 3, H + 4, W + 4) → (B, 3, H, W)."""
    weights = [math.exp(-0.5 * (k / sigma) ** 2) for k in range(-MARGIN, MARGIN + 1)]
    total = sum(weights)
    for dim in (-2, -1):
        side = x.shape[dim] - 2 * MARGIN
        blurred = torch.zeros_like(x.narrow(dim, 0, side))
        for k, weight in enumerate(weights):
            blurred.add_(x.narrow(dim, k, side), alpha=weight / total)
        x = blurred
    return x
