"""Less memory for gradients: the blocks of a network compute their activations again in the backward pass.

A method with gradients keeps the activations of all layers until its backward pass. Here, a network keeps
only the inputs of its blocks (Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv 2016), and
its backward pass runs each block once more. On a CPU, the numbers are the same bit for bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from copy import copy
from functools import cache, partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import checkpoint

LISTS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def recompute_activations(net: nn.Module) -> int:
    """Let the blocks of `net`, and of all its copies, recompute activations. Returns how many there are."""
    blocks = {id(block): block for block in blocks_of(net)}.values()
    for block in blocks:
        kind: Any = type(block)
        block.__class__ = _recomputed(kind)
    return len(blocks)


def blocks_of(net: nn.Module) -> Iterator[nn.Module]:
    """The elements of the lists of layers in `net` that have layers of their own, such as residual blocks.

    An element with a list of such blocks of one class is a stage, and its blocks are taken.
    """
    for child in net.children():
        if not any(child.children()) or isinstance(child, torch.jit.ScriptModule):
            continue
        runs = isinstance(net, LISTS) and not isinstance(child, nn.ModuleList | nn.ModuleDict)
        if runs and not any(map(_of_blocks, child.modules())):
            yield child
        else:
            yield from blocks_of(child)


def _of_blocks(layers: nn.Module) -> bool:
    """Whether `layers` is a list of at least two blocks of one class."""
    elements = list(layers.children()) if isinstance(layers, LISTS) else []
    return (
        len(elements) > 1
        and len({*map(type, elements)}) == 1
        and not isinstance(elements[0], nn.Sequential)
        and any(elements[0].children())
    )


@cache
def _recomputed(kind: Any) -> Any:
    """A class of the same name, since methods find blocks by their class."""
    if issubclass(kind, _Recomputed):
        return kind
    return type(kind.__name__, (_Recomputed, kind), {"__module__": kind.__module__})


class _Recomputed:
    """Beside the class of a block: a forward pass that keeps no activations."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        run = super().forward  # type: ignore[misc]
        if not torch.is_grad_enabled():
            return run(*args, **kwargs)
        layers = _Layers(self)  # type: ignore[arg-type]
        inputs, lists = tree_flatten((args, kwargs))
        given = [(args, kwargs)]

        def run_with(*inputs: Any) -> Any:
            # A network may change a list or dict after the block has it: the backward pass has its own.
            args, kwargs = given.pop() if given else tree_unflatten(inputs, lists)
            return run(*args, **kwargs)

        return checkpoint(run_with, *inputs, use_reentrant=False, context_fn=lambda: (nullcontext(), layers))


class _Layers:
    """In the block, the layers of a network are as they were when this was made: in the forward pass."""

    def __init__(self, net: nn.Module) -> None:
        self._layers = [layer for layer in net.modules() if not isinstance(layer, torch.jit.ScriptModule)]
        self._before = [_copies(layer.__dict__) for layer in self._layers]
        self._now: list[dict[str, Any]] = []
        self._noted: list[tuple[Any, Any]] = []

    def __enter__(self) -> None:
        self._now = [dict(layer.__dict__) for layer in self._layers]
        run = [hook for before in self._before for hook in before["_forward_hooks"].values()]
        reached = {id(thing): thing for hook in run for thing in _reached(hook)}
        self._noted = [(thing, copy(thing)) for thing in reached.values()]
        for layer, before in zip(self._layers, self._before, strict=True):
            _become(layer, _copies(before))

    def __exit__(self, *_exception: object) -> None:
        for layer, now in zip(self._layers, self._now, strict=True):
            _become(layer, now)
        for thing, before in self._noted:  # what the hooks noted again
            thing.clear()
            thing.extend(before) if isinstance(thing, list | deque) else thing.update(before)
        self._now, self._noted = [], []


def _become(layer: nn.Module, state: Mapping[str, Any]) -> None:
    layer.__dict__.clear()
    layer.__dict__.update(state)


def _copies(state: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a layer with copies of what a pass may change in place."""
    copies = {name: _copy(value) for name, value in state.items()}
    return copies | {"_buffers": {name: _copy(buffer) for name, buffer in state["_buffers"].items()}}


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor) and not value.requires_grad:
        return value.clone()
    if isinstance(value, torch.Generator):
        return torch.Generator(value.device).set_state(value.get_state())
    return copy(value) if isinstance(value, dict | list | set | deque) else value


def _reached(thing: Any, depth: int = 4) -> Iterator[Any]:
    """The lists, dicts and sets that a function reaches by its closure or its object."""
    if isinstance(thing, dict | list | set | deque):
        yield thing
    elif depth and isinstance(thing, MethodType):
        yield from (*_reached(thing.__self__, depth - 1), *_reached(thing.__func__, depth - 1))
    elif depth and isinstance(thing, partial):
        for each in (thing.func, *thing.args, *thing.keywords.values()):
            yield from _reached(each, depth - 1)
    elif depth and isinstance(thing, FunctionType):
        for cell in thing.__closure__ or ():
            with suppress(ValueError):  # a cell without contents
                yield from _reached(cell.cell_contents, depth - 1)
    elif not isinstance(thing, nn.Module | Tensor | type | ModuleType) and isinstance(
        state := getattr(thing, "__dict__", None), dict
    ):
        yield state
        yield from (value for value in state.values() if isinstance(value, dict | list | set | deque))
