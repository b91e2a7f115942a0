"""The state of a method as a flat dictionary, so that two states can be compared bitwise."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from functools import _lru_cache_wrapper
from random import Random
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ttabench.method.unrestored import COMPILED, original_of_compiled
from ttabench.models.soundness.gradient_flow import graph_of

Leaf = bytes | str | int | float | complex | bool | None
Snapshot = dict[str, Leaf]
Walked = Iterator[tuple[str, Any]]

SIMPLE = (bool, int, float, complex, str, bytes, type(None))
# Compared by name: they have no state.
CODE = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType, torch.dtype, torch.device)


def snapshot(thing: object, skip: tuple[str, ...] = ("_prepared", "counts")) -> Snapshot:
    """All values reachable from `thing`, by path (``model.net.fc.weight``), except attributes in `skip`."""
    return {path: _leaf(part) for path, part in _walk(thing, skip)}


def difference(before: Snapshot, after: Snapshot) -> str:
    """The first path where two snapshots differ; "" if they are the same to the bit."""
    for path in [*before, *(path for path in after if path not in before)]:
        if path not in after:
            return f"{path} is gone"
        if path not in before:
            return f"{path} is new"
        old, new = before[path], after[path]
        if type(old) is not type(new) or (old != new and not (old != old and new != new)):  # NaN is itself
            return f"{path} differs"
    return ""


def size(taken: Snapshot) -> int:
    """Bytes held; eight for a number."""
    return sum(len(leaf) if isinstance(leaf, (bytes, str)) else 8 for leaf in taken.values())


def holds(thing: object, kind: type) -> str:
    """The path of the first instance of `kind` reachable from `thing`; "" if there is none."""
    return next((path for path, part in _walk(thing, ()) if type(part) is kind), "")


def deepest_graph(thing: object) -> tuple[int, str]:
    """The nodes of the largest autograd graph that a tensor reachable from `thing` keeps, and its path.

    What `prepare` saved for `reset` does not count.
    """
    tensors = [(path, part) for path, part in _walk(thing, ("_prepared",)) if isinstance(part, Tensor)]
    gradients = [(f"{path}.grad", tensor.grad) for path, tensor in tensors if tensor.is_leaf]
    both = (*tensors, *gradients)
    attached = ((path, tensor) for path, tensor in both if tensor is not None and tensor.grad_fn)
    return max(((len(graph_of(tensor)), path) for path, tensor in attached), default=(0, ""))


def _walk(thing: Any, skip: tuple[str, ...], path: str = "", above: frozenset[int] = frozenset()) -> Walked:
    """What can be reached, by path: what is not taken apart, and after its parts each object of a class."""
    if isinstance(thing, (Tensor, np.ndarray, *SIMPLE, *CODE)):
        yield path, thing
    elif type(thing) in (dict, OrderedDict) and not thing:
        return  # most of what a module has are its empty tables of hooks
    elif id(thing) not in above:
        for name, part in _parts(thing, skip):
            yield from _walk(part, skip, f"{path}.{name}" if path else str(name), above | {id(thing)})
        if type(thing).__module__ not in ("builtins", "collections"):
            yield path, thing


def _leaf(thing: Any) -> Leaf:
    """What :func:`_walk` gives, as a value to compare."""
    if isinstance(thing, Tensor):
        flat = thing.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return f"{tuple(thing.shape)} {thing.dtype} {thing.requires_grad}".encode() + flat.tobytes()
    if isinstance(thing, np.ndarray):
        return f"{thing.shape} {thing.dtype}".encode() + thing.tobytes()
    if isinstance(thing, CODE):
        return str(getattr(thing, "__qualname__", repr(thing)))
    return thing if isinstance(thing, SIMPLE) else f"<{type(thing).__name__}>"


def _parts(thing: Any, skip: tuple[str, ...]) -> Iterator[tuple[object, Any]]:
    if isinstance(thing, torch.optim.Optimizer):
        yield from thing.state_dict().items()  # numbers parameters, where `state` is keyed by identity
    elif isinstance(thing, nn.Module) and (original := original_of_compiled(thing)) is not None:
        yield from _parts(original, skip)  # all else in a compiled module is torch's
    elif isinstance(thing, torch.Generator):
        yield "state", thing.get_state()
    elif isinstance(thing, np.random.Generator):
        yield "state", thing.bit_generator.state
    elif isinstance(thing, Random):
        yield "state", thing.getstate()
    elif isinstance(thing, Mapping):
        for number, (key, value) in enumerate(thing.items()):
            yield (key if isinstance(key, (str, int, float, tuple)) else number), value
    elif isinstance(thing, _lru_cache_wrapper):  # its content is hidden, but its size is known
        yield from enumerate([None] * thing.cache_info().currsize)
    elif isinstance(thing, (list, tuple, deque)):
        yield from enumerate(thing)
    elif isinstance(thing, (set, frozenset)):
        yield from enumerate(sorted(thing, key=repr))
    else:
        slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        for name in slots:
            if hasattr(thing, name):
                yield name, getattr(thing, name)
        for name, value in vars(thing).items() if hasattr(thing, "__dict__") else ():
            if name not in (*skip, COMPILED):
                yield name, value
