"""Layers that normalise and are of no class that ttabench knows, so that methods leave them out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ttabench.classifier.norm_layers import norm_kind
from ttabench.errors import UserError, counted
from ttabench.models.soundness.noise import evaluated, gpus_of, noise_for

IMAGES, SEED = 2, 3
SCALE, ROUNDING = 4.0, 1e-2  # a norm layer gives the same output for SCALE times its input

NAMED = "_ttabench_named"
"""An attribute of the classes of layers that a user has named."""

Lookalikes = dict[str, nn.Module]
"""Layers by their names."""


def lookalikes(net: nn.Module, image_size: int) -> Lookalikes:
    """Layers of `net` that look like norm layers, and are none of a known class. `net` does not change.

    A layer has parameters of one value per channel, or running statistics, and none of its parts is a known
    norm layer. It counts if its class has "norm" in its name, if it has running statistics, or if its output
    does not depend on the scale of its input.
    """
    candidates = {name: layer for name, layer in net.named_modules() if _may_be_norm(layer)}
    inputs = _inputs(net, candidates, image_size) if candidates else {}
    return {
        name: layer
        for name, layer in candidates.items()
        if "norm" in type(layer).__name__.lower()
        or _has_statistics(layer)
        or (name in inputs and _ignores_scale(layer, inputs[name]))
    }


def left_out(found: Lookalikes) -> str:
    """A sentence about these layers, without its stop; "" if there are none."""
    if not found:
        return ""
    kinds = Counter(type(layer).__name__ for layer in found.values())
    which = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
    look, them = ("look like norm layers", "them") if len(found) > 1 else ("looks like a norm layer", "it")
    return (
        f"{counted(len(found), 'layer')} {look} and {'are' if len(found) > 1 else 'is'} of no class that "
        f"ttabench knows ({which}; the first is {next(iter(found))}), so methods that adapt norm layers "
        f"leave {them} out; ttabench.name_norm_layers makes {them} count"
    )


def named_norms(net: nn.Module, wanted: Sequence[str], image_size: int) -> None:
    """Make layers of `net` count as layer norm: those with one of these names, or of a class with this name.

    `net` is changed: a named layer gets a class whose parents are its own class and which has a name that
    `classifier.norm_layers` knows, and its parameters are called weight and bias. It computes the same.
    Raises UserError for a name of no layer, and for a layer that cannot be a layer norm.
    """
    found: dict[str, nn.Module] = {}
    for each in wanted:
        layers = {
            name: layer
            for name, layer in net.named_modules()
            if each in (name, type(layer).__name__) and name
        }
        if not layers:
            raise UserError(
                f"'{each}' is no layer, and no class of layers, of {type(net).__name__}; expected names such "
                f"as {', '.join(_examples(net))}."
            )
        found |= layers
    outputs = _inputs(net, found, image_size, of_output=True)
    for name, layer in found.items():
        if not norm_kind(layer):
            _become_norm(name, layer, outputs.get(name))


def _become_norm(name: str, layer: nn.Module, output: Tensor | None) -> None:
    own = type(layer)
    roles = _roles(layer)
    if _has_statistics(layer):
        raise UserError(
            f"{name} ({own.__name__}) has running statistics, as batch norm has; methods know those of "
            "nn.BatchNorm2d only: make it a subclass of it."
        )
    if not roles:
        raise UserError(f"{name} ({own.__name__}) has no weight or bias of one value per channel to adapt.")
    if output is None:
        raise UserError(f"{name} ({own.__name__}) does not run in eval mode, so it cannot be adapted.")
    channels = max(layer.get_parameter(parameter).numel() for parameter in roles.values())
    for_images = output.dim() == 4 and output.shape[1] == channels and output.shape[-1] != channels
    if not for_images and output.shape[-1] != channels:
        raise UserError(
            f"{name} ({own.__name__}) gives outputs of shape {tuple(output.shape)} for {channels} channels; "
            "expected (B, C, H, W), or channels last."
        )
    body: dict[str, Any] = {"replaces": own.__name__, NAMED: True}
    for role, parameter in roles.items():
        if role != parameter:
            layer._parameters[role] = layer._parameters.pop(parameter)
            body[parameter] = property(partial(_renamed, role))
    # norm_kind knows these two classes by their names: with channels second, and last.
    layer.__class__ = type("LayerNorm2d" if for_images else "RMSNorm", (own,), body)


def _renamed(role: str, layer: nn.Module) -> nn.Parameter:
    return layer.get_parameter(role)


def _roles(layer: nn.Module) -> dict[str, str]:
    """ "weight" and "bias" → the names of the layer's parameters with these roles."""
    own = {name: p for name, p in layer.named_parameters(recurse=False) if _per_channel(p)}
    roles: dict[str, str] = {role: role for role in ("weight", "bias") if role in own}
    for role, others in (("weight", ("gamma", "scale", "g")), ("bias", ("beta", "shift", "offset", "b"))):
        for other in others:
            if role not in roles and other in own:
                roles[role] = other
    return roles


def _may_be_norm(layer: nn.Module) -> bool:
    if any(norm_kind(inner) for inner in layer.modules()) or type(layer).__module__.startswith(
        "torch.nn.mod"
    ):
        return False
    own = list(layer.parameters(recurse=False))
    alone = sum(1 for _ in layer.parameters()) == len(own)  # no layers with parameters inside
    return alone and all(map(_per_channel, own)) and (bool(own) or _has_statistics(layer))


def _per_channel(parameter: Tensor) -> bool:
    return parameter.numel() > 1 and parameter.numel() == max(parameter.shape, default=0)


def _has_statistics(layer: nn.Module) -> bool:
    return any("running" in name for name, _ in layer.named_buffers(recurse=False))


@torch.no_grad()
def _inputs(
    net: nn.Module, layers: Lookalikes, image_size: int, *, of_output: bool = False
) -> dict[str, Tensor]:
    """What each of `layers` gets, or gives, in a forward pass of noise; nothing for those that do not run."""
    noted: dict[str, Tensor] = {}

    def note(name: str, _layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        value = output if of_output else next(iter(inputs), None)
        if isinstance(value, Tensor):
            noted[name] = value.clone()

    hooks = [layer.register_forward_hook(partial(note, name)) for name, layer in layers.items()]
    x = noise_for(net, IMAGES, image_size, SEED)
    try:
        with evaluated(net), torch.random.fork_rng(devices=gpus_of(x)):
            net(x)
    finally:
        for hook in hooks:
            hook.remove()
    return noted


@torch.no_grad()
def _ignores_scale(layer: nn.Module, x: Tensor) -> bool:
    """Whether the output of `layer` is the same for a multiple of its input."""
    with evaluated(layer):
        try:
            once, more = layer(x.clone()), layer(SCALE * x)
        except Exception:  # a layer that takes more than one tensor
            return False
    if not (isinstance(once, Tensor) and isinstance(more, Tensor) and once.is_floating_point()):
        return False
    varies = once.float().std() > 0
    return bool(varies and (more - once).float().norm() <= ROUNDING * once.float().norm())


def _examples(net: nn.Module) -> Iterator[str]:
    classes = sorted({type(layer).__name__ for _, layer in net.named_modules() if _may_be_norm(layer)})
    yield from classes[:5] or sorted({type(layer).__name__ for layer in net.modules()})[:5]
