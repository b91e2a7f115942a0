"""Images of noise that networks are tried on, and eval mode for the time of a trial."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def noise_for(net: nn.Module, count: int, image_size: int, seed: int) -> Tensor:
    """`count` images (count, 3, H, W) in [0, 1], with device and type of the weights of `net`."""
    noise = torch.rand(count, 3, image_size, image_size, generator=torch.Generator().manual_seed(seed))
    return noise.to(next(net.parameters(), noise))


def gpus_of(x: Tensor) -> list[torch.device]:
    """The GPU that a tensor is on, whose random generator a trial with it uses; [] for the CPU."""
    return [x.device] if x.device.type == "cuda" else []


@contextmanager
def evaluated(net: nn.Module) -> Iterator[None]:
    """Eval mode in the block; afterwards every module has its own mode again."""
    modes = [(module, module.training) for module in net.modules()]
    net.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def unchanged(net: nn.Module) -> Iterator[None]:
    """After the block, the buffers of `net` have the values that they had before it."""
    kept = [(buffer, buffer.clone()) for buffer in net.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)
