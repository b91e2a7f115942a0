"""Fisher information: how important each weight is for the predictions of the source model."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector


def fisher_information(model: nn.Module, parameters: list[nn.Parameter], batches: Iterable[Tensor]) -> Tensor:
    """ω (P,): mean over batches of (∂ CE(f(x), argmax f(x)) / ∂θ)², for all `parameters`, as one vector."""
    totals, count = [torch.zeros_like(p) for p in parameters], 0
    for x in batches:
        logits = model(x)
        gradients = torch.autograd.grad(cross_entropy(logits, logits.argmax(dim=1)), parameters)
        for total, gradient in zip(totals, gradients, strict=True):
            total += gradient.square()
        count += 1
    return parameters_to_vector(totals) / count
