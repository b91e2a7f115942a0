"""Other distances between two samples of features, as composite-separable losses.

Each is built from the source's features (n, k), see :class:`.separable.Separable`, and is 0 where both
samples are the same. The paper has none of them; they show what quantile indices add.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .separable import Separable


class Moments:
    """‖mean − mean_source‖² + ‖std − std_source‖², divided by k. h(x) = (x, x²), around the source's mean."""

    def __init__(self, source: Tensor) -> None:
        self.centre = source.mean(0)
        self.std = self._std(self.mean(source))

    def mean(self, z: Tensor) -> Tensor:
        """(2, k)."""
        z = z.to(self.centre.device) - self.centre
        return torch.stack([z.mean(0), z.square().mean(0)])

    def loss(self, mean: Tensor, *, plain: bool = False) -> Tensor:
        return (mean[0].square() + (self._std(mean) - self.std).square()).mean()

    @staticmethod
    def _std(mean: Tensor) -> Tensor:
        # An estimate of a bank can be below 0, and √ has no gradient at 0.
        return (mean[1] - mean[0].square()).clamp_min(1e-8).sqrt()


class MMD:
    """Maximum mean discrepancy, squared, with a Gaussian kernel (Gretton et al., JMLR 2012).

    h(x) = √(2/D) cos(Wx + b) are D random Fourier features (Rahimi and Recht, NeurIPS 2007), whose inner
    products are the kernel's values up to a noise of 1/√D. The kernel's width is the median distance of
    source features.
    """

    def __init__(self, source: Tensor, count: int = 1024) -> None:
        some = source[torch.randperm(len(source))[:512].to(source.device)]
        self.width = torch.pdist(some).median().clamp_min(1e-6)
        # On the CPU, so that a seed draws the same on each device.
        self.directions = torch.randn(source.shape[1], count).to(source) / self.width
        self.phases = (2 * math.pi * torch.rand(count)).to(source)
        self.source = self.mean(source)

    def mean(self, z: Tensor) -> Tensor:
        """(D,)."""
        return math.sqrt(2 / len(self.phases)) * (
            (z.to(self.phases.device) @ self.directions + self.phases).cos().mean(0)
        )

    def loss(self, mean: Tensor, *, plain: bool = False) -> Tensor:
        return (mean - self.source).square().sum()


class SlicedWasserstein:
    """W₁ of projections on random directions (Rabin et al., SSVM 2011), in units of their range.

    In one dimension W₁ is the integral of |F − F_source|, and the distribution function F(t) is the mean of
    h_t(x) = 1[x ≤ t]. Here a sigmoid stands for the step, so that there is a gradient; thresholds t are a
    grid over the source's range, and a quarter more on each side.
    """

    def __init__(
        self, source: Tensor, directions: int = 64, thresholds: int = 64, sharpness: float = 1.0
    ) -> None:
        """sharpness: steps of the grid over the width of the sigmoid."""
        drawn = torch.randn(source.shape[1], directions).to(source)
        self.directions = drawn / drawn.norm(dim=0)
        low, high = torch.aminmax(source @ self.directions, dim=0)
        self.low, self.range = low, (high - low).clamp_min(1e-6)
        self.grid = torch.linspace(-0.25, 1.25, thresholds).to(source)
        self.sharpness = sharpness / float(self.grid[1] - self.grid[0])
        self.source = self.mean(source)

    def mean(self, z: Tensor) -> Tensor:
        """(directions, thresholds): distribution functions."""
        places = (z.to(self.low.device) @ self.directions - self.low) / self.range
        below = [
            (self.sharpness * (self.grid - part.unsqueeze(-1))).sigmoid().sum(0)
            for part in torch.split(places, 512)  # a few megabytes at a time
        ]
        return torch.stack(below).sum(0) / len(z)

    def loss(self, mean: Tensor, *, plain: bool = False) -> Tensor:
        return torch.trapezoid((mean - self.source).abs(), self.grid).mean()


DISTANCES: dict[str, Callable[[Tensor], Separable]] = {
    "mmd": MMD, "moments": Moments, "sliced": SlicedWasserstein,
}  # fmt: skip
