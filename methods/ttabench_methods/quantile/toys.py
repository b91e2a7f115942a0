"""The paper's two examples in the plane.

Six blobs: quantile matching finds the inverse of a linear shift. Two moons: from a start near a symmetry it
matches the marginals and swaps the classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from .geometric import quantile_index, quantile_loss


@dataclass(frozen=True)
class Example:
    """source (n, 2) and target (n, 2), where target i is source i shifted; labels (n,); start (2, 2), θ₀."""

    source: Tensor
    target: Tensor
    labels: Tensor
    start: Tensor


@dataclass
class Matching:
    """How a run went: lists over `epochs`, which begin at 0, before the first update.

    corrected   T_θ(target) (n, 2).
    mse         mean of ‖T_θ(target i) − source i‖²; for validation only, nothing is fitted to pairs.
    wasserstein W₂ between the two samples; likewise.
    """

    epochs: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    mse: list[float] = field(default_factory=list)
    wasserstein: list[float] = field(default_factory=list)
    corrected: list[Tensor] = field(default_factory=list)
    matrix: Tensor = field(default_factory=lambda: torch.eye(2))


def rotation(degrees: float) -> Tensor:
    """The (2, 2) matrix that turns column vectors counter-clockwise."""
    angle = math.radians(degrees)
    return torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def six_blobs(seed: int = 0) -> Example:
    """Six Gaussian classes of different sizes, means and covariances, shifted by an invertible linear map."""
    draw = torch.Generator().manual_seed(seed)
    means = [(-11.0, -4.0), (-6.0, 8.0), (1.0, -9.0), (4.0, 3.0), (9.0, 11.0), (13.0, -5.0)]
    spreads = [(1.0, 1.5), (1.6, 0.8), (0.9, 0.9), (1.3, 1.0), (0.8, 1.4), (1.2, 1.6)]
    sizes = [25, 30, 35, 40, 32, 38]
    blobs = [
        torch.randn(size, 2, generator=draw) * torch.tensor(spread) @ rotation(30.0 * i).T
        + torch.tensor(mean)
        for i, (mean, spread, size) in enumerate(zip(means, spreads, sizes, strict=True))
    ]
    source = torch.cat(blobs)
    shift = torch.tensor([[0.9, -0.5], [0.35, 1.2]])
    labels = torch.arange(6).repeat_interleave(torch.tensor(sizes))
    return Example(source, source @ shift.T, labels, torch.eye(2))


def two_moons(seed: int = 0, start_degrees: float = 30.0) -> Example:
    """Two interleaved half circles around the origin, turned by 180°, which maps each class onto the other.

    The start is a rotation; below 90° it is nearer to the identity, which matches the marginals and swaps the
    classes, than to the right answer, 180°.
    """
    draw = torch.Generator().manual_seed(seed)
    angle = math.pi * torch.rand(100, generator=draw)
    moon = torch.stack([angle.cos() - 0.5, angle.sin() - 0.25], dim=1)
    moon = moon + 0.06 * torch.randn(100, 2, generator=draw)
    source = torch.cat([moon, -moon])
    return Example(source, -source, torch.arange(2).repeat_interleave(100), rotation(start_degrees))


def wasserstein(a: Tensor, b: Tensor) -> float:
    """W₂ between two samples (n, k) of equal size, exactly: the best one-to-one assignment."""
    cost = torch.cdist(a.double(), b.double()).square().numpy()
    rows, columns = linear_sum_assignment(cost)
    return float(cost[rows, columns].mean() ** 0.5)


def match(example: Example, epochs: int, lr: float, momentum: float = 0.0, every: int = 1) -> Matching:
    """Algorithm 1 with a linear decorruptor and gradient descent; notes how it goes `every` few epochs."""
    decorruptor = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        decorruptor.weight.copy_(example.start)
    optimizer = torch.optim.SGD(decorruptor.parameters(), lr, momentum)
    index = quantile_index(example.source, example.source)
    run = Matching()
    for epoch in range(epochs + 1):
        corrected = decorruptor(example.target)
        loss = quantile_loss(example.source, corrected, index)
        if epoch % every == 0 or epoch == epochs:
            seen = corrected.detach().clone()
            run.epochs.append(epoch)
            run.loss.append(loss.item())
            run.mse.append((seen - example.source).square().sum(1).mean().item())
            run.wasserstein.append(wasserstein(seen, example.source))
            run.corrected.append(seen)
        if epoch < epochs:
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
    run.matrix = decorruptor.weight.detach().clone()
    return run
