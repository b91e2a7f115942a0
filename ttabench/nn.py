"""Mechanics that several methods share: norm layers and their affine parameters, batch statistics.

A method file imports from here and from `ttabench.method`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttabench.classifier import Classifier

__all__ = [
    "Classifier",
    "describe",
    "entropy",
    "norm_affine",
    "norm_kind",
    "use_batch_statistics",
]


def norm_kind(module: nn.Module) -> str:
    """ "batch", "group", "layer" or "instance"; "" for everything else."""
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
    """Named normalisation layers: `norms` is "batch", or "all" for every kind."""
    for name, module in model.named_modules():
        kind = norm_kind(module)
        if kind and norms in ("all", kind):
            yield name, module


def norm_affine(model: nn.Module, norms: str = "all") -> dict[str, nn.Parameter]:
    """Weight and bias of the normalisation layers, switched to require gradients, by name."""
    found = {
        f"{name}.{leaf}": parameter
        for name, module in norm_modules(model, norms)
        for leaf, parameter in module.named_parameters(recurse=False)
        if leaf in ("weight", "bias")
    }
    for parameter in found.values():
        parameter.requires_grad_(True)
    return found


def use_batch_statistics(model: nn.Module) -> None:
    """Every batch-norm layer normalises with the mean and biased variance of its own input.

    Only those layers change: dropout and stochastic depth stay in eval mode, which matters for
    transformers, whose training-mode forward passes differ from each other.
    """
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.train()
            module.track_running_stats = False
            module.running_mean = module.running_var = module.num_batches_tracked = None


def entropy(logits: Tensor) -> Tensor:
    """Softmax entropy per row, natural logarithm: (B, C) → (B,)."""
    log_p = torch.log_softmax(logits, dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def describe(model: nn.Module, parameters: dict[str, nn.Parameter]) -> str:
    """Which layers `parameters` belong to, e.g. ``20 BatchNorm2d, 1,920 parameters``."""
    owners = {name.rpartition(".")[0] for name in parameters}
    kinds: dict[str, int] = {}
    for owner in owners:
        kind = type(model.get_submodule(owner)).__name__
        kinds[kind] = kinds.get(kind, 0) + 1
    layers = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
    return f"{layers or 'nothing'} ({sum(p.numel() for p in parameters.values()):,} parameters)"
