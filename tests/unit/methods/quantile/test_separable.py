"""Composite-separable losses: what makes them losses, what makes them separable, and their memory bank."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import wasserstein_distance
from torch import Tensor

from tests.unit.made_quantile import prepared
from ttabench_methods.quantile.bank import Bank
from ttabench_methods.quantile.distances import MMD, Moments, SlicedWasserstein
from ttabench_methods.quantile.geometric import quantile_index, quantile_loss
from ttabench_methods.quantile.separable import Indices, Separable, Snapshot

SEEDED = torch.Generator().manual_seed(0)
SOURCE = torch.randn(300, 12, generator=SEEDED, dtype=torch.float64) * torch.linspace(0.5, 2, 12)
MOVED = 1.3 * torch.randn(80, 12, generator=SEEDED, dtype=torch.float64) + 0.4


class OfPoints:
    """Quantile indices at given points, as `Indices` has them for a classifier."""

    def __init__(self, source: Tensor) -> None:
        self.points = source[:40] + 0.01  # no point is a sample
        self.index = quantile_index(self.points, source)

    def mean(self, z: Tensor) -> Tensor:
        return quantile_index(self.points, z)

    def loss(self, mean: Tensor, *, plain: bool = False) -> Tensor:
        return (mean - self.index).square().sum(1).mean()


MADE: list[Callable[[Tensor], Separable]] = [OfPoints, Moments, MMD, SlicedWasserstein]
each_loss = pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)


def made(make: Callable[[Tensor], Separable]) -> Separable:
    torch.manual_seed(0)
    return make(SOURCE)


@each_loss
def test_it_is_zero_at_equal_samples_and_positive_at_others(make: Callable[[Tensor], Separable]) -> None:
    separable = made(make)
    shuffled = SOURCE[torch.randperm(len(SOURCE))]
    assert float(separable.loss(separable.mean(shuffled))) < 1e-12
    near, far = (float(separable.loss(separable.mean(SOURCE + by))) for by in (0.1, 0.5))
    assert 0 < near < far


@each_loss
def test_the_mean_of_a_union_is_the_mean_of_means(make: Callable[[Tensor], Separable]) -> None:
    """What composite-separability is: h is of one image, and the rest a mean."""
    separable = made(make)
    parts = [separable.mean(MOVED[:30]), separable.mean(MOVED[30:])]
    torch.testing.assert_close(separable.mean(MOVED), (30 * parts[0] + 50 * parts[1]) / 80)


@each_loss
def test_its_gradient_is_that_of_finite_differences(make: Callable[[Tensor], Separable]) -> None:
    separable = made(make)
    z = MOVED[:6].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: separable.loss(separable.mean(x)), (z,), atol=1e-6)


@each_loss
def test_batches_with_the_bank_add_up_to_all_images(make: Callable[[Tensor], Separable]) -> None:
    """The estimate is unbiased: over the batches of an epoch it is, on average, the mean at new features."""
    separable = made(make)
    new = MOVED + 0.3 * torch.randn(80, 12, generator=SEEDED, dtype=torch.float64)
    bank = Snapshot(separable, MOVED.clone())
    batches = torch.randperm(80).split(20)
    estimates = [bank.estimate(rows, new[rows]) for rows in batches]
    torch.testing.assert_close(torch.stack(estimates).mean(0), separable.mean(new))
    exact = separable.mean(new)
    alone = [separable.mean(new[rows]) for rows in batches]
    errors = [sum(float((one - exact).square().sum()) for one in several) for several in (estimates, alone)]
    assert errors[0] < 0.5 * errors[1]  # and of a lower variance
    assert torch.equal(bank.features, new)
    bank.rebase(new)
    torch.testing.assert_close(bank.mean, exact)


# ---- the separable form is the direct one


def test_moments_are_those_of_the_samples() -> None:
    separable = made(Moments)
    gap = (MOVED.mean(0) - SOURCE.mean(0)).square() + (
        MOVED.std(0, correction=0) - SOURCE.std(0, correction=0)
    ).square()
    torch.testing.assert_close(separable.loss(separable.mean(MOVED)), gap.mean())


def test_mmd_is_the_double_sum_of_its_kernel_which_is_nearly_gaussian() -> None:
    torch.manual_seed(0)
    separable = MMD(SOURCE, count=20_000)

    def features(x: Tensor) -> Tensor:
        return (2 / 20_000) ** 0.5 * (x @ separable.directions + separable.phases).cos()

    def gauss(a: Tensor, b: Tensor) -> Tensor:
        return (-(torch.cdist(a, b).square()) / (2 * separable.width**2)).exp()

    def squared_mmd(kernel: Callable[[Tensor, Tensor], Tensor]) -> float:
        inner = kernel(SOURCE, SOURCE).mean() + kernel(MOVED, MOVED).mean()
        return float(inner - 2 * kernel(SOURCE, MOVED).mean())

    loss = float(separable.loss(separable.mean(MOVED)))
    assert loss == pytest.approx(squared_mmd(lambda a, b: features(a) @ features(b).T), rel=1e-9)
    assert loss == pytest.approx(squared_mmd(gauss), rel=0.1)


def test_sliced_wasserstein_is_the_mean_of_distances_of_projections() -> None:
    torch.manual_seed(0)
    separable = SlicedWasserstein(SOURCE, directions=8, thresholds=2000, sharpness=2.0)
    distances = []
    for direction, low, width in zip(
        separable.directions.T, separable.low, separable.range, strict=True
    ):  # in units of the range
        a, b = (((x @ direction - low) / width).numpy() for x in (SOURCE, MOVED))
        distances.append(wasserstein_distance(a, b))
    assert float(separable.loss(separable.mean(MOVED))) == pytest.approx(np.mean(distances), rel=0.01)


def test_the_papers_loss_and_bank_are_those_of_quantile_matching() -> None:
    matching = prepared({}).matching
    separable = Indices(matching)
    z = matching.points + 0.1 * torch.randn_like(matching.points)
    expected = quantile_loss(matching.points, z, matching.index)
    torch.testing.assert_close(separable.loss(separable.mean(z)), expected)
    banks = Bank(matching.points, z.clone()), Snapshot(separable, z.clone())
    new, rows = z + 0.1 * torch.randn_like(z), torch.arange(10)
    ours = [bank.estimate(rows, new[rows]) for bank in banks]
    assert torch.equal(ours[0], ours[1])
