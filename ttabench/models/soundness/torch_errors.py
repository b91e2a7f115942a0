"""What some errors of torch mean for a network and a method, in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ttabench.errors import UserError

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
    "backward through the graph a second time": (
        "the network keeps what it has computed from adapted parameters for later forward passes, as some "
        "networks of timm do in eval mode with their attention biases; let forward compute it each time, or "
        "choose a method that adapts norm layers alone"
    ),
    "as parameter 'weight' (torch.nn.Parameter or None expected)": (
        "the weight of a batch norm layer is computed from other parameters, as torch.nn.utils.weight_norm "
        "and prune do, so the method cannot adapt it; call remove_weight_norm or prune.remove on the layer"
    ),
}
"""A part of torch's text → the sentence."""

TWO_TYPES = (
    "and weight type (",
    "and bias type (",
    "have the same dtype, but got",
    "expected scalar type ",
    "mixed dtype (CPU)",
)
"""Parts of torch's texts about numbers of two types."""


@contextmanager
def explained(dtype: torch.dtype = torch.float32) -> Iterator[None]:
    """In the block, errors of torch that :data:`MEANINGS` knows are raised as UserError.

    dtype  that of the network's weights. Some methods work with float32 numbers.
    """
    try:
        yield
    except (RuntimeError, TypeError, ValueError) as problem:
        meanings = dict(MEANINGS)
        if dtype != torch.float32:
            meanings |= dict.fromkeys(
                TWO_TYPES,
                f"the method makes float32 numbers, and the network has weights of {dtype}; convert the "
                "network with model.float(), and call the method inside torch.autocast for a shorter type",
            )
        for part, meaning in meanings.items():
            if part in str(problem):
                raise UserError(f"{meaning}.") from problem
        raise
