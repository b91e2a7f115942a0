"""AugMix views of images, as MEMO draws them (Hendrycks et al., ICLR 2020, at its lowest severity).

A view of x is m·x₀ + (1 − m)·Σ_c w_c·chain_c(x₀): x₀ is a random crop, perhaps mirrored; a chain is one to
three random operations; w ~ Dirichlet(1, 1, 1), m ~ Beta(1, 1). Operations and ranges are those of MEMO's
CIFAR-10 experiments, on pixels in [0, 1]. As there, pixels uncovered by rotations and shifts are dark red:
the official code passes the colour 128 to PIL, which reads it as (128, 0, 0). All views are made at once, on
the device of the images, with torch's generator of that device.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

CHAINS, DEPTH = 3, 3
LEVELS = 256  # of a pixel, where an operation counts in bytes
FILL = (128 / 255, 0.0, 0.0)  # pixels uncovered by rotations and shifts


@torch.no_grad()
def augmix(x: Tensor) -> Tensor:
    """One view of each image: (V, 3, H, W) in [0, 1] → the same."""
    x = mirror(crop(x))
    chains = x.repeat(CHAINS, 1, 1, 1)
    length = torch.randint(1, DEPTH + 1, (len(chains), 1, 1, 1), device=x.device)
    for step in range(DEPTH):
        chains = torch.where(step < length, operate(chains), chains)
    share = -draw(len(chains), x).log().view(CHAINS, -1, 1, 1, 1)  # exponential; normalised: Dirichlet
    mixed = (share / share.sum(0) * chains.view(CHAINS, *x.shape)).sum(0)
    m = draw(len(x), x)
    return torch.lerp(mixed, x, m)


def draw(count: int, like: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    """(count, 1, 1, 1) draws of U(low, high]."""
    return high - (high - low) * torch.rand(count, 1, 1, 1, device=like.device, dtype=like.dtype)


def crop(x: Tensor) -> Tensor:
    """A crop of the same size, from the image with an eighth of its side in black around it."""
    height, width = x.shape[-2:]
    padded = F.pad(x, (width // 8, width // 8, height // 8, height // 8)).permute(0, 2, 3, 1)
    rows, columns = (
        torch.randint(2 * (side // 8) + 1, (len(x), 1), device=x.device) + torch.arange(side, device=x.device)
        for side in (height, width)
    )
    image = torch.arange(len(x), device=x.device)[:, None, None]
    return padded[image, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def mirror(x: Tensor) -> Tensor:
    """Half of the images, mirrored."""
    return torch.where(draw(len(x), x) > 0.5, x.flip(-1), x)


def operate(x: Tensor) -> Tensor:
    """One of nine operations, all equally likely, on each image."""
    choice = torch.randint(9, (len(x), 1, 1, 1), device=x.device)
    out = move(x, choice)  # 0 … 4
    for number, operation in enumerate((solarize, posterize, autocontrast, equalize), start=5):
        out = torch.where(choice == number, operation(x), out)
    return out.clamp(0, 1)


# ---- geometry: rotate, shear x, shear y, shift x, shift y


def move(x: Tensor, choice: Tensor) -> Tensor:
    """Choices 0 … 4: rotate by less than 3°, shear by up to 0.03, shift by less than a thirtieth of the side.

    Whole degrees and pixels, rounded down; other choices leave the image alone. `choice` is (V, 1, 1, 1).
    """
    height, width = x.shape[-2:]
    level = draw(len(x), x, 0.1, 1.0)[:, 0]  # (V, 1, 1)
    sign = draw(len(x), x)[:, 0].sub(0.5).sign()
    rotate, shear_x, shear_y, shift_x, shift_y = (sign * (choice[:, 0] == number) for number in range(5))
    angle = rotate * (3 * level).floor() * (math.pi / 180)
    v = torch.arange(height, device=x.device, dtype=x.dtype)[:, None] + 0.5
    u = torch.arange(width, device=x.device, dtype=x.dtype) + 0.5
    du, dv = u - width / 2, v - height / 2
    from_u = width / 2 + angle.cos() * du - angle.sin() * dv
    from_v = height / 2 + angle.sin() * du + angle.cos() * dv
    from_u = from_u + 0.03 * level * shear_x * v + shift_x * (level * width / 30).floor()
    from_v = from_v + 0.03 * level * shear_y * u + shift_y * (level * height / 30).floor()
    grid = torch.stack([2 * from_u / width - 1, 2 * from_v / height - 1], dim=-1)
    moved = F.grid_sample(x, grid, padding_mode="border", align_corners=False)
    inside = (from_u >= 0) & (from_u < width) & (from_v >= 0) & (from_v < height)
    return torch.where(inside[:, None], moved, x.new_tensor(FILL).view(1, 3, 1, 1))


# ---- colour


def solarize(x: Tensor) -> Tensor:
    """Invert what is brighter than a threshold of 231 to 254."""
    threshold = LEVELS - (25.6 * draw(len(x), x, 0.1, 1.0)).floor()
    return torch.where(x * 255 < threshold, x, 1 - x)


def posterize(x: Tensor) -> Tensor:
    """Four bits per channel."""
    return ((x * 255).round() / 16).floor() * 16 / 255


def autocontrast(x: Tensor) -> Tensor:
    """Stretch each channel to 0 … 1; one that is constant stays."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return torch.where(high > low, (x - low) / (high - low).clamp(min=1e-6), x)


def equalize(x: Tensor) -> Tensor:
    """Flatten the histogram of each channel, as PIL does."""
    level = (x * 255).round().long().flatten(2)
    counts = torch.zeros(*level.shape[:2], LEVELS, dtype=torch.long, device=x.device)
    counts.scatter_add_(2, level, torch.ones_like(level))
    brightest = counts.gather(2, level.amax(2, keepdim=True))
    step = (level.shape[2] - brightest) // 255
    below = counts.cumsum(2) - counts
    table = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    flat = (table.gather(2, level).to(x.dtype) / 255).view_as(x)
    return torch.where(step[..., None] > 0, flat, x)
