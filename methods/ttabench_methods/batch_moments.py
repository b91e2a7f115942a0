"""Mean and variance over a batch, for each entry of the activations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK = 1 << 17  # values processed together on a CPU, so that they fit into its cache


def batch_moments(out: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and unbiased variance over the batch: (B, …) → (…), (…); the variance of one image is 0."""
    mean_and_variance: tuple[Tensor, Tensor] = _Moments.apply(out)  # type: ignore[no-untyped-call]
    return mean_and_variance


class _Moments(torch.autograd.Function):
    """The gradient takes one pass over saved deviations, since a network may overwrite `out` later."""

    @staticmethod
    def forward(ctx: Any, out: Tensor) -> tuple[Tensor, Tensor]:
        values = out.flatten(1)
        size = max(1, CHUNK // len(out)) if out.device.type == "cpu" else values.shape[1]
        deviations, mean, squares = torch.empty_like(values), values[0].clone(), values[0].clone()
        parts = (torch.split(x, size, dim=-1) for x in (values, deviations, mean, squares))
        for x, d, m, s in zip(*parts, strict=True):
            m.copy_(x.mean(dim=0))
            torch.sub(x, m, out=d)
            s.copy_(d.square().sum(dim=0))
        ctx.save_for_backward(deviations.view(out.shape))
        return mean.view(out.shape[1:]), squares.view(out.shape[1:]) / max(1, len(out) - 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (deviations,) = ctx.saved_tensors
        to_mean, to_variance = gradients
        scale = 2 / max(1, len(deviations) - 1)
        return torch.addcmul(to_mean / len(deviations), deviations, to_variance * scale)
