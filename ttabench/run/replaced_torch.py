"""Whether a part of torch, such as the forward of a layer, was replaced for the whole process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.nn import functional

HOME = str(Path(torch.__file__).parent)
OWNERS = {"torch": torch, "torch.nn.functional": functional, "torch.Tensor": torch.Tensor, "torch.nn": nn}
"""Whose functions, methods and layers networks compute with."""
LAYERS = {f"torch.nn.{name}": layer for name, layer in vars(nn).items() if isinstance(layer, type)}
PASSES = ("__call__", "_call_impl", "forward")


def replaced_part() -> str:
    """The name of a function of torch, or of the forward of a layer, that is not torch's own; "" for none."""
    parts = (f"{where}.{name}" for where, _, name, value in _parts() if not _is_of_torch(value))
    return next(parts, "")


@contextmanager
def parts_kept() -> Iterator[None]:
    """At the end of the block, torch has the functions and layers that it had before."""
    before = [*_parts()]
    try:
        yield
    finally:
        for _, owner, name, value in before:
            if vars(owner).get(name) is not value:
                if value is None:  # the forward of a layer that inherits it
                    delattr(owner, name)
                else:
                    setattr(owner, name, value)


def _parts() -> Iterator[tuple[str, Any, str, Any]]:
    """The place of a function or a layer, its owner, its name, and the value: None for an inherited one."""
    for where, owner in OWNERS.items():
        for name, value in vars(owner).items():
            if name[0] != "_":
                yield where, owner, name, value
    for where, layer in LAYERS.items():
        for name in PASSES:
            yield where, layer, name, vars(layer).get(name)


def _is_of_torch(value: Any) -> bool:
    """Of functions, their code counts: a wrapper can copy the name and the module of what it replaces."""
    if isinstance(value, FunctionType):
        return value.__code__.co_filename.startswith(HOME)
    is_layer = isinstance(value, type) and issubclass(value, nn.Module)
    return not is_layer or value.__module__.startswith("torch.")
