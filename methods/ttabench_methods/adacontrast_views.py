"""The random views of AdaContrast: a mirror, and MoCo v2's colours, grey, blur and mirror.

As in the transforms of the RMT repository for images that have the size of the network (CIFAR-10-C,
ImageNet-C): no crop. Pixels are in [0, 1] before and after. Every image has its own draws, from the generator
of its device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad

from ttabench_methods.colour import hue

REACH = 6  # pixels on each side of the blur: three standard deviations of the widest


def mirrored(x: Tensor) -> Tensor:
    """Each image of (B, 3, H, W) mirrored with probability ½."""
    return torch.where(coin(x, 0.5), x.flip(-1), x)


@torch.no_grad()
def strong_view(x: Tensor) -> Tensor:
    """MoCo v2's view without its crop: (B, 3, H, W) → (B, 3, H, W)."""
    x = x.clamp(0, 1)
    x = torch.where(coin(x, 0.8), jittered(x), x)
    x = torch.where(coin(x, 0.2), grey(x).expand_as(x), x)
    x = torch.where(coin(x, 0.5), blurred(x, uniform(x, 0.1, 2.0)), x)
    return mirrored(x)


def uniform(x: Tensor, low: float, high: float) -> Tensor:
    """One draw of U(low, high) for each image: (B, 1, 1, 1)."""
    return torch.rand(len(x), 1, 1, 1, device=x.device, dtype=x.dtype) * (high - low) + low


def coin(x: Tensor, probability: float) -> Tensor:
    """True with this probability, for each image: (B, 1, 1, 1)."""
    return torch.rand(len(x), 1, 1, 1, device=x.device) < probability


def grey(x: Tensor) -> Tensor:
    """Luma: (B, 3, H, W) → (B, 1, H, W)."""
    weights = torch.tensor([0.299, 0.587, 0.114], device=x.device, dtype=x.dtype)
    return (x * weights.view(1, 3, 1, 1)).sum(1, keepdim=True)


def brightness(x: Tensor, f: Tensor) -> Tensor:
    return f * x


def contrast(x: Tensor, f: Tensor) -> Tensor:
    return f * x + (1 - f) * grey(x).mean((2, 3), keepdim=True)


def saturation(x: Tensor, f: Tensor) -> Tensor:
    return f * x + (1 - f) * grey(x)


def turn_hue(x: Tensor, f: Tensor) -> Tensor:
    return hue(x, cast(Any, f[:, 0]))  # of one channel, as the angle that it is added to


JITTER: tuple[tuple[Callable[[Tensor, Tensor], Tensor], float, float], ...] = (
    (brightness, 0.6, 1.4),
    (contrast, 0.6, 1.4),
    (saturation, 0.6, 1.4),
    (turn_hue, -0.1, 0.1),
)


def jittered(x: Tensor) -> Tensor:
    """The four changes of JITTER, in an order of its own for each image, each clipped to [0, 1]."""
    factors = [uniform(x, low, high) for _, low, high in JITTER]
    # On the CPU, so that a GPU need not wait for the number of images that a change comes to.
    orders = torch.rand(len(x), len(JITTER)).argsort(dim=1)
    turns, images = orders.sort(dim=0, stable=True)
    images = images.to(x.device)
    for place in range(len(JITTER)):
        counts = torch.bincount(turns[:, place], minlength=len(JITTER)).tolist()
        parts = torch.split(images[:, place], counts)
        x = x.clone()
        for turn, (change, _, _), factor in zip(parts, JITTER, factors, strict=True):
            x[turn] = change(x[turn], factor[turn]).clamp(0, 1)
    return x


def blurred(x: Tensor, sigma: Tensor) -> Tensor:
    """Gaussian blur of width σ (B, 1, 1, 1) in pixels; border pixels are repeated outwards."""
    offsets = torch.arange(-REACH, REACH + 1, device=x.device, dtype=x.dtype)
    weights = (-0.5 * (offsets / sigma.view(-1, 1)) ** 2).exp()
    weights = (weights / weights.sum(1, keepdim=True)).repeat_interleave(3, dim=0)[:, None]  # (3B, 1, K)
    planes = pad(x, [REACH] * 4, mode="replicate").flatten(0, 1)[None]
    planes = conv2d(planes, weights[:, :, None], groups=planes.shape[1])
    return conv2d(planes, weights[..., None], groups=planes.shape[1]).view(x.shape)
