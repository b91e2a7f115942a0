"""The parameters that a method adapts: of the normalisation layers, or of all layers."""

from __future__ import annotations

from collections.abc import Collection

from torch import nn

from ttabench.classifier.norm_layers import norm_modules
from ttabench.errors import UserError


def norm_affine(model: nn.Module, norms: str = "all", skip: Collection[str] = ()) -> dict[str, nn.Parameter]:
    """Weight and bias of the normalisation layers, by name; they now require gradients.

    Layers named in `skip` are left out (see :func:`top_norms`). Raises UserError if no parameter is left.
    """
    affine = {
        f"{name}.{leaf}": parameter
        for name, module in norm_modules(model, norms)
        if name not in skip
        for leaf, parameter in module.named_parameters(recurse=False)
        if leaf in ("weight", "bias")
    }
    if not affine:
        kind = "" if norms == "all" else f"{norms} "
        raise UserError(
            f"the model has no {kind}norm layer with a weight or bias to adapt; choose another model."
        )
    for parameter in affine.values():
        parameter.requires_grad_(True)
    return affine


def weights_and_biases(model: nn.Module) -> dict[str, nn.Parameter]:
    """All parameters of `model` that are called weight or bias, by name; they now require gradients.

    Others, such as the class token of a transformer, are left out, as in the official code of CoTTA.
    """
    found = {
        name: parameter
        for name, parameter in model.named_parameters()
        if name.rpartition(".")[2] in ("weight", "bias")
    }
    for parameter in found.values():
        parameter.requires_grad_(True)
    return found


def norm_needs(norms: str, statistics: str = "batch") -> tuple[str, ...]:
    """Kinds of norm layer: the model needs at least one of them if a method adapts `norms`.

    `norms` is "batch" or "all". Statistics other than "batch" exist for batch norm only, so they need it.
    """
    if norms == "all" and statistics == "batch":
        return ("batch", "group", "layer", "instance")
    return ("batch",)


def set_norm_mode(model: nn.Module, *, train: bool) -> None:
    """Put the normalisation layers, and no other layer, in train or eval mode.

    Dropout and stochastic depth stay in eval mode: in train mode, they would make the forward passes of
    transformers random.
    """
    for _, module in norm_modules(model):
        module.training = train  # train() would also change modules inside the layer


def describe(model: nn.Module, parameters: dict[str, nn.Parameter]) -> str:
    """Which layers `parameters` belong to, e.g. ``20 BatchNorm2d (1,920 parameters)``."""
    kinds: dict[str, int] = {}
    for owner in {name.rpartition(".")[0] for name in parameters}:
        module = model.get_submodule(owner)
        kind = getattr(module, "replaces", type(module).__name__)  # the class of the layer that it replaced
        kinds[kind] = kinds.get(kind, 0) + 1
    layers = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
    return f"{layers or 'nothing'} ({sum(p.numel() for p in parameters.values()):,} parameters)"
