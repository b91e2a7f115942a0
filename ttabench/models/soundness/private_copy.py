"""Methods work on a copy of a network. Here is checked that the copy computes with its own weights.

A forward that is a function, or a hook, may keep the network that it was made for. Python copies functions by
reference, so a copy of such a network runs the original: what a method does to the copy has no effect, and
the original changes.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ttabench.classifier.norm_layers import norm_modules
from ttabench.errors import UserError, counted
from ttabench.models.soundness.noise import evaluated, gpus_of, noise_for
from ttabench.nn import use_batch_statistics

IMAGES, SEED = 3, 1  # other images, and another batch size, than those of `classifier.probe`
ROUNDING = {torch.float64: 1e-6, torch.float32: 1e-3}  # relative difference of logits; others: HALF
HALF = 5e-2
REPEATED = {torch.float64: 1e-9, torch.float32: 1e-5}  # the same copy twice, whose kernels are the same
HALF_REPEATED = 1e-2


def private_copy(net: nn.Module, name: str) -> nn.Module:
    """A deep copy of the network called `name`. Raises UserError if it cannot be copied."""
    try:
        return copy.deepcopy(net)
    except Exception as problem:  # a class of the user may raise anything
        reason = next(iter(str(problem).strip().splitlines()), "") or type(problem).__name__
        raise UserError(f"{name} cannot be copied ({reason}), and a method works on a copy.") from None


@torch.no_grad()
def check_copy(net: nn.Module, image_size: int, name: str) -> None:
    """Raise UserError unless a copy of `net` computes the same logits, with its own weights alone.

    `net` maps images (B, 3, H, W) to logits (B, C). It is not changed, nor is the global random generator.
    """
    _check_parametrised(net, name)
    mine = private_copy(net, name).eval()
    x = noise_for(net, IMAGES, image_size, SEED)
    kept = {key: buffer.clone() for key, buffer in mine.named_buffers()}
    with torch.random.fork_rng(devices=gpus_of(x)), evaluated(net), _as_written():
        with Reads() as reads:
            first = mine(x)
        _check_reads(net, mine, reads, name)
        _check_constant(mine, kept, name)
        second, original = mine(x), net(x)
    if not _same(first, second, REPEATED.get(first.dtype, HALF_REPEATED)):
        raise UserError(
            f"{name} gives other logits for the same images in eval mode. Something in its forward is random "
            "or counts its calls, such as F.dropout without training=self.training; make it depend only "
            "on the images."
        )
    if not _same(first, original):
        raise UserError(
            f"a copy of {name} gives other logits than {name} itself, and a method works on a copy: a part "
            "of the network is not copied, such as a hook or a value that belongs to one object."
        )
    _check_replacing(mine, x, name)


def _check_constant(mine: nn.Module, before: Mapping[str, Tensor], name: str) -> None:
    """Raise UserError if a forward pass in eval mode has changed buffers of `mine`."""
    changed = [
        key for key, buffer in mine.named_buffers()
        if key in before and buffer.is_floating_point() and not torch.equal(buffer, before[key])
    ]  # fmt: skip
    if changed:
        raise UserError(
            f"{name} changes {changed[0]}{_more(changed)} in eval mode, so its logits depend on the images "
            "that it has seen; let eval() switch this off, as it does for nn.BatchNorm2d."
        )


def _check_replacing(mine: nn.Module, x: Tensor, name: str) -> None:
    """Raise UserError if batch-norm layers of `mine` run although others have been put in their places.

    `mine` is changed. Layers that a method does not know how to replace are left to the method.
    """
    layers = dict(norm_modules(mine, "batch"))
    means = {key: getattr(layer, "running_mean", None) for key, layer in layers.items()}
    statistics = {_place(mean): key for key, mean in means.items() if isinstance(mean, Tensor)}
    ran = _ran(mine, x, list(layers))
    try:
        use_batch_statistics(mine)
    except Exception:  # a layer that is unknown, or a scripted network, which accepts no other layers
        return
    with torch.random.fork_rng(devices=gpus_of(x)), _as_written(), Reads() as reads:
        try:
            mine(x)
        except Exception as problem:  # the network may need something of a layer that is no longer there
            reason = next(iter(str(problem).strip().splitlines()), "") or type(problem).__name__
            raise UserError(
                f"{name} cannot run with batch norm that normalises by the statistics of a batch ({reason}); "
                "let its forward call its batch-norm layers, and not read their tensors."
            ) from None
    still = [key for place, key in statistics.items() if place in reads.places]
    if still:
        raise UserError(
            f"{name} reaches its batch norm {still[0]}{_more(still)} in another way than by attributes, "
            "such as a list, a dict or a function, so a method cannot replace it. Keep layers as attributes, "
            "or in an nn.ModuleList or nn.ModuleDict."
        )
    idle = sorted(ran - _ran(mine, x, list(layers)))
    if idle:
        raise UserError(
            f"{name} does not run what a method puts in the place of its batch norm {idle[0]}{_more(idle)}: "
            "its forward chooses layers by their class. Let it call them whatever their class is."
        )


def _ran(mine: nn.Module, x: Tensor, names: list[str]) -> set[str]:
    """Those of the layers called `names` that run on images; none where the network fails on them."""
    ran: set[str] = set()
    hooks = [
        mine.get_submodule(key).register_forward_pre_hook(lambda _module, _inputs, key=key: ran.add(key))
        for key in names
    ]
    try:
        with torch.random.fork_rng(devices=gpus_of(x)), _as_written():
            mine(x)
    except Exception:
        return set()
    finally:
        for hook in hooks:
            hook.remove()
    return ran


def _check_parametrised(net: nn.Module, name: str) -> None:
    """Raise UserError if weight or bias of a norm layer is computed from other parameters."""
    for layer, module in norm_modules(net):
        computed = [leaf for leaf in ("weight", "bias") if parametrize.is_parametrized(module, leaf)]
        if computed:
            raise UserError(
                f"the {computed[0]} of the norm layer {layer} of {name} is computed from other parameters, "
                "so a method cannot adapt it; call torch.nn.utils.parametrize.remove_parametrizations on it."
            )


def _check_reads(net: nn.Module, mine: nn.Module, reads: Reads, name: str) -> None:
    """Raise UserError if the copy `mine` of `net` read tensors that are not its own in a forward pass."""
    own, others = places(mine), places(net)
    foreign = [others[place] for place in reads.places if place in others]
    if foreign:
        raise UserError(
            f"a copy of {name} runs layers of {name} itself ({foreign[0]}{_more(foreign)}), and a "
            "method works on a copy. A function keeps the network: a forward that was replaced "
            "(net.forward = …), or a hook. Write it as a module around the network, class Wrapped(nn.Module) "
            "with self.net = net."
        )
    if not own.keys() & reads.places.keys():
        raise UserError(
            f"the logits of a copy of {name} do not come from its parameters; expected a network that "
            "computes with layers of its own."
        )
    hidden = [shape for place, shape in reads.places.items() if shape is not None and place not in own]
    if hidden:
        raise UserError(
            f"{name} computes with {counted(len(hidden), 'parameter')} that it does not list, the first of "
            f"shape {hidden[0]}: a method would not find their layers. Keep layers as attributes, or in an "
            "nn.ModuleList or nn.ModuleDict, and not in a list, a dict or a function."
        )


class Reads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the memory of all tensors that operations read inside the block.

    places   address → the shape if the tensor is a parameter, else None.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.places: dict[int, tuple[int, ...] | None] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, Tensor) and (place := _place(leaf)):
                shape = tuple(leaf.shape) if isinstance(leaf, nn.Parameter) else None
                self.places[place] = self.places.get(place) or shape
        return func(*args, **(kwargs or {}))


def places(net: nn.Module) -> dict[int, str]:
    """Address → name of all parameters and buffers."""
    named = (*net.named_parameters(), *net.named_buffers())
    return {place: name for name, tensor in named if (place := _place(tensor))}


def _place(tensor: Tensor) -> int:
    """The address of a tensor's memory; 0 if it has none."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # tensors of special layouts
        return 0


def _same(a: Tensor, b: Tensor, rounding: float = 0.0) -> bool:
    """Whether logits (B, C) are the same but for rounding. Equal logits that are not finite are the same."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if torch.equal(a.isfinite(), b.isfinite()) and not a.isfinite().all():
        return True
    wide, other = a.double(), b.double()
    return bool((wide - other).norm() <= (rounding or ROUNDING.get(a.dtype, HALF)) * wide.norm())


def _as_written() -> AbstractContextManager[Any]:
    """Compiled parts run as they were written: kernels do not tell which tensors they read."""
    set_stance = getattr(torch.compiler, "set_stance", None)  # since torch 2.6
    nothing_compiled = "torch._dynamo" not in sys.modules  # its import takes seconds
    return nullcontext() if nothing_compiled or set_stance is None else set_stance("force_eager")


def _more(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""
