"""Norm layers of classes that ttabench does not know, named by the user."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import nn

from ttabench.errors import UserError
from ttabench.models.soundness.norm_lookalikes import named_norms


def name_norm_layers(net: nn.Module, layers: Sequence[str] | str, image_size: int = 32) -> nn.Module:
    """A copy of `net` in which your own layers count as layer norm. It computes the same logits.

    Methods that adapt norm layers know torch's classes, ``LayerNorm2d`` and ``RMSNorm``. They leave out
    others, such as the ``LayerNorm`` of the original ConvNeXt code. For a sweep, call this in the function
    that makes the network.

    layers      names of classes, such as ``"LayerNorm"``, or of layers, such as ``"body.0.1"``.
    image_size  side of the images in pixels; the network is tried once on images of this size.

    Raises UserError for a name of no layer, for a layer without a weight or bias of one value per channel
    (also gamma, beta, scale, shift), and for one with running statistics.
    """
    if not isinstance(net, nn.Module):
        raise UserError(f"net is of type {type(net).__name__}; expected an nn.Module.")
    mine = copy.deepcopy(net)
    named_norms(mine, [layers] if isinstance(layers, str) else list(layers), image_size)
    return mine
