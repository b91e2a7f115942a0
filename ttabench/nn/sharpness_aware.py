"""The first half of a sharpness-aware step (SAM), as SAR and SoTTA take it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn


@contextmanager
def sharpness(parameters: Iterable[nn.Parameter], rho: float) -> Iterator[None]:
    """Move the parameters to θ + ρ·g/‖g‖ inside the block (Foret et al., ICLR 2021, Eq. 2).

    g is the gradient before the block, over all `parameters`; it is cleared. After the block, the parameters
    are bitwise at θ again and have the gradient computed inside, ready for the optimiser's step.
    """
    moved: list[Tensor] = [p for p in parameters if p.grad is not None]
    if not moved:
        yield
        return
    with torch.no_grad():
        before = [p.clone() for p in moved]
        grads = [cast(Tensor, p.grad) for p in moved]
        norm = torch.stack(torch._foreach_norm(grads)).norm()
        torch._foreach_add_(moved, list(torch._foreach_mul(grads, rho / (norm + 1e-12))))
    for p in moved:
        p.grad = None
    try:
        yield
    finally:
        with torch.no_grad():
            torch._foreach_copy_(moved, before)
