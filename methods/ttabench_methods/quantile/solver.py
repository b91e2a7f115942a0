"""Geometric sample quantiles Q(u) (Chaudhuri 1996): the point whose quantile index is u."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_ELEMENTS = 1 << 20  # elements of a matrix at a time (8 MB), or of one sample if it has more


def check_loss(x: Tensor, u: Tensor, q: Tensor) -> Tensor:
    """L_u(X₁…Xₙ; q) = mean of ‖Xᵢ − q‖ + ⟨u, Xᵢ − q⟩: x (…, n, k), u and q (…, m, k) → (…, m)."""
    distance = torch.cdist(q, x, compute_mode="donot_use_mm_for_euclid_dist")
    return distance.mean(-1) + (u * (x.mean(-2, keepdim=True) - q)).sum(-1)


def geometric_quantile(x: Tensor, u: Tensor, *, tol: float = 1e-10, max_steps: int = 500) -> Tensor:
    """Q(u) = argmin_q L_u(X₁…Xₙ; q) of the samples x (…, n, k), for every u (…, m, k) with ‖u‖ < 1.

    Leading shapes broadcast; u (k,) is one index for every sample. Returns (…, m, k), or (…, k) for u (k,),
    in float32 or better. u = 0 is the spatial median.

    A step is Newton's if it lowers the convex L_u as much as Weiszfeld's step, which always descends (at a
    sample point: Vardi and Zhang, PNAS 2000). A sample point is the solution if and only if 0 is a
    subgradient there. Computes in float64, with the memory of a few samples, until every index is within
    `tol` of its u.

    Differentiable once, as the solution of U_x(Q) = u: dQ = H⁻¹(du − dU_x), H = ∂U_x/∂q. If a quantile is a
    sample point, it stays this point under small changes of all else. Then this point gets the whole
    gradient, in equal parts if the sample has copies of it, and u gets none. (Q is not differentiable if 0 is
    on the boundary of the subgradients, or if copies move apart; there, this is a one-sided derivative.) If
    the sample is on a line, Q between two points is neither unique nor smooth.

    Raises ValueError for shapes that do not match, an empty sample, numbers that are not finite or ‖u‖ ≥ 1,
    RuntimeError where `max_steps` do not suffice.
    """
    if x.ndim < 2 or 0 in x.shape[-2:]:
        raise ValueError(f"the sample has shape {tuple(x.shape)}; expected (…, n, k) with n ≥ 1 and k ≥ 1")
    if u.ndim < 1 or u.shape[-1] != x.shape[-1]:
        raise ValueError(f"the indices have shape {tuple(u.shape)}; expected (…, m, {x.shape[-1]})")
    indices = u if u.ndim > 1 else u.unsqueeze(0)
    try:
        leading_shape = torch.broadcast_shapes(x.shape[:-2], indices.shape[:-2])  # type: ignore[no-untyped-call]
    except RuntimeError:
        shapes = f"{tuple(x.shape)} of the sample and {tuple(u.shape)} of the indices"
        raise ValueError(
            f"the leading shapes of {shapes} do not broadcast; expected equal sizes, or 1"
        ) from None
    if not bool(x.isfinite().all()):
        raise ValueError("the sample has numbers that are not finite; remove NaN and infinite values")
    if not bool((torch.linalg.vector_norm(u, dim=-1) < 1).all()):
        raise ValueError("a quantile index has length 1 or more, or NaN; it must be shorter than 1")
    all_numbers = torch.arange(x.shape[:-2].numel(), device=x.device).reshape(x.shape[:-2])
    sample_numbers = all_numbers.unsqueeze(-1).expand(*leading_shape, indices.shape[-2]).flatten()
    samples = x.double().reshape(-1, *x.shape[-2:])
    flat_indices = indices.double().expand(*leading_shape, *indices.shape[-2:]).reshape(-1, x.shape[-1])
    quantiles: Tensor = _Quantile.apply(samples, flat_indices, sample_numbers, tol, max_steps)  # type: ignore[no-untyped-call]
    dtype = torch.promote_types(torch.promote_types(x.dtype, u.dtype), torch.float32)
    return quantiles.to(dtype).reshape(*leading_shape, *u.shape[-2:])


class _Quantile(torch.autograd.Function):
    """Quantile of each u (p, k) in its sample: number `of` (p,) of the samples x (B, n, k). In float64."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, u: Tensor, of: Tensor, tol: float, max_steps: int) -> Tensor:
        origin = x.mean(-2, keepdim=True)
        centred = x - origin
        scale = centred.square().sum(-1, keepdim=True).mean(-2, keepdim=True).sqrt()
        scale.clamp_min_(torch.finfo(x.dtype).tiny)
        centred.div_(scale)
        q = torch.empty_like(u)
        for part in _parts(x, len(u)):
            sample_numbers = of[part]
            minimiser, sample_point = _minimise(centred, u[part], sample_numbers, tol, max_steps)
            rescaled = minimiser * scale[sample_numbers, 0] + origin[sample_numbers, 0]
            q[part] = torch.where(sample_point.unsqueeze(-1) >= 0, x[sample_numbers, sample_point], rescaled)
        ctx.save_for_backward(x, of, q)
        return q

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        """The gradient of u is H⁻¹g; that of x is the derivative of the mean unit vector, times −H⁻¹g."""
        x, of, q = ctx.saved_tensors
        by_x = torch.zeros_like(x) if ctx.needs_input_grad[0] else None
        by_u = torch.empty_like(q)
        for part in _parts(x, len(q)):
            unit, inverse = _units(x[of[part]], q[part])
            coincides = (inverse == 0).to(x)
            copies = coincides.sum(-1, keepdim=True)
            by_u[part] = torch.where(copies == 0, _solve(unit, inverse, g[part]), 0.0)
            if by_x is not None:
                perpendicular = by_u[part].unsqueeze(-2) - unit * (unit @ by_u[part].unsqueeze(-1))
                point_gradient = (coincides / copies.clamp_min(1)).unsqueeze(-1) * g[part].unsqueeze(-2)
                by_x.index_add_(
                    0, of[part], perpendicular.mul_(inverse.unsqueeze(-1) / x.shape[-2]).add_(point_gradient)
                )
        return by_x, by_u, None, None, None


def _parts(x: Tensor, number: int) -> list[slice]:
    """Slices of quantiles whose samples, copied, and whose Hessians have about `_ELEMENTS` elements."""
    n, k = x.shape[-2:]
    size = max(1, _ELEMENTS // (k * max(n, k)))
    return [slice(start, start + size) for start in range(0, number, size)]


def _minimise(x: Tensor, u: Tensor, of: Tensor, tol: float, max_steps: int) -> tuple[Tensor, Tensor]:
    """Q(u) (p, k) of standardised samples, and the number (p,) of the sample point that it is; −1 if none."""
    q, sample_point = torch.zeros_like(u), torch.full_like(of, -1)
    unsolved = torch.arange(len(u), device=u.device)
    for _ in range(max_steps):
        if not len(unsolved):
            return q, sample_point
        q[unsolved], sample_point[unsolved], done = _step(x[of[unsolved]], u[unsolved], q[unsolved], tol)
        unsolved = unsolved[~done]
    raise RuntimeError(
        f"{len(unsolved)} geometric quantiles are not within {tol} after {max_steps} steps; "
        "increase max_steps or tol"
    )


def _step(x: Tensor, u: Tensor, q: Tensor, tol: float) -> tuple[Tensor, Tensor, Tensor]:
    """One step of p quantiles, each with its sample (p, n, k): new q, its sample point or −1, if done."""
    unit, inverse = _units(x, q)
    share_at_q = (inverse == 0).double().mean(-1)
    gradient = unit.mean(-2) - u  # ∇L_u at q, without the sample points that are q itself
    gradient_norm = torch.linalg.vector_norm(gradient, dim=-1)
    # The part of Weiszfeld's step that a sample point at q holds back.
    held_back = (share_at_q / gradient_norm.clamp_min(tol)).clamp_max(1.0)
    weiszfeld = q - (1 - held_back).unsqueeze(-1) * gradient / inverse.mean(-1, keepdim=True)
    newton = torch.where((share_at_q == 0).unsqueeze(-1), q - _solve(unit, inverse, gradient), weiszfeld)
    # Near the solution, the two losses differ by rounding only, and Newton's step is better.
    losses = check_loss(x, u.unsqueeze(-2), torch.stack([newton, weiszfeld], -2))
    step = torch.where(losses[:, :1] <= losses[:, 1:] + 1e-14, newton, weiszfeld)

    # If the solution is a sample point, it soon is the nearest one to q, but the steps converge slowly.
    nearest = inverse.masked_fill(inverse == 0, torch.inf).argmax(-1)
    unit, inverse = _units(x, x[torch.arange(len(x), device=x.device), nearest])
    share_at_nearest = (inverse == 0).double().mean(-1)
    at_sample = torch.linalg.vector_norm(unit.mean(-2) - u, dim=-1) <= share_at_nearest + tol
    done = at_sample | (gradient_norm <= tol)
    return torch.where(done.unsqueeze(-1), q, step), nearest.where(at_sample, -1), done


def _units(x: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Unit vectors from sample to q (p, n, k), and 1/distance (p, n); both 0 for sample points that are q."""
    difference = q.unsqueeze(-2) - x
    distance = torch.linalg.vector_norm(difference, dim=-1)
    inverse = distance.reciprocal().masked_fill_(distance == 0, 0.0)
    return difference.mul_(inverse.unsqueeze(-1)), inverse


def _solve(unit: Tensor, inverse: Tensor, g: Tensor) -> Tensor:
    """H⁻¹g (p, k); H = mean of (I − unit·unitᵀ)/‖q − Xᵢ‖ is the Hessian, made regular by 10⁻¹²."""
    outer = (unit * inverse.unsqueeze(-1)).mT @ unit / unit.shape[-2]
    curvature = inverse.mean(-1)[:, None, None] * (1 + 1e-12)
    hessian = curvature * torch.eye(unit.shape[-1], dtype=unit.dtype, device=unit.device) - outer
    solution: Tensor = torch.linalg.solve_ex(hessian, g.unsqueeze(-1)).result
    return solution.squeeze(-1)
