"""RandAugment (Cubuk et al. 2020) of a whole batch on the device.

The fifteen operations and their ranges are those of the Compact Transformers' recipes ("rand-m9-
mstd0.5-inc1": stronger with rising magnitude). Each image gets two random operations in sequence, each
applied with probability 1/2. The magnitude is drawn around the given one. All images with the same operation
are processed together. Geometric operations interpolate bilinearly and fill uncovered pixels with grey.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

LAYERS = 2
SPREAD = 0.5  # standard deviation of the magnitude
GREY = 0.5


def randaugment(x: Tensor, magnitude: float, draw: np.random.Generator) -> Tensor:
    """x (B, 3, H, W) in [0, 1] → the same; `magnitude` in 0 … 10. All randomness comes from `draw`."""
    x = x.clone()
    drawn = [drawn for _ in range(LAYERS) for drawn in _draw_layer(len(x), magnitude, draw)]
    # A copy to a GPU costs as much as an operation, so all go in one: floats as the integers of their bits.
    where, signed = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    sent = torch.from_numpy(np.stack((where.astype(np.int32), signed.astype(np.float32).view(np.int32))))
    indices, strengths = sent.to(x.device)
    sizes = [len(where) for where, _ in drawn]
    levels = strengths.view(torch.float32).to(x.dtype)[:, None, None, None].split(sizes)
    operations = [*OPERATIONS.values()] * LAYERS
    for operation, index, level in zip(operations, indices.split(sizes), levels, strict=True):
        if len(index):
            x[index] = operation(x[index], level).clamp(0, 1)
    return x


def _draw_layer(
    images: int, magnitude: float, draw: np.random.Generator
) -> list[tuple[NDArray[np.intp], NDArray[np.float64]]]:
    """Of each operation: the images that get it, and its signed strength on each."""
    chosen = draw.integers(len(OPERATIONS), size=images)
    strength = np.clip(draw.normal(magnitude, SPREAD, images), 0, 10) / 10
    signed = strength * draw.choice((-1.0, 1.0), images)
    applied = draw.random(images) < 0.5
    every = (np.flatnonzero(applied & (chosen == k)) for k in range(len(OPERATIONS)))
    return [(where, signed[where]) for where in every]


# Every operation takes images (b, 3, H, W) and a signed strength (b, 1, 1, 1) in −1 … 1.


def affine(x: Tensor, entries: Mapping[tuple[int, int], Tensor]) -> Tensor:
    """Sample at M · (right, down, 1), positions from −1 to 1; M (2, 3) is the identity but for `entries`."""
    matrix = torch.eye(2, 3, device=x.device, dtype=x.dtype).repeat(len(x), 1, 1)
    for (row, column), values in entries.items():
        matrix[:, row, column] = values.flatten()
    grid = F.affine_grid(matrix, list(x.shape), align_corners=False)
    return F.grid_sample(x - GREY, grid, align_corners=False) + GREY


def rotate(x: Tensor, s: Tensor) -> Tensor:
    angle = s * np.deg2rad(30)
    cos, sin = angle.cos(), angle.sin()
    return affine(x, {(0, 0): cos, (0, 1): -sin, (1, 0): sin, (1, 1): cos})


def shear_x(x: Tensor, s: Tensor) -> Tensor:
    return affine(x, {(0, 1): 0.3 * s})


def shear_y(x: Tensor, s: Tensor) -> Tensor:
    return affine(x, {(1, 0): 0.3 * s})


def translate_x(x: Tensor, s: Tensor) -> Tensor:
    return affine(x, {(0, 2): 0.9 * s})


def translate_y(x: Tensor, s: Tensor) -> Tensor:
    return affine(x, {(1, 2): 0.9 * s})


def luma(x: Tensor) -> Tensor:
    return (x * x.new_tensor((0.299, 0.587, 0.114)).view(1, 3, 1, 1)).sum(1, keepdim=True)


def away_from(x: Tensor, plain: Tensor, s: Tensor) -> Tensor:
    """plain + (1 + 0.9 s)(x − plain)"""
    return plain + (1 + 0.9 * s) * (x - plain)


def color(x: Tensor, s: Tensor) -> Tensor:
    return away_from(x, luma(x), s)


def contrast(x: Tensor, s: Tensor) -> Tensor:
    return away_from(x, luma(x).mean(dim=(2, 3), keepdim=True), s)


def brightness(x: Tensor, s: Tensor) -> Tensor:
    return away_from(x, torch.zeros_like(x), s)


def sharpness(x: Tensor, s: Tensor) -> Tensor:
    kernel = x.new_tensor([[1, 1, 1], [1, 5, 1], [1, 1, 1]]).div(13).expand(3, 1, 3, 3)
    smooth = x.clone()
    smooth[:, :, 1:-1, 1:-1] = F.conv2d(x, kernel, groups=3)  # the border stays as it is
    return away_from(x, smooth, s)


def posterize(x: Tensor, s: Tensor) -> Tensor:
    """Keep the highest 4 − 4|s| bits of 8."""
    step = 2 ** (4 + (4 * s.abs()).floor())
    return (x * 255 / step).floor() * step / 255


def solarize(x: Tensor, s: Tensor) -> Tensor:
    """Invert what is above 1 − |s|."""
    return torch.where(x < 1 - s.abs(), x, 1 - x)


def solarize_add(x: Tensor, s: Tensor) -> Tensor:
    """Brighten the darker half."""
    return torch.where(x < 128 / 255, x + 110 / 255 * s.abs(), x)


def invert(x: Tensor, s: Tensor) -> Tensor:
    return 1 - x


def autocontrast(x: Tensor, s: Tensor) -> Tensor:
    """Stretch each channel to 0 … 1; flat channels stay."""
    low, high = x.amin(dim=(2, 3), keepdim=True), x.amax(dim=(2, 3), keepdim=True)
    return torch.where(high > low, (x - low) / (high - low).clamp_min(1e-6), x)


def equalize(x: Tensor, s: Tensor) -> Tensor:
    """Flatten the histogram of each channel, in whole levels of 256 as Pillow counts them."""
    levels = (x * 255).round().long().flatten(2).flatten(0, 1)  # (3b, H·W)
    counts = torch.zeros(len(levels), 256, dtype=torch.long, device=x.device)
    counts.scatter_add_(1, levels, torch.ones_like(levels))
    at_top = counts.gather(1, levels.amax(1, keepdim=True))
    step = (levels.shape[1] - at_top) // 255
    table = ((counts.cumsum(1) - counts + step // 2) // step.clamp_min(1)).clamp(0, 255)
    return torch.where(step > 0, table.gather(1, levels), levels).view_as(x) / 255


OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    operation.__name__: operation
    for operation in (
        autocontrast, equalize, invert, rotate, posterize, solarize, solarize_add, color, contrast,
        brightness, sharpness, shear_x, shear_y, translate_x, translate_y,
    )
}  # fmt: skip
