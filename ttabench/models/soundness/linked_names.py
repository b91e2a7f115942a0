"""A layer that a network has under several names stays one layer: what takes its place gets all of them."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from ttabench.classifier import Classifier

LINKS = "_ttabench_linked_names"


class Linked(Classifier):
    """A classifier in whose copies a layer has all its names: methods work on copies."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Linked:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        link_names(made.net)
        return made


def with_linked_names(classifier: Classifier) -> Classifier:
    """The classifier; if its network has a layer under several names, one in whose copies they are linked."""
    children = [
        child
        for parent in classifier.net.modules()
        for child in parent._modules.values()
        if child is not None
    ]
    if len(set(map(id, children))) < len(children):
        classifier.__class__ = Linked
    return classifier


def link_names(net: nn.Module) -> nn.Module:
    """Make that setting a layer under one of its names sets it under all of them. Changes `net`."""
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for parent in net.modules():
        for name, child in parent._modules.items():
            if child is not None:
                places.setdefault(id(child), []).append((parent, name))
    for several in places.values():
        for parent, name in several if len(several) > 1 else ():
            others = [place for place in several if place[0] is not parent or place[1] != name]
            parent.__dict__.setdefault(LINKS, {})[name] = others
            if "__setattr__" not in vars(type(parent)) or vars(type(parent))["__setattr__"] is not _set_all:
                parent.__class__ = _linked(type(parent))
    return net


_MADE: dict[type[nn.Module], type[nn.Module]] = {}


def _linked(kind: type[nn.Module]) -> type[nn.Module]:
    """A class like `kind`, with its name, that sets all names of a layer."""
    if kind not in _MADE:
        _MADE[kind] = _made(kind)
    return _MADE[kind]


def _made(kind: type[nn.Module]) -> type[nn.Module]:
    return type(kind.__name__, (kind,), {
        "__setattr__": _set_all, "__module__": kind.__module__, "__qualname__": kind.__qualname__,
    })  # fmt: skip


def _set_all(self: nn.Module, name: str, value: Any) -> None:
    super(type(self), self).__setattr__(name, value)
    if isinstance(value, nn.Module):
        for parent, other in self.__dict__.get(LINKS, {}).get(name, ()):
            parent._modules[other] = value
