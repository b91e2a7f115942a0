"""The random views of images that CoTTA's teacher averages over and RoTTA's student learns from.

The list of transforms is that of Wang et al., Continual Test-Time Domain Adaptation (CVPR 2022), in its
official code: colour jitter in random order, affine map, Gaussian blur, mirror, noise. Pixels are in
[0, 1] before and after. One set of draws serves the whole batch; the scalars come from torch's CPU
generator, the noise from that of the batch's device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

__all__ = ["View", "average_over_views", "random_view"]

View = Callable[[Tensor], Tensor]

MARGIN = 2  # pixels that the 5 × 5 blur sees beyond the image

# Of a forward pass over several views; on a CPU, larger activations soon cost more than fewer calls save.
IMAGES_PER_FORWARD = 512
IMAGES_PER_FORWARD_CPU = 16


def random_view(x: Tensor) -> Tensor:
    """One random view of a batch (B, 3, H, W) in [0, 1], same shape and range."""
    x = colour_jitter(x.clamp(0, 1))
    x = blur(affine(x), sigma=uniform(0.001, 0.5))
    if torch.rand(1).item() < 0.5:
        x = x.flip(-1)
    noise = torch.randn(x.shape, device=x.device, dtype=torch.float32)
    return x.add(noise, alpha=0.005).clamp_(0, 1)


def uniform(low: float, high: float) -> float:
    """One draw of U(low, high)."""
    return torch.empty(1).uniform_(low, high).item()


# ---- colour


def grey(x: Tensor) -> Tensor:
    """Luma: (B, 3, H, W) → (B, 1, H, W)."""
    red, green, blue = x.unbind(1)
    return (0.2989 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114).unsqueeze(1)


def brightness(x: Tensor, f: float) -> Tensor:
    return f * x


def contrast(x: Tensor, f: float) -> Tensor:
    return (f * x).add_(grey(x).mean((2, 3), keepdim=True), alpha=1 - f)


def saturation(x: Tensor, f: float) -> Tensor:
    return (f * x).add_(grey(x), alpha=1 - f)


def hue(x: Tensor, f: float) -> Tensor:
    """Turn the hue by `f` of a full turn, |f| < 1/6; value and chroma, as in HSV, stay."""
    red, green, blue = x.unbind(1)
    value, least = x.amax(1), x.amin(1)
    chroma = value - least
    rise = torch.where(
        value == red,
        green - blue,
        torch.where(value == green, blue - red + 2 * chroma, red - green + 4 * chroma),
    )
    sextant = rise / chroma.clamp(min=1e-12) + 6 * f  # 0 is red, 2 green, 4 blue, 6 red again
    primaries = torch.arange(0, 6, 2, device=x.device, dtype=x.dtype).view(1, 3, 1, 1)
    distance = (sextant.unsqueeze(1) - primaries).abs_()
    share = distance.sub_(3).abs_().sub_(1).clamp_(0, 1)  # 1 up to a sextant away on the circle, 0 from two
    return share.mul_(chroma.unsqueeze(1)).add_(least.unsqueeze(1))


def gamma(x: Tensor, f: float) -> Tensor:
    return x.clamp(1e-8, 1).pow_(f)


JITTER: tuple[tuple[Callable[[Tensor, float], Tensor], float, float], ...] = (
    (brightness, 0.6, 1.4),
    (contrast, 0.7, 1.3),
    (saturation, 0.5, 1.5),
    (hue, -0.06, 0.06),
    (gamma, 0.7, 1.3),
)


def colour_jitter(x: Tensor) -> Tensor:
    """The five steps of JITTER in random order, each clipped to [0, 1]."""
    for step in torch.randperm(len(JITTER)).tolist():
        change, low, high = JITTER[step]
        x = change(x, uniform(low, high)).clamp_(0, 1)
    return x


# ---- geometry


def affine(x: Tensor) -> Tensor:
    """Rotate by ±15°, shift by up to an eighth of the side (whole pixels), scale by 0.9 to 1.1.

    Bilinear, the border continued outwards. Returns (B, 3, H + 4, W + 4): the image and MARGIN around it.
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
    return F.grid_sample(
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


# ---- many views in few forward passes


@torch.no_grad()
def average_over_views(model: nn.Module, x: Tensor, view: View, count: int) -> Tensor:
    """Mean logits (B, C) of `model` over `count` views of a batch (B, 3, H, W).

    A forward pass takes as many views as fit into a bounded number of images, at least one. The
    statistics of batch norm (`nn.use_batch_statistics`) are those of each view by itself.
    """
    together = max(1, (IMAGES_PER_FORWARD_CPU if x.device.type == "cpu" else IMAGES_PER_FORWARD) // len(x))
    logits: list[Tensor] = []
    for start in range(0, count, together):
        views = [view(x) for _ in range(min(together, count - start))]
        with BatchStatisticsApart(len(views)):
            logits.append(model(torch.cat(views)))
    return torch.cat(logits).view(count, len(x), -1).mean(0)


class BatchStatisticsApart(TorchFunctionMode):
    """While active, batch statistics are those of each of `parts` batches that lie one after another."""

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.parts = parts

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.batch_norm and self.parts > 1:
            return self.batch_norm(*args)
        return function(*args, **(kwargs or {}))

    def batch_norm(self, x: Tensor, weight: Tensor | None, bias: Tensor | None, *settings: Any) -> Tensor:
        # (V·B, C, …) → (B, V·C, …): now each channel of each view has statistics of its own.
        folded = x.reshape(self.parts, -1, *x.shape[1:]).transpose(0, 1).flatten(1, 2)
        weight, bias = (None if p is None else p.repeat(self.parts) for p in (weight, bias))
        out = torch.batch_norm(folded, weight, bias, *settings)
        apart = out.view(len(out), self.parts, *x.shape[1:]).transpose(0, 1)
        return apart.reshape(x.shape)
