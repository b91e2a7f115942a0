"""Composite-separable losses (Section 4.2), the memory bank of any of them, and the paper's own loss.

L = mean over r of g_r(mean over i of h_r(x_i)): each loss is the mean of h over images, and g of this mean.

| symbol           | name            |                                                              |
| ---------------- | --------------- | ------------------------------------------------------------ |
| mean_i h_r(x_i)  | Separable.mean  | from the features (n, k) of images to any shape, such as (R, k) |
| mean_r g_r       | Separable.loss  | from that mean to one number                                 |
| S                | Snapshot.mean   | the mean at the parameters θ_snap                            |
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from .bank import control_variate, mean_unit
from .matching import Matching


class Separable(Protocol):
    """A loss of the features z (n, k) of decorrupted images; it knows those of the source."""

    def mean(self, z: Tensor) -> Tensor:
        """The mean of h over the n features: linear in the empirical distribution of z, which may be in host
        memory, as the bank is.
        """

    def loss(self, mean: Tensor, *, plain: bool = False) -> Tensor:
        """g of a mean: one number, 0 at the source's. `plain`: without additions of our own."""


class Indices:
    """The paper's: h_r is the unit vector to the point r, and g_r the squared distance from u_r."""

    def __init__(self, matching: Matching) -> None:
        self.matching = matching

    def mean(self, z: Tensor) -> Tensor:
        return mean_unit(self.matching.points, z, self.matching.weigh)

    def loss(self, mean: Tensor, *, plain: bool = False) -> Tensor:
        return self.matching.loss(mean, plain)


class Snapshot:
    """The memory bank: features (n, k) of all images at θ_snap, and S.

    every_step  every batch also changes S.
    beta        weight of the control variate: 1 (the paper), or 0 for the batch alone.
    """

    def __init__(
        self, separable: Separable, features: Tensor, *, every_step: bool = False, beta: float = 1.0
    ) -> None:
        self.separable, self.every_step, self.beta = separable, every_step, beta
        self.rebase(features)

    @torch.no_grad()
    def rebase(self, features: Tensor) -> None:
        """θ_snap = θ: store the features (n, k) of all images, and compute S from them."""
        self.features, self.mean = features, self.separable.mean(features)

    def estimate(self, positions: Tensor, z: Tensor) -> Tensor:
        """The mean at θ, from a batch: its features z (b, k) of the images at `positions` (b,).

        Its gradient is that of the batch. Afterwards the bank stores z in place of the snapshot's.
        """
        rows = positions.to(self.features.device)
        now = self.separable.mean(z)
        with torch.no_grad():
            then = self.separable.mean(self.features[rows].to(z))
        estimate = control_variate(now, then, self.mean, self.beta)
        self.features[rows] = z.detach().to(self.features)
        if self.every_step:
            self.mean = self.mean + (now.detach() - then) * (len(z) / len(self.features))
        return estimate
