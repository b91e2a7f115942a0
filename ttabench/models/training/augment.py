"""Augmentations of whole batches on the device.

All randomness comes from the given generators.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor


class Sampler:
    """Training images, uint8 on the device, from which augmented float batches are gathered.

    images  (N, H, W, 3), perhaps memory-mapped; copied once.
    shift   up to this many pixels in either direction, zeros moving in.
    flip    mirror left and right with probability 1/2.
    """

    def __init__(
        self, images: NDArray[np.uint8], device: torch.device, *, shift: int = 0, flip: bool = False
    ) -> None:
        around = ((0, 0), (shift, shift), (shift, shift), (0, 0))
        self.padded = torch.from_numpy(np.pad(images, around)).to(device)
        self.shift = shift
        self.flip = flip
        self.height, self.width = images.shape[1:3]

    def batch(self, index: Tensor, generator: Generator) -> Tensor:
        """Images (B, 3, H, W) in [0, 1] of the given indices (B,), in one gather."""
        device = index.device
        count = (len(index), 1)
        offsets = torch.randint(2 * self.shift + 1, (2, *count), device=device, generator=generator)
        rows = offsets[0] + torch.arange(self.height, device=device)
        columns = torch.arange(self.width, device=device).expand(len(index), -1)
        if self.flip:
            mirrored = torch.rand(count, device=device, generator=generator) < 0.5
            columns = torch.where(mirrored, self.width - 1 - columns, columns)
        columns = offsets[1] + columns
        pixels = self.padded[index[:, None, None], rows[:, :, None], columns[:, None, :]]
        return pixels.permute(0, 3, 1, 2).float() / 255


def mix(
    x: Tensor, targets: Tensor, draw: np.random.Generator, mixup: float = 0.0, cutmix: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Mixup (Zhang et al. 2018) or CutMix (Yun et al. 2019) of a batch with itself reversed.

    x (B, 3, H, W); targets (B, C) probabilities; `mixup` and `cutmix` are α of Beta(α, α). With both
    above 0, one of them is chosen at random; with both 0, nothing changes.
    """
    if not mixup and not cutmix:
        return x, targets
    cut = cutmix > 0 and (not mixup or draw.random() < 0.5)
    λ = draw.beta(cutmix, cutmix) if cut else draw.beta(mixup, mixup)
    if cut:
        x, λ = _paste(x, λ, draw)
    else:
        x = λ * x + (1 - λ) * x.flip(0)
    return x, λ * targets + (1 - λ) * targets.flip(0)


def _paste(x: Tensor, λ: float, draw: np.random.Generator) -> tuple[Tensor, float]:
    """A rectangle of area 1 − λ from the reversed batch; λ is corrected for clipping at the border."""
    sides, half = np.array(x.shape[2:]), (1 - λ) ** 0.5 / 2
    centre = draw.random(2)
    (top, left), (bottom, right) = (
        np.clip(np.rint(sides * (centre + s * half)), 0, sides).astype(int) for s in (-1, 1)
    )
    mixed = x.clone()
    mixed[:, :, top:bottom, left:right] = x.flip(0)[:, :, top:bottom, left:right]
    return mixed, 1 - float((bottom - top) * (right - left) / sides.prod())
