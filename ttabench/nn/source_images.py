"""Source images for methods, and their channel statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from ttabench.errors import UserError
from ttabench.method import SourceData


def channel_statistics(batches: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (C,) of the channels over all pixels of batches (b, C, H, W)."""
    count, mean, square = 0, torch.zeros(()), torch.zeros(())
    for x in batches:
        count += len(x)
        mean = mean.to(x) + (x.mean((0, 2, 3)) - mean.to(x)) * (len(x) / count)
        square = square.to(x) + (x.square().mean((0, 2, 3)) - square.to(x)) * (len(x) / count)
    return mean, (square - mean.square()).clamp_min(0).sqrt()


def source_batches(source: SourceData | None, batch_size: int, limit: int) -> Iterator[Tensor]:
    """Batches of clean source images in random order. Raises UserError if `source` is None."""
    if source is None:
        raise UserError("this method needs clean source images; pass source data to prepare(source).")
    return source.batches(batch_size, limit, shuffle=True)
