"""ROID's random view of images: colours, affine map, mirror; beyond the border, the image is reflected.

The transforms are those of ROID's official code (Marsden et al., WACV 2024): CoTTA's list without blur and
noise, padded by reflection. One set of draws, from torch's CPU generator, serves the whole batch.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from ttabench import nn as tta
from ttabench_methods.colour import colour_jitter, uniform


@torch.no_grad()
def reflected_view(x: Tensor) -> Tensor:
    """One random view of a batch (B, 3, H, W) in [0, 1], same shape and range."""
    x = affine(colour_jitter(x.clamp(0, 1)))
    return tta.channels_last(x.flip(-1) if torch.rand(1).item() < 0.5 else x)


def affine(x: Tensor) -> Tensor:
    """Rotate by ±15°, shift by up to an eighth of the side (whole pixels), scale by 0.9 to 1.1: same shape.

    Bilinear. The reflection does not repeat the border pixels, like ``reflect`` of `torch.nn.functional.pad`.
    """
    height, width = x.shape[-2:]
    angle = math.radians(uniform(-15, 15))
    shift_x = round(uniform(-width / 8, width / 8))
    shift_y = round(uniform(-height / 8, height / 8))
    scale = uniform(0.9, 1.1)
    u = from_centre(width, x) - shift_x
    v = from_centre(height, x)[:, None] - shift_y
    cos, sin = math.cos(angle) / scale, math.sin(angle) / scale
    across, down = (cos * u + sin * v) * (2 / (width - 1)), (cos * v - sin * u) * (2 / (height - 1))
    grid = torch.stack([across, down], -1).expand(len(x), -1, -1, -1)
    return grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=True)


def from_centre(side: int, like: Tensor) -> Tensor:
    """Pixel positions of a side, 0 in the middle: (side,)."""
    reach = (side - 1) / 2
    return torch.linspace(-reach, reach, side, device=like.device, dtype=like.dtype)
