"""The parameters of all layers that a method trains."""

from __future__ import annotations

from torch import nn

__all__ = ["weights_and_biases"]


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
