"""What some errors of torch mean for a network and a method, in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ttabench.errors import UserError

__all__ = ["explained"]

MEANINGS = {
    "appears to not have been used in the graph": (
        "the method needs a gradient of each parameter that it adapts, and a layer of this network does not "
        "run in eval mode, such as an auxiliary head; remove this layer from the network"
    ),
    "Expected more than 1 value per channel": (
        "a batch of one image has no variance where maps have one pixel; choose another batch size or limit, "
        "so that no batch has one image"
    ),
    "bincount only supports 1-d non-negative": (
        "a channel of a norm layer has the same value on all source images, and the method needs quantiles "
        "of its values; give the network as your own, MODULE:FUNCTION, where such channels are allowed"
    ),
}
"""A part of torch's text → the sentence."""


@contextmanager
def explained() -> Iterator[None]:
    """In the block, errors of torch that :data:`MEANINGS` knows are raised as UserError."""
    try:
        yield
    except (RuntimeError, ValueError) as problem:
        for part, meaning in MEANINGS.items():
            if part in str(problem):
                raise UserError(f"{meaning}.") from problem
        raise
