"""Threads among which torch computes the weight gradients of a network without overwriting memory.

torch (seen with 2.13 and oneDNN 3.12) writes past the end of a buffer in the weight gradient of a strided
1×1 convolution with fewer channels than a vector register has numbers, in channels_last format, where the
threads do not share the images of a batch evenly. The process then dies, or goes on with changed memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ttabench.system.cores import torch_threads

VECTOR = 16  # float32 numbers in a vector register of AVX-512


@contextmanager
def even_threads(net: nn.Module, images: int = 1) -> Iterator[None]:
    """In the block, a `net` with such a layer has a number of threads that divides `images`; others keep it.

    images  of every batch whose gradient is computed; 1 = not known, so one thread.
    """
    if not any(map(_overwrites, net.modules())):
        yield
        return
    most = torch.get_num_threads()
    with torch_threads(max(n for n in range(1, most + 1) if images % n == 0)):
        yield


def _overwrites(layer: nn.Module) -> bool:
    return (
        isinstance(layer, nn.Conv2d)
        and layer.weight.device.type == "cpu"
        and layer.kernel_size == (1, 1)
        and max(layer.stride) > 1
        and layer.in_channels < VECTOR
    )
