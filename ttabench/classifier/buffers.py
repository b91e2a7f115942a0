"""The buffers of a network, such as running statistics, as they were before a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """Restore all buffers at the end of the block, in which forward passes may update running statistics."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        yield
    finally:
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])
