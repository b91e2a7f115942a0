"""The normalisation layers of a network, and their kinds."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


def norm_kind(module: nn.Module) -> str:
    """The kind of a normalisation layer: "batch", "group", "layer" or "instance"; "" for other modules."""
    if isinstance(module, _BatchNorm):
        return "batch"
    if isinstance(module, nn.GroupNorm):
        return "group"
    if isinstance(module, nn.LayerNorm) or type(module).__name__ in ("LayerNorm2d", "RMSNorm"):
        return "layer"
    if isinstance(module, nn.modules.instancenorm._InstanceNorm):
        return "instance"
    return ""


def norm_modules(model: nn.Module, norms: str = "all") -> Iterator[tuple[str, nn.Module]]:
    """Normalisation layers with their names. `norms` is one kind, e.g. "batch", or "all" for every kind."""
    for name, module in model.named_modules():
        kind = norm_kind(module)
        if kind and norms in ("all", kind):
            yield name, module
