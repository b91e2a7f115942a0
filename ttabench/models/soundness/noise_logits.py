"""What a network computes, beside its weights: its logits on fixed images of noise.

A value that a network reads from a file and keeps as an attribute, or a buffer that its state dict lacks,
changes what it computes and not its weights.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ttabench.models.soundness.noise import evaluated

IMAGES, SEED = 2, 4
DIGITS = 4  # of the numbers in a hash; they come from float64, so other processors give the same ones
TOLERANCE = 1e-6  # relative difference of logits that are the same


@torch.no_grad()
def noise_logits(classifier: nn.Module, image_size: int) -> list[float]:
    """Logits (IMAGES · C,) on the CPU, in float64 if the network can; `classifier` is not changed."""
    x = torch.rand(IMAGES, 3, image_size, image_size, generator=torch.Generator().manual_seed(SEED))
    with torch.random.fork_rng(devices=[]):
        try:
            with evaluated(wide := copy.deepcopy(classifier).cpu().double()):
                out = wide(x.double())
        except Exception:  # a network may ask for float32
            with evaluated(own := copy.deepcopy(classifier).cpu()):
                out = own(x)
    logits: Tensor = out.double().flatten()
    values: list[float] = logits.tolist()
    return values


def same_logits(a: Sequence[Any], b: Sequence[float]) -> bool:
    """Whether two networks gave the same logits but for rounding."""
    if len(a) != len(b):
        return False
    one, other = torch.tensor(a, dtype=torch.double), torch.tensor(b, dtype=torch.double)
    same = (one - other).norm() <= TOLERANCE * other.norm()
    return bool(same) or torch.equal(one.nan_to_num(), other.nan_to_num())


def with_logits(weights: str, logits: Sequence[float], *, exact: bool = False) -> str:
    """SHA-256 (hex) of the hash of `weights` and of the size and the direction of the logits, rounded.

    exact   hash every digit, for networks that differ in digits that rounding drops.
    """
    values = torch.tensor(logits, dtype=torch.double)
    numbers = values.tolist() if exact else _rounded(values)
    return hashlib.sha256(f"{weights} {numbers}".encode()).hexdigest()


def _rounded(values: Tensor) -> list[str]:
    """The logarithm of the norm, and the projection of the direction on a fixed one; few, as any may flip."""
    size = values.norm()
    fixed = torch.randn(len(values), generator=torch.Generator().manual_seed(SEED), dtype=torch.double)
    numbers = (size.clamp_min(1e-30).log10(), (values @ fixed) / size.clamp_min(1e-30))
    return [f"{float(number) + 0.0:.{DIGITS}f}" for number in numbers]
