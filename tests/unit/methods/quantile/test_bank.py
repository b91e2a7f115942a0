"""The memory bank: both estimators against the appendix's lemma, by enumerating every batch."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from tests.cases import each
from ttabench_methods.quantile.bank import Bank, StreamBank, best_beta, control_variate, cosines
from ttabench_methods.quantile.geometric import quantile_index

N, B, Q, K = 7, 3, 2, 3


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


POINTS, THEN = normal(0, Q, K), normal(1, N, K)
BATCHES = [torch.tensor(batch) for batch in itertools.combinations(range(N), B)]


def unit(x: Tensor) -> Tensor:
    """h_r(xᵢ): (Q, n, K) unit vectors."""
    difference = POINTS[:, None] - x[None]
    return difference / difference.norm(dim=-1, keepdim=True)


def moved(amount: float) -> Tensor:
    return THEN + amount * normal(2, N, K)


def variance(estimates: Tensor) -> Tensor:
    """E‖estimate − mean‖² over all batches (m, Q, K) → (Q,)."""
    return (estimates - estimates.mean(0)).square().sum(-1).mean(0)


def population(now: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """σ_a², σ_s² and σ_as of the appendix, per point."""
    a, s = unit(now), unit(THEN)
    a, s = a - a.mean(1, keepdim=True), s - s.mean(1, keepdim=True)
    return a.square().sum(-1).mean(1), s.square().sum(-1).mean(1), (a * s).sum(-1).mean(1)


def estimates(now: Tensor, beta: float | Tensor) -> Tensor:
    a, s = unit(now), unit(THEN)
    return torch.stack([control_variate(a[:, b].mean(1), s[:, b].mean(1), s.mean(1), beta) for b in BATCHES])


@each("beta", [0.0, 0.4, 1.0])
@each("amount", [0.01, 0.5])
def test_control_variate_is_unbiased_and_has_the_lemmas_variance(beta: float, amount: float) -> None:
    now = moved(amount)
    seen = estimates(now, beta)
    torch.testing.assert_close(seen.mean(0), unit(now).mean(1))
    sa, ss, sas = population(now)
    factor = (N - B) / (N - 1) / B
    torch.testing.assert_close(variance(seen), factor * (sa + beta**2 * ss - 2 * beta * sas))


def test_best_beta_is_best_and_its_variance_is_the_lemmas() -> None:
    now = moved(0.5)
    sa, ss, sas = population(now)
    best = (sas / ss).unsqueeze(-1)
    rho2 = sas.square() / (sa * ss)
    least = variance(estimates(now, best))
    torch.testing.assert_close(least, (N - B) / (N - 1) / B * sa * (1 - rho2))
    for off in (-0.1, 0.1):
        assert (variance(estimates(now, best + off)) > least).all()
    c = cosines(POINTS, now, THEN) / N
    torch.testing.assert_close(c, (unit(now) * unit(THEN)).sum(-1).mean(1))
    torch.testing.assert_close(best_beta(c, unit(now).mean(1), unit(THEN).mean(1)), best.clamp(0, 1))


def test_control_variate_beats_crude_as_the_features_stay_close() -> None:
    """ρ → 1: variance falls to nothing while the crude estimator's stays."""
    crude, control, rho, best = [], [], [], []
    for amount in (1.0, 0.1, 0.01, 0.001):
        now = moved(amount)
        sa, ss, sas = population(now)
        crude.append(float(variance(estimates(now, 0.0)).mean()))
        control.append(float(variance(estimates(now, 1.0)).mean()))
        rho.append(float((sas / (sa * ss).sqrt()).mean()))
        best.append(float((sas / ss).mean()))
    assert rho == sorted(rho)
    assert rho[-1] > 0.999
    assert best[-1] == pytest.approx(1, abs=1e-2)
    assert control == sorted(control, reverse=True)
    assert control[1] < crude[1]
    assert control[-1] < 1e-4 * crude[-1]


@pytest.mark.parametrize("every_step", [False, True])
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_bank_is_unbiased_over_batches(every_step: bool, beta: float) -> None:
    now = moved(0.3)
    seen = [Bank(POINTS, THEN.clone(), every_step=every_step, beta=beta).estimate(b, now[b]) for b in BATCHES]
    torch.testing.assert_close(torch.stack(seen).mean(0), quantile_index(POINTS, now))


def bank_with_best_beta(now: Tensor, seen: Tensor) -> Bank:
    """A bank just re-based that has seen some images, for β*, but still has all features of the snapshot."""
    earlier = Bank(POINTS, THEN.clone(), beta=None)
    earlier.estimate(seen, now[seen])
    bank = Bank(POINTS, THEN.clone(), beta=None)
    bank.seen, bank.cosines, bank.moved = earlier.seen, earlier.cosines, earlier.moved
    return bank


@pytest.mark.parametrize("seen", [[], [4, 0], list(range(N))])
def test_a_bank_with_best_beta_is_unbiased_over_batches(seen: list[int]) -> None:
    now = moved(0.5)
    result = [bank_with_best_beta(now, torch.tensor(seen)) if seen else Bank(POINTS, THEN.clone(), beta=None)
             for _ in BATCHES]  # fmt: skip
    estimates = [bank.estimate(b, now[b]) for bank, b in zip(result, BATCHES, strict=True)]
    torch.testing.assert_close(torch.stack(estimates).mean(0), quantile_index(POINTS, now))


def test_a_bank_that_has_seen_all_images_knows_the_best_beta() -> None:
    now = moved(0.5)
    sa, ss, sas = population(now)
    result = [bank_with_best_beta(now, torch.arange(N)).estimate(b, now[b]) for b in BATCHES]
    beta = (sas / ss).clamp(0, 1)
    least = (N - B) / (N - 1) / B * (sa + beta.square() * ss - 2 * beta * sas)
    torch.testing.assert_close(variance(torch.stack(result)), least)


@pytest.mark.parametrize("size", [1, B])
def test_where_nothing_moved_best_beta_knows_the_index(size: int) -> None:
    bank = Bank(POINTS, THEN.clone(), beta=None)
    for batch in torch.arange(N).split(size):
        torch.testing.assert_close(bank.estimate(batch, THEN[batch]), quantile_index(POINTS, THEN))


def test_a_bank_that_follows_every_step_stays_unbiased_within_an_epoch() -> None:
    now, seen = moved(0.3), []
    for batch in BATCHES:
        bank = Bank(POINTS, THEN.clone(), every_step=True)
        bank.estimate(torch.tensor([4, 0]), moved(0.2)[[4, 0]])
        seen.append(bank.estimate(batch, now[batch]))
    torch.testing.assert_close(torch.stack(seen).mean(0), quantile_index(POINTS, now))


@pytest.mark.parametrize("every_step", [False, True])
def test_an_epoch_with_a_short_last_batch(every_step: bool) -> None:
    """7 images in batches of 3, 3, 1: at the end the bank is what the features are."""
    now = moved(0.3)
    bank = Bank(POINTS, THEN.clone(), every_step=every_step)
    before = bank.mean.clone()
    for batch in torch.tensor([5, 1, 6, 0, 3, 2, 4]).split(3):
        expected = control_variate(unit(now[batch]).mean(1), unit(THEN[batch]).mean(1), bank.mean)
        torch.testing.assert_close(bank.estimate(batch, now[batch]), expected)
    torch.testing.assert_close(bank.mean, quantile_index(POINTS, now) if every_step else before)
    bank.rebase()
    torch.testing.assert_close(bank.features, now)
    torch.testing.assert_close(bank.mean, quantile_index(POINTS, now))


def test_gradient_is_that_of_the_batch_alone() -> None:
    now = moved(0.3)[:B].requires_grad_()
    for bank in (
        Bank(POINTS, THEN.clone()),
        Bank(POINTS, THEN.clone(), every_step=True),
        Bank(POINTS, THEN.clone(), beta=None),
    ):
        (got,) = torch.autograd.grad(bank.estimate(torch.arange(B), now).sum(), now)
        (wanted,) = torch.autograd.grad(quantile_index(POINTS, now).sum(), now)
        torch.testing.assert_close(got, wanted)


def test_stream_bank_holds_the_most_recent_features() -> None:
    stream, bank = normal(3, 23, K), StreamBank(POINTS, 8)
    held = stream[:0]
    for batch in stream.split([3, 3, 1, 5, 2, 9]):  # the last is larger than the bank
        torch.testing.assert_close(
            bank.estimate(batch), quantile_index(POINTS, torch.cat([held, batch])), rtol=1e-9, atol=1e-12
        )
        bank.push(batch)
        held = torch.cat([held, batch])[-8:]
    assert bank.features.shape == (8, K)
    assert bank.size == 8
