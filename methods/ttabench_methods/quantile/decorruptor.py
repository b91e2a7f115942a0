"""The decorruptor T_θ: images to images, starting as the identity."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d


class Size(NamedTuple):
    """The size of a decorruptor.

    width   channels of each branch.
    deep    channels at low resolution.
    depth   residual blocks at low resolution.
    stride  factor between full and low resolution.
    """

    width: int
    deep: int
    depth: int
    stride: int


SIZES = {"small": Size(16, 32, 0, 2), "medium": Size(32, 64, 1, 2), "paper": Size(64, 164, 2, 8)}


class Decorruptor(nn.Module):
    """x + g(x) with g ≡ 0 at the start, for images (B, 3, H, W) of any size.

    The paper states spatial convolutions of several sizes and a deconvolution. The other details are ours:
    parallel 3 × 3, 5 × 5 and 7 × 7 branches, a strided convolution, residual blocks at low resolution, a
    deconvolution, a skip connection around the low resolution, and a 7 × 7 linear filter beside all this.
    A 1 × 1 convolution maps the result to three channels; on the extra corruptions it is as good as a 3 × 3
    one. The last layers start at zero. Parameters: small 27 k, medium 171 k, paper 6.2 M. In the paper, the
    decorruptor costs 0.4 times as much as a ResNet18. So most of its parameters must be at low resolution;
    here that is an eighth of the full resolution.

    :meth:`standardise` sets a fixed affine map of the channels that comes first; without it there is none.
    """

    scale: Tensor
    offset: Tensor

    def __init__(self, size: str = "small") -> None:
        super().__init__()
        width, deep, depth, stride = SIZES[size]
        self.filter = nn.Conv2d(3, 3, 7, padding=3)
        self.branches = nn.ModuleList(nn.Conv2d(3, width, k, padding=k // 2) for k in (3, 5, 7))
        self.down = nn.Conv2d(3 * width, deep, stride + 1, stride=stride, padding=stride // 2)
        self.blocks = nn.ModuleList(Block(deep) for _ in range(depth))
        self.up = nn.ConvTranspose2d(deep, width, 2 * stride, stride=stride, padding=stride // 2)
        self.out = nn.Conv2d(4 * width, 3, 1)
        for last in (self.filter, self.out):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)  # type: ignore[arg-type]
        self.register_buffer("scale", torch.ones(3, 1, 1))
        self.register_buffer("offset", torch.zeros(3, 1, 1))

    def standardise(self, have: tuple[Tensor, Tensor], want: tuple[Tensor, Tensor]) -> None:
        """Make T, before training, map channels of mean and std `have`, each (3,), to `want`.

        If both are equal, T is bitwise the identity. A std below 10⁻³, a quarter of a grey level, is replaced
        by 10⁻³: such a channel is constant up to rounding.
        """
        scale = want[1].clamp_min(1e-3) / have[1].clamp_min(1e-3)
        self.scale.copy_(scale[:, None, None])
        self.offset.copy_((want[0] - scale * have[0])[:, None, None])

    def before(self, x: Tensor) -> Tensor:
        """T at the start of training."""
        return x * self.scale + self.offset

    @property
    def untrained(self) -> bool:
        last_parameters = [p.flatten() for last in (self.filter, self.out) for p in last.parameters()]
        return not torch.cat(last_parameters).any()

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        if not torch.is_grad_enabled() and self.untrained:
            return x  # g(x) = 0
        centred = 4 * (x.to(self.filter.weight.dtype) - 0.5)
        wide = torch.cat([branch(centred) for branch in self.branches], dim=1).relu_()
        deep = self.down(wide).relu_()
        for block in self.blocks:
            deep = block(deep)
        fine = self.up(deep)[..., : x.shape[-2], : x.shape[-1]].relu_()
        # `out` is applied to both parts separately: without their concatenation, it takes a tenth less time.
        weight, n = self.out.weight, wide.shape[1]
        change = (
            self.filter(centred) + conv2d(wide, weight[:, :n], self.out.bias) + conv2d(fine, weight[:, n:])
        )
        corrected: Tensor = x + change.to(x.dtype)
        return corrected


class Block(nn.Module):
    """x + two 3 × 3 convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.second(self.first(x).relu())
        return out
