"""The mathematics of quantile indices and the quantile loss, as the paper states it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.cases import each
from ttabench_methods.quantile.geometric import quantile_index, quantile_loss

seeds = st.integers(0, 2**31 - 1)
few = settings(max_examples=25, deadline=None)


def normal(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def direct(points: Tensor, x: Tensor) -> Tensor:
    """The definition, one unit vector per pair."""
    difference = points[:, None] - x[None]
    distance = difference.norm(dim=-1, keepdim=True)
    unit = torch.where(distance > 0, difference / distance, 0.0)
    return unit.sum(1) / (distance > 0).sum(1)


def orthogonal(seed: int, k: int) -> Tensor:
    return torch.linalg.qr(normal(seed, k, k))[0]


# ---- the index


@few
@given(seeds, st.integers(1, 9), st.integers(2, 40), st.integers(1, 8))
def test_index_is_the_mean_unit_vector(seed: int, q: int, n: int, k: int) -> None:
    points, x = normal(seed, q, k), normal(seed + 1, n, k)
    torch.testing.assert_close(quantile_index(points, x), direct(points, x), rtol=1e-10, atol=1e-12)


@few
@given(seeds, st.integers(3, 40), st.integers(2, 8))
def test_index_lies_in_the_open_unit_ball(seed: int, n: int, k: int) -> None:
    x = normal(seed, n, k)
    assert quantile_index(100 * normal(seed + 1, 5, k), x).norm(dim=1).max() < 1
    assert quantile_index(x, x).norm(dim=1).max() < 1


@few
@given(seeds, st.floats(1e-3, 1e3))
def test_index_turns_with_the_data_and_knows_no_origin_and_no_scale(seed: int, scale: float) -> None:
    points, x, turn, move = normal(seed, 4, 5), normal(seed + 1, 30, 5), orthogonal(seed, 5), normal(seed, 5)
    index = quantile_index(points, x)
    torch.testing.assert_close(quantile_index(points @ turn, x @ turn), index @ turn, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(quantile_index(points + move, x + move), index, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(quantile_index(scale * points, scale * x), index, rtol=1e-9, atol=1e-10)


def test_index_of_a_sample_point_leaves_it_out() -> None:
    x = normal(0, 12, 3)
    others = torch.stack([direct(x[i : i + 1], torch.cat([x[:i], x[i + 1 :]]))[0] for i in range(12)])
    torch.testing.assert_close(quantile_index(x, x), others)
    assert quantile_index(x[:1], x[:1]).isnan().all()  # nothing is left


def test_weights_count_as_repetitions_and_nought_as_absence() -> None:
    points, x = normal(1, 4, 3), normal(2, 6, 3)
    times = torch.tensor([2, 0, 1, 3, 0, 1])
    torch.testing.assert_close(
        quantile_index(points, x, times.double().expand(4, 6)), direct(points, x.repeat_interleave(times, 0))
    )


def test_leading_dimensions_are_batches() -> None:
    points, x = normal(3, 2, 3, 4, 5), normal(4, 2, 3, 7, 5)
    x[1, 2, 6] = points[1, 2, 3]
    index = quantile_index(points, x)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(index[i, j], direct(points[i, j], x[i, j]))


def test_large_samples_go_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    points, x = normal(5, 6, 4), normal(6, 50, 4)
    monkeypatch.setattr("ttabench_methods.quantile.geometric._PAIRS", 40)
    torch.testing.assert_close(quantile_index(points, x), direct(points, x))


@each("gap", [1e-1, 1e-2, 1e-3, 1e-4, 0.0])
@each("offset", [0.0, 1e2])
def test_close_pairs_do_not_cancel(gap: float, offset: float) -> None:
    """float32 features that nearly coincide: inner products alone would lose the distance."""
    x = (normal(7, 64, 128) + offset).float()
    points = x[:32] + gap * normal(8, 32, 128).float() / 128**0.5
    exact_x, exact_points = x.double().requires_grad_(), points.double()
    x.requires_grad_()
    index, exact = quantile_index(points, x), direct(exact_points, exact_x)
    torch.testing.assert_close(index.double(), exact, rtol=0, atol=1e-6)
    g = normal(9, *index.shape)
    (got,) = torch.autograd.grad(index, x, g.float())
    # At 0 the definition has no gradient; ours is 0 for that pair.
    if gap:
        (wanted,) = torch.autograd.grad(exact, exact_x, g)
        assert (got.double() - wanted).norm() <= 2e-4 * wanted.norm()
    assert got.isfinite().all()


def test_half_precision_is_computed_in_float32() -> None:
    points, x = normal(10, 5, 16).bfloat16(), normal(11, 40, 16).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        index = quantile_index(points, x)
    assert index.dtype == torch.float32
    torch.testing.assert_close(index, direct(points.float(), x.float()), rtol=1e-5, atol=1e-6)


@settings(max_examples=8, deadline=None)
@given(seeds)
def test_gradient_equals_finite_differences(seed: int) -> None:
    points, x = normal(seed, 4, 3).requires_grad_(), normal(seed + 1, 7, 3)
    x[0] = points[1].detach() + 1e-3  # a close pair
    weights = normal(seed, 4, 7).square()
    assert torch.autograd.gradcheck(quantile_index, (points, x.requires_grad_()))
    assert torch.autograd.gradcheck(lambda z, x: quantile_index(z, x, weights), (points, x))
    index = quantile_index(points, x).detach() + 0.1
    assert torch.autograd.gradcheck(quantile_loss, (points, x, index))


# ---- the loss


def test_loss_is_zero_for_equal_samples() -> None:
    x = normal(12, 50, 4)
    points = normal(13, 10, 4)
    shuffled = x[torch.randperm(50, generator=torch.Generator().manual_seed(0))]
    assert quantile_loss(points, shuffled, quantile_index(points, x)) < 1e-28


def test_loss_falls_as_a_known_shift_shrinks() -> None:
    x = normal(14, 300, 4)
    index = quantile_index(x, x)
    for direction in torch.eye(4, dtype=torch.float64):
        losses = [float(quantile_loss(x, x + s * direction, index)) for s in (4.0, 2.0, 1.0, 0.5, 0.25)]
        assert losses == sorted(losses, reverse=True)
        assert losses[-1] < 0.01 * losses[0]


def test_indices_at_the_support_tell_distributions_apart() -> None:
    """Proposition 1 on a finite support: other weights, other indices."""
    support = normal(15, 6, 3)
    for seed in range(20):
        p = torch.softmax(normal(seed, 6), 0)
        q = torch.softmax(normal(seed + 100, 6), 0)
        separate = [
            (quantile_index(support, support, w.expand(6, 6)) * (1 - w).unsqueeze(1)) for w in (p, q)
        ]  # Σ_{i≠j} pᵢ vⱼᵢ, as in the proof
        assert (separate[0] - separate[1]).norm() > 1e-3 * (p - q).norm()
