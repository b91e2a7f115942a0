"""Geometric sample quantiles Q(u) (Chaudhuri 1996): the point whose quantile index is u."""

from __future__ import annotations

import torch
from torch import Tensor

from .geometric import unit_sum

__all__ = ["check_loss", "geometric_quantile"]


def check_loss(x: Tensor, u: Tensor, q: Tensor) -> Tensor:
    """L_u(X₁…Xₙ; q) = mean of ‖Xᵢ − q‖ + ⟨u, Xᵢ − q⟩: x (n, k), u and q (m, k) → (m,)."""
    mean = x.mean(0)
    return torch.cdist(q, x, compute_mode="donot_use_mm_for_euclid_dist").mean(-1) + (u * (mean - q)).sum(-1)


def geometric_quantile(x: Tensor, u: Tensor, *, tol: float = 1e-10, max_steps: int = 500) -> Tensor:
    """Q(u) = argmin_q L_u(X₁…Xₙ; q) of the sample x (n, k), for every u (…, k) with ‖u‖ < 1. Returns (…, k).

    u = 0 is the spatial median. Each step is Newton's where that lowers the convex L_u as much as
    Weiszfeld's, which always descends (from a sample point: Vardi and Zhang, PNAS 2000). A sample point is
    the answer exactly where 0 is a subgradient there. Works in float64, in m k² memory, until every index is
    within `tol` of its u. Not differentiable.

    Raises ValueError for an empty sample or ‖u‖ ≥ 1, RuntimeError where `max_steps` do not suffice.
    """
    if x.ndim != 2 or len(x) == 0:
        raise ValueError(f"the sample has shape {tuple(x.shape)}; expected (n, k) with n ≥ 1")
    if bool((torch.linalg.vector_norm(u, dim=-1) >= 1).any()):
        raise ValueError("a quantile index must be shorter than 1")
    with torch.no_grad():
        sample, wanted = x.double(), u.double().reshape(-1, x.shape[1])
        origin = sample.mean(0)
        scale = (sample - origin).square().sum(-1).mean().sqrt().clamp_min(torch.finfo(torch.float64).tiny)
        sample = (sample - origin) / scale
        found, own = torch.zeros_like(wanted), wanted.new_full((len(wanted),), -1, dtype=torch.int64)
        open_ = torch.arange(len(wanted), device=wanted.device)
        for _ in range(max_steps):
            if not len(open_):
                moved = (found * scale + origin).to(x.dtype)
                return torch.where(own.unsqueeze(-1) >= 0, x[own], moved).reshape(u.shape)
            found[open_], own[open_], done = _step(sample, wanted[open_], found[open_], tol)
            open_ = open_[~done]
    raise RuntimeError(f"{len(open_)} geometric quantiles are not within {tol} after {max_steps} steps")


def _step(x: Tensor, u: Tensor, q: Tensor, tol: float) -> tuple[Tensor, Tensor, Tensor]:
    """One step for (m, k) quantiles; which sample point each is (−1: none); whether each is done."""
    # If the minimiser is a sample point, that is soon the nearest to q; iterating only creeps up.
    nearest = torch.cdist(q, x).argmin(-1)
    slope, multiplicity = _slope(x, u, x[nearest])
    at_sample = torch.linalg.vector_norm(slope, dim=-1) <= multiplicity / len(x) + tol
    slope, multiplicity = _slope(x, u, q)
    steepness = torch.linalg.vector_norm(slope, dim=-1)
    done = at_sample | (steepness <= tol)

    inverse = 1 / torch.cdist(q, x, compute_mode="donot_use_mm_for_euclid_dist")
    inverse[~inverse.isfinite()] = 0.0
    curvature = inverse.mean(-1, keepdim=True)
    held = (multiplicity / len(x) / steepness.clamp_min(tol)).clamp_max(
        1.0
    )  # what a sample point at q holds back
    weiszfeld = q - (1 - held).unsqueeze(-1) * slope / curvature
    newton = torch.where(
        (multiplicity == 0).unsqueeze(-1), q - _solve(x, q, inverse, curvature, slope), weiszfeld
    )
    # Close to the end the two losses differ by rounding only, and Newton's is the better step.
    better = check_loss(x, u, newton) <= check_loss(x, u, weiszfeld) + 1e-14
    step = torch.where(better.unsqueeze(-1), newton, weiszfeld)
    return torch.where(done.unsqueeze(-1), q, step), nearest.where(at_sample, -1), done


def _slope(x: Tensor, u: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """∇L_u at q without the sample points that are q itself (m, k), and how many those are (m,)."""
    total, count = unit_sum(q, x)
    return total / len(x) - u, len(x) - count


def _solve(x: Tensor, q: Tensor, inverse: Tensor, curvature: Tensor, slope: Tensor) -> Tensor:
    """H⁻¹ slope; H = mean of (I − unit·unitᵀ)/‖q − Xᵢ‖ is the Hessian, a trifle heavier to be regular."""
    cubes = inverse**3
    products = torch.einsum("mi,ik,il->mkl", cubes, x, x)
    mixed = torch.einsum("mi,ik,ml->mkl", cubes, x, q)
    outer = products - mixed - mixed.mT + cubes.sum(-1)[:, None, None] * q[:, :, None] * q[:, None, :]
    eye = torch.eye(q.shape[1], dtype=q.dtype, device=q.device)
    hessian = curvature.unsqueeze(-1) * (1 + 1e-12) * eye - outer / x.shape[0]
    solution: Tensor = torch.linalg.solve_ex(hessian, slope.unsqueeze(-1)).result
    return solution.squeeze(-1)
