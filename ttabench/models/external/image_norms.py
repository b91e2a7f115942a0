"""Layer norms for images (B, C, H, W) of other packages, under the name by which ttabench knows them.

Methods that look at channels, such as AQR, take the last dimension of a layer norm's output for them, unless
the class is called ``LayerNorm2d``. timm has more such classes, for example the ``LayerNorm2dNoBias`` of
CAFormer and the ``LayerNormAct2d`` of EfficientNets.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ttabench.classifier.norm_layers import norm_kind

PLAIN = (nn.LayerNorm.forward, nn.RMSNorm.forward)
NAME = "LayerNorm2d"


@torch.no_grad()
def name_image_norms(net: nn.Module) -> None:
    """Give the layer norms of `net` that normalise the channels of images a class called ``LayerNorm2d``.

    The parent of this class is the layer's own, so the layer computes the same. Other layers do not change.
    """
    for layer in net.modules():
        kind = type(layer)
        is_layer_norm = norm_kind(layer) == "layer" and kind.__name__ != NAME
        if is_layer_norm and kind.forward not in PLAIN and _takes_images(layer):
            layer.__class__ = _named(kind)


def _takes_images(layer: nn.Module) -> bool:
    """Whether a layer with C channels takes images (1, C, H, W), none of whose sides is C."""
    sizes = [*getattr(layer, "normalized_shape", ()), *(p.numel() for p in layer.parameters(recurse=False))]
    parameter = next(layer.parameters(recurse=False), torch.empty(0))
    if not sizes or sizes[0] == 1:  # one weight for all channels fits every dimension
        return False
    side = 2 if sizes[0] != 2 else 3
    x = parameter.new_ones(1, sizes[0], side, side)
    try:
        out = type(layer).forward(layer, x)
    except Exception:  # one of tokens, or a class of the user that takes something else
        return False
    return isinstance(out, Tensor) and out.shape == x.shape


_MADE: dict[type[nn.Module], type[nn.Module]] = {}


def _named(kind: type[nn.Module]) -> type[nn.Module]:
    """A class with the name, one for each class of layers."""
    if kind not in _MADE:
        replaces = getattr(kind, "replaces", kind.__name__)
        _MADE[kind] = type(NAME, (kind,), {"replaces": replaces, "__module__": kind.__module__})
    return _MADE[kind]
