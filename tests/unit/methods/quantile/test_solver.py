"""Geometric quantiles: the mathematics that the paper states, and gradients through the argmin."""

from __future__ import annotations

from math import exp, pi, sqrt
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.cases import each
from ttabench_methods.quantile import solver
from ttabench_methods.quantile.geometric import quantile_index
from ttabench_methods.quantile.solver import check_loss, geometric_quantile

seeds = st.integers(0, 2**31 - 1)
few = settings(max_examples=25, deadline=None)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def orthogonal(seed: int, k: int) -> Tensor:
    return torch.linalg.qr(normal(seed, k, k))[0]


def inside(seed: int, *shape: int) -> Tensor:
    """Indices (…, k) in the ball of radius 0.98."""
    u = normal(seed, *shape)
    radius = torch.rand(*shape[:-1], 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return u / u.norm(dim=-1, keepdim=True) * 0.98 * radius


def descend(x: Tensor, u: Tensor, start: Tensor) -> Tensor:
    """The end (m, k) of the solver's steps from `start`, each of which must lower the loss."""
    q, samples = start, x.expand(len(u), *x.shape)
    for _ in range(500):
        last = q
        q, ours, done = solver._step(samples, u, last, 1e-10)
        assert (check_loss(x, u, q) <= check_loss(x, u, last) + 1e-14).all()
        if done.all():
            return torch.where(ours.unsqueeze(-1) >= 0, x[ours], q)
    raise AssertionError("the steps do not end")


# ---- what defines them


@few
@given(seeds, st.integers(3, 60), st.integers(2, 6))
def test_index_inverts_the_quantile(seed: int, n: int, k: int) -> None:
    """Theorem 1. Off the sample the index of Q(u) is u; Q(u) is a sample point exactly for a ball of u."""
    x, u = normal(seed, n, k), inside(seed + 1, 8, k)
    quantiles = geometric_quantile(x, u)
    for q, wanted in zip(quantiles, u, strict=True):
        of_others = quantile_index(q[None], x)[0]
        if (x == q).all(1).any():
            assert (of_others * (n - 1) / n - wanted).norm() <= 1 / n + 1e-9
        else:
            torch.testing.assert_close(of_others, wanted, rtol=0, atol=1e-9)


@few
@given(seeds, st.integers(4, 40), st.integers(2, 5))
def test_every_sample_point_is_the_quantile_of_its_index(seed: int, n: int, k: int) -> None:
    x = normal(seed, n, k)
    torch.testing.assert_close(geometric_quantile(x, quantile_index(x, x)), x, rtol=0, atol=1e-9)


@few
@given(seeds)
def test_quantiles_minimise_the_loss_that_defines_them(seed: int) -> None:
    x, u = normal(seed, 20, 3), inside(seed + 1, 4, 3)
    q = geometric_quantile(x, u)
    least = check_loss(x, u, q)
    for size in (1e-3, 1e-1, 10.0):
        assert (check_loss(x, u, q + size * normal(seed + 2, 4, 3)) >= least - 1e-12).all()


@few
@given(seeds)
def test_quantiles_are_unique_off_a_line(seed: int) -> None:
    """Steps from two far starts, on opposite sides, end at the same point."""
    x, u = normal(seed, 6, 2), inside(seed + 1, 3, 2)
    q, away = geometric_quantile(x, u), 100 * normal(seed + 2, 3, 2)
    for start in (away, -away):
        torch.testing.assert_close(descend(x, u, start), q, rtol=0, atol=1e-6)


def test_quantiles_are_not_unique_on_a_line() -> None:
    """Between the two middle points of an even number the loss is flat, and two starts end apart."""
    x = torch.tensor([0.0, 1.0, 3.0, 7.0], dtype=torch.float64).unsqueeze(1) * torch.tensor([0.6, 0.8])
    u = torch.zeros(2, 2, dtype=torch.float64)
    ends = descend(x, u, 0.99 * x[1:3] + 0.01 * x[[2, 1]])
    assert (ends[0] - ends[1]).norm() > 1
    losses = check_loss(x, u[:1], torch.stack([*ends, geometric_quantile(x, u[0]), x[1:3].mean(0)]))
    torch.testing.assert_close(losses, losses[:1].expand(4))
    assert (check_loss(x, u, ends + torch.tensor([0.8, -0.6])) > losses[0] + 0.1).all()


@few
@given(seeds, st.floats(0.01, 100))
def test_quantiles_move_turn_and_scale_with_the_data(seed: int, scale: float) -> None:
    x, u, turn, move = normal(seed, 25, 3), inside(seed + 1, 4, 3), orthogonal(seed, 3), normal(seed, 3)
    moved = geometric_quantile(scale * x @ turn + move, u @ turn)
    torch.testing.assert_close(moved, scale * geometric_quantile(x, u) @ turn + move, rtol=1e-6, atol=1e-6)


def test_spatial_median() -> None:
    corners = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]])
    torch.testing.assert_close(geometric_quantile(corners, torch.zeros(2)), torch.ones(2))
    # Fermat's point of a triangle with an angle beyond 120° is that corner.
    flat = torch.tensor([[0.0, 0.0], [-3.0, 1.0], [3.0, 1.0]])
    assert torch.equal(geometric_quantile(flat, torch.zeros(2)), flat[0])
    # On a line it is the median, and a point that holds half of the sample holds the median.
    line = torch.tensor([[0.0], [1.0], [2.0], [5.0], [90.0]])
    assert torch.equal(geometric_quantile(line, torch.zeros(1)), line[2])
    heavy = torch.tensor([[1.0, 1.0], [1.0, 1.0], [7.0, 3.0], [-4.0, 8.0]])
    assert torch.equal(geometric_quantile(heavy, torch.zeros(2)), heavy[0])


@few
@given(seeds, st.floats(0.3, 0.99))
def test_every_step_from_a_sample_point_descends(seed: int, heavy: float) -> None:
    """Also from a point that nearly holds the quantile, where a whole step of Weiszfeld's goes too far."""
    x, u = normal(seed, 12, 2), inside(seed + 1, 3, 2)
    pull = (quantile_index(x[:1], x)[0] * 11 - 12 * u).norm(dim=1).min()
    copies = int(heavy * pull)  # fewer than the others' pull: not the answer
    x = torch.cat([x, x[:1].expand(copies, 2)])
    ends = descend(x, u * 12 / len(x), x[:1].expand(3, 2))
    torch.testing.assert_close(ends, geometric_quantile(x, u * 12 / len(x)), rtol=0, atol=1e-6)


@pytest.mark.parametrize("u", [0.999, 0.99999])
def test_extreme_quantiles_are_far_out(u: float) -> None:
    x = normal(16, 100, 3)
    q = geometric_quantile(x, torch.tensor([u, 0.0, 0.0], dtype=torch.float64))
    assert q[0] > 5
    assert abs(float(quantile_index(q[None], x)[0, 0]) - u) < 1e-9


def gaussian_index(r: float) -> float:
    """|U(z)| at ‖z‖ = r of the standard normal distribution in three dimensions, by quadrature over shells.

    The mean distance from z to the sphere of radius s is r + s²/3r outside of it and s + r²/3s inside; U is
    its gradient.
    """

    def density(s: float) -> float:
        return sqrt(2 / pi) * s * s * exp(-s * s / 2)

    outside = quad(lambda s: (1 - s * s / (3 * r * r)) * density(s), 0, r)[0]
    return float(outside + quad(lambda s: 2 * r / (3 * s) * density(s), r, 40)[0])


def test_sample_quantiles_approach_the_population_quantile() -> None:
    """Theorem 3, where the population's quantile is known: Q(u) = z for u = U(z)."""
    toward = torch.nn.functional.normalize(normal(18, 3, 3), dim=1)
    radii = (0.5, 1.2, 2.5)
    z = toward * torch.tensor(radii).unsqueeze(1)
    u = toward * torch.tensor([gaussian_index(r) for r in radii], dtype=torch.float64).unsqueeze(1)
    errors = []
    for n in (50, 800, 12_800):
        runs = torch.stack([geometric_quantile(normal(100 * n + i, n, 3), u) for i in range(12)])
        errors.append((runs - z).norm(dim=2).mean(0))
    # n^−½: a factor of 4 per step.
    assert (errors[1] < errors[0] / 2.5).all()
    assert (errors[2] < errors[1] / 2.5).all()


# ---- batches, memory and types


def test_leading_dimensions_are_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    x, u = normal(20, 2, 3, 9, 4), inside(21, 2, 3, 5, 4)
    pairs = zip(x.flatten(0, 1), u.flatten(0, 1), strict=True)
    one = torch.stack([geometric_quantile(*pair) for pair in pairs])
    for elements in (1 << 20, 100, 1):
        monkeypatch.setattr(solver, "_ELEMENTS", elements)
        torch.testing.assert_close(geometric_quantile(x, u), one.reshape(2, 3, 5, 4))
    # Indices that all samples share, samples that all indices share, and an index for every sample.
    torch.testing.assert_close(geometric_quantile(x, u[0, 0])[0, 0], one[0])
    torch.testing.assert_close(geometric_quantile(x[0, 0], u)[0, 0], one[0])
    assert geometric_quantile(x[:, :1], u[:1]).shape == (2, 3, 5, 4)
    torch.testing.assert_close(geometric_quantile(x, u[0, 0, 1])[0, 0], one[0, 1])
    assert geometric_quantile(x, u[..., :0, :]).shape == (2, 3, 0, 4)


class Largest(TorchDispatchMode):
    """The most elements of any tensor that is made."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for made in out if isinstance(out, tuple) else (out,):
            if isinstance(made, Tensor):
                self.elements = max(self.elements, made.untyped_storage().nbytes() // made.element_size())
        return out


def test_nothing_larger_than_a_sample_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many quantiles there are, forward and backward."""
    monkeypatch.setattr(solver, "_ELEMENTS", 1)
    x, u = normal(22, 60, 8).requires_grad_(), inside(23, 20, 8).requires_grad_()
    with Largest() as largest:
        geometric_quantile(x, u).sum().backward()
    assert largest.elements == 60 * 8


def test_result_is_in_float32_or_better() -> None:
    x, u = normal(24, 30, 4), inside(25, 3, 4)
    exact = geometric_quantile(x.bfloat16().double(), u.bfloat16().double())
    with torch.autocast("cpu", torch.bfloat16):
        result = geometric_quantile(x.bfloat16(), u.bfloat16())
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), exact, rtol=1e-6, atol=1e-6)
    assert geometric_quantile(x.float(), u).dtype == torch.float64
    leaf = x.float().requires_grad_()
    (gradient,) = torch.autograd.grad(geometric_quantile(leaf, u).sum(), leaf)
    assert gradient.dtype == torch.float32


# ---- gradients


def precise(x: Tensor, u: Tensor) -> Tensor:
    """So that finite differences have digits left."""
    return geometric_quantile(x, u, tol=1e-13)


@settings(max_examples=2, deadline=None)
@given(seeds)
def test_gradient_equals_finite_differences(seed: int) -> None:
    """Of batches, and of indices that two samples share."""
    x, u = normal(seed, 2, 5, 2).requires_grad_(), 0.8 * inside(seed + 1, 2, 2, 2)
    assert torch.autograd.gradcheck(precise, (x, u.requires_grad_()))
    assert torch.autograd.gradcheck(precise, (x, u[0].detach().requires_grad_()))


def test_a_quantile_on_a_sample_point_moves_with_that_point_alone() -> None:
    x = normal(26, 9, 2).requires_grad_()
    centre = quantile_index(x, x)[4].detach() * 8 / 9  # of a ball of radius 1/9: the indices of x[4]
    u = (centre + 0.05).requires_grad_()
    assert torch.equal(geometric_quantile(x, u), x[4])
    assert torch.autograd.gradcheck(precise, (x, u))
    by_x, by_u = torch.autograd.functional.jacobian(geometric_quantile, (x, u))
    assert torch.equal(by_x[:, 4], torch.eye(2).double())
    assert by_x.abs().sum() == 2
    assert by_u.abs().sum() == 0


def test_copies_of_a_sample_point_share_its_gradient() -> None:
    """They carry the quantile together: moved all at once, it moves as they do."""
    others, point = normal(27, 4, 2), torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)

    def of_copies(point: Tensor) -> Tensor:
        return precise(torch.cat([point.expand(3, 2), others]), torch.zeros(2, dtype=torch.float64))

    assert torch.autograd.gradcheck(of_copies, point)
    x = torch.cat([point.detach().expand(3, 2), others]).requires_grad_()
    geometric_quantile(x, torch.zeros(2)).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.tensor([[1 / 3]] * 3 + [[0.0]] * 4).double().expand(7, 2))


# ---- failures


@each(
    ("x", "u", "message"),
    [
        (torch.zeros(3, 2), torch.tensor([1.0, 0.0]), "shorter than 1"),
        (torch.zeros(3, 2), torch.tensor([torch.nan, 0.0]), "shorter than 1"),
        (torch.tensor([[0.0, torch.inf]]), torch.zeros(2), "not finite"),
        (torch.zeros(0, 2), torch.zeros(2), r"\(0, 2\); expected \(…, n, k\) with n ≥ 1"),
        (torch.zeros(2), torch.zeros(2), r"\(2,\); expected \(…, n, k\)"),
        (torch.zeros(3, 2), torch.zeros(5, 3), r"\(5, 3\); expected \(…, m, 2\)"),
        (torch.zeros(4, 3, 2), torch.zeros(5, 1, 2), r"\(4, 3, 2\) of the sample and \(5, 1, 2\)"),
    ],
)
def test_bad_arguments_say_why(x: Tensor, u: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        geometric_quantile(x, u)


def test_too_few_steps_say_so() -> None:
    with pytest.raises(RuntimeError, match="2 geometric quantiles are not within 1e-10 after 2 steps"):
        geometric_quantile(normal(28, 30, 3), inside(29, 2, 3), max_steps=2)
