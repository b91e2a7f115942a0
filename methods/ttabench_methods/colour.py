"""Random colours: five changes of brightness, contrast, saturation, hue and gamma, in random order.

Images are (B, 3, H, W) in [0, 1]. One set of draws, from torch's CPU generator, serves the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def uniform(low: float, high: float) -> float:
    """One draw of U(low, high)."""
    return torch.empty(1).uniform_(low, high).item()


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
    share = distance.sub_(3).abs_().sub_(1).clamp_(0, 1)  # 1 up to one sextant, 0 from two sextants on
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
