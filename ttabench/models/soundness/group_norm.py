"""Group norm on the CPU: torch's backward pass can end the process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ttabench.models.soundness.norm_lookalikes import NAMED


def guard_group_norm(net: nn.Module) -> None:
    """From now on, the group norm layers of `net` can learn from every image, and those of its copies.

    On the CPU, torch 2.13 ends the process with a segmentation fault in the backward pass of group norm, if
    its weights learn, its input gets no gradient, and the input is stored with the channels last. This is the
    first group norm layer of a network with frozen convolutions. Its input gets a gradient, which nothing
    reads. Layers that the user has named (`name_norm_layers`) may compute group norm too.
    """
    for layer in net.modules():
        group_norm = isinstance(layer, nn.GroupNorm) or hasattr(type(layer), NAMED)
        if group_norm and _with_gradient not in layer._forward_pre_hooks.values():
            layer.register_forward_pre_hook(_with_gradient, with_kwargs=True)


def _with_gradient(
    layer: nn.Module, inputs: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    learned = [p for p in layer.parameters(recurse=False) if p.requires_grad]
    if not learned or not torch.is_grad_enabled():
        return None

    def reached(x: Any) -> Any:
        frozen = isinstance(x, Tensor) and x.is_floating_point() and not x.requires_grad
        if not frozen or x.device.type != "cpu":
            return x
        return _Reached.apply(x, *learned)  # type: ignore[no-untyped-call]

    return tuple(map(reached, inputs)), {name: reached(value) for name, value in named.items()}


class _Reached(torch.autograd.Function):
    """x, as if it came from the weights: gradients that are asked for these weights alone reach it too.

    They end there, so the weights get the gradients that they would get without it.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, *learned: Tensor) -> Tensor:
        ctx.inputs = 1 + len(learned)
        return x.detach()

    @staticmethod
    def backward(ctx: Any, *_gradients: Tensor) -> tuple[None, ...]:
        inputs: int = ctx.inputs
        return (None,) * inputs
