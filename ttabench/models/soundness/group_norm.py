"""Group norm on the CPU: torch's backward pass can end the process."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["guard_group_norm"]


def guard_group_norm(net: nn.Module) -> None:
    """From now on, the group norm layers of `net` can learn from every image, and those of its copies.

    On the CPU, torch 2.13 ends the process with a segmentation fault in the backward pass of group norm, if
    its weights learn, its input does not, and the input is stored with the channels last. This is the first
    group norm layer of a network with frozen convolutions. Its input gets a gradient, which nothing reads.
    """
    for layer in net.modules():
        if isinstance(layer, nn.GroupNorm) and _with_gradient not in layer._forward_pre_hooks.values():
            layer.register_forward_pre_hook(_with_gradient)


def _with_gradient(layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
    x, *others = inputs
    learns = torch.is_grad_enabled() and any(p.requires_grad for p in layer.parameters(recurse=False))
    if learns and not x.requires_grad and x.device.type == "cpu":
        return x.detach().requires_grad_(), *others
    return None
