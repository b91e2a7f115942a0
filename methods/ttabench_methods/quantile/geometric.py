"""Geometric quantiles (Chaudhuri 1996): the quantile index of a point, and the loss that matches indices.

Symbols of the paper ↔ names here: U_F(z) `quantile_index`, z `points`, sample X₁…Xₙ `x`,
L_quant `quantile_loss`. The inverse of the index, Q(u), is in :mod:`.solver`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_PAIRS = 1 << 18  # point–sample pairs at a time: 1 MB per matrix
_CLOSE = 1 << 12  # close pairs at a time, with one vector for each


def quantile_index(points: Tensor, x: Tensor, weights: Tensor | None = None) -> Tensor:
    """U_F(z) = E_X[(z − X)/‖z − X‖] of the sample `x`, the mean unit vector from sample to point.

    points (…, Q, k), x (…, n, k), of the same leading shape; weights (…, Q, n) ≥ 0 for a weighted sample,
    without gradient. Returns (…, Q, k), in float32 or better, of length at most 1; NaN where no
    sample is left. A sample equal to its point is left out of both the sum and the count: the second case of
    the inverse map (Theorem 1). Differentiable once, in memory of a few Q × n matrices.
    """
    total, count = unit_sum(points, x, weights)
    return total / count.unsqueeze(-1)


def quantile_loss(points: Tensor, x: Tensor, index: Tensor) -> Tensor:
    """L_quant = mean over the Q points of ‖U_x(z) − u_z‖²; `index` (…, Q, k) holds the u_z. Returns (…,)."""
    return (quantile_index(points, x) - index).square().sum(-1).mean(-1)


def unit_sum(points: Tensor, x: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The sum Σᵢ aᵢ(z − Xᵢ)/‖z − Xᵢ‖ (…, Q, k) behind the index, and the count Σᵢ aᵢ (…, Q) of Xᵢ ≠ z."""
    dtype = torch.promote_types(torch.promote_types(points.dtype, x.dtype), torch.float32)
    with torch.autocast(points.device.type, enabled=False):
        points, x = points.to(dtype), x.to(dtype)
        # Unit vectors do not depend on the origin; inner products lose the fewest digits around the mean.
        origin = x.detach().sum(-2, keepdim=True) / max(1, x.shape[-2])
        if weights is not None:
            weights = weights.expand(*points.shape[:-1], x.shape[-2])
        rows = max(1, _PAIRS // max(1, points.shape[-2]))
        total, count = torch.zeros_like(points), points.new_zeros(points.shape[:-1])
        for start in range(0, x.shape[-2], rows):
            part = slice(start, start + rows)
            part_weights = None if weights is None else weights[..., part].to(dtype)
            part_total, part_count = _UnitSum.apply(points, x[..., part, :], origin, part_weights)  # type: ignore[no-untyped-call]
            total += part_total
            count += part_count
    return total, count


class _UnitSum(torch.autograd.Function):
    """With wᵢ = aᵢ/‖z − Xᵢ‖ the sum is z·Σwᵢ − Σ wᵢXᵢ: two matrix products, nothing of size Q × n × k.

    In close pairs, the distance and this difference would cancel: these pairs are computed one by one.
    """

    @staticmethod
    def forward(
        ctx: Any, points: Tensor, sample: Tensor, origin: Tensor, a: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        z, x = points - origin, sample - origin
        squares = z.square().sum(-1).unsqueeze(-1) + x.square().sum(-1).unsqueeze(-2)
        d2 = (z @ x.mT).mul_(-2).add_(squares)
        # The rounding error of d² is about ε·squares; above this threshold, it is below ε^¾ of d².
        close = d2 <= squares.mul_(torch.finfo(d2.dtype).eps ** 0.25)
        inverse = d2.rsqrt_().masked_fill_(close, 0.0)
        w = inverse if a is None else inverse * a
        total = (w @ x).neg_().addcmul_(z, w.sum(-1, keepdim=True))
        count = z.new_full(z.shape[:-1], x.shape[-2]) if a is None else a.sum(-1)
        pairs = close.nonzero()
        for q, i in _places(pairs):
            distance, unit = _unit(points[q] - sample[i])
            weight = torch.ones_like(distance) if a is None else a[(*q, i[-1])]
            total.index_put_(q, weight.unsqueeze(-1) * unit, accumulate=True)
            count.index_put_(q, -weight * (distance == 0), accumulate=True)
        ctx.save_for_backward(points, sample, origin, inverse, w, pairs, *(() if a is None else (a,)))
        ctx.mark_non_differentiable(count)
        return total, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, _count: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """∂unit/∂z = (I − unit·unitᵀ)/‖z − X‖ = −∂unit/∂X, contracted with g (…, Q, k)."""
        points, sample, origin, inverse, w, pairs, *rest = ctx.saved_tensors
        z, x = points - origin, sample - origin
        inner = (z * g).sum(-1, keepdim=True) - g @ x.mT  # (z − X)·g
        p = inner.mul_(inverse).mul_(inverse).mul_(w)
        by_z = by_x = None
        if ctx.needs_input_grad[0]:
            by_z = g * w.sum(-1, keepdim=True) - z * p.sum(-1, keepdim=True) + p @ x
        if ctx.needs_input_grad[1]:
            by_x = p.mT @ z - w.mT @ g - x * p.sum(-2).unsqueeze(-1)
        for q, i in _places(pairs):
            distance, unit = _unit(points[q] - sample[i])
            weight = (rest[0][(*q, i[-1])] if rest else 1.0) / distance.where(distance > 0, torch.inf)
            perpendicular = weight.unsqueeze(-1) * (g[q] - unit * (unit * g[q]).sum(-1, keepdim=True))
            if by_z is not None:
                by_z.index_put_(q, perpendicular, accumulate=True)
            if by_x is not None:
                by_x.index_put_(i, -perpendicular, accumulate=True)
        return by_z, by_x, None, None


_Place = tuple[Tensor, ...]


def _places(pairs: Tensor) -> list[tuple[_Place, _Place]]:
    """The indices of each pair, in chunks: (…, q) of its point and (…, i) of its sample."""
    places = []
    for chunk in torch.split(pairs, _CLOSE) if len(pairs) else ():
        *leading, q, i = chunk.unbind(-1)
        places.append(((*leading, q), (*leading, i)))
    return places


def _unit(difference: Tensor) -> tuple[Tensor, Tensor]:
    """Lengths and directions of vectors; the direction of a zero vector is 0."""
    distance = torch.linalg.vector_norm(difference, dim=-1)
    return distance, difference / distance.where(distance > 0, torch.inf).unsqueeze(-1)
