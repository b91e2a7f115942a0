"""The norm layers near the output of a network, which some methods do not adapt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from torch import nn

from ttabench.classifier.norm_layers import norm_modules
from ttabench.classifier.transformer_blocks import LISTS


def top_norms(model: nn.Module, *, by_name: bool = False) -> set[str]:
    """Names of the norm layers near the output: those of the last stages or blocks, and all later ones.

    SAR, SoTTA and DeYO do not adapt these layers. A network has stages (several lists of blocks, as in a
    ResNet) or blocks (one list, as in a vision transformer). They are found by structure, not by name. The
    top is the last quarter of them, and at least one: layer4 of a ResNet18; 3 of 12 or 2 of 7 transformer
    blocks, and the final norm. A block is never split: all of its layers are in the top, or none. In a
    network without blocks, its parts and its single norm layers are counted instead.

    "Later" refers to the order in which the layers ran (``Classifier.norm_order``), or the order of
    definition if that is unknown. A layer outside of the blocks that never ran is also in the top. With
    `by_name`, :func:`top_norms_by_name` decides.
    """
    if by_name:
        return top_norms_by_name(model)
    norms = dict(norm_modules(model))
    order: Iterable[str] = getattr(model, "norm_order", ()) or norms
    position = {norms[name]: i for i, name in enumerate(order) if name in norms}
    if not position:
        return set(norms)
    units = _units(model, position) or _units(model, position, any_part=True) or [model]
    top = units[-max(1, round(len(units) / 4)) :]
    in_units = {module for unit in units for module in unit.modules()}
    in_top = {module for unit in top for module in unit.modules()}
    start = min(i for norm, i in position.items() if norm in in_top)
    return {
        name
        for name, norm in norms.items()
        if norm in in_top or (norm not in in_units and position.get(norm, start) >= start)
    }


def _units(module: nn.Module, position: Mapping[nn.Module, int], any_part: bool = False) -> list[nn.Module]:
    """The stages in `module` in order, or its blocks if it has one list of blocks; [] if it has none.

    A list of blocks is a container of modules with norm layers, or neighbours of one type in another module
    (see :func:`_group_neighbours`). One part may be the body of the network: it holds most of the norm
    layers, and no later part has the same type. Then the units are searched inside the body. So the result
    does not depend on a stem with blocks of its own, or on a container around body and head.

    position   norm layer → its place in the order in which the norm layers run.
    any_part   count all parts with norm layers; if these hold only a minority, also single norm layers.
    """
    parts = [part for part in module.children() if part not in position and _positions(part, position)]
    if any_part and 2 * sum(len(_positions(part, position)) for part in parts) <= len(position):
        parts = [part for part in module.children() if _positions(part, position)]
    parts.sort(key=lambda part: min(_positions(part, position)))
    is_list = isinstance(module, LISTS)
    if not any_part and not is_list:
        parts = [part for part in _group_neighbours(parts, position) if _units(part, position)]
    for i, part in enumerate(parts):
        holds_most = 2 * len(_positions(part, position)) > len(position)
        is_body = holds_most and type(part) not in map(type, parts[i + 1 :])
        if is_body or (len(parts) == 1 and not is_list):
            return _units(part, position, any_part) or parts
    return parts


def _group_neighbours(parts: list[nn.Module], position: Mapping[nn.Module, int]) -> Iterator[nn.Module]:
    """`parts`, with neighbours of one type put into one list.

    Containers stay single, and so do layers that hold one norm layer each.
    """
    for _, group in groupby(parts, key=lambda part: part if type(part) in LISTS else type(part)):
        blocks = list(group)
        if 1 < len(blocks) < sum(len(_positions(block, position)) for block in blocks):
            yield nn.ModuleList(blocks)
        else:
            yield from blocks


def _positions(part: nn.Module, position: Mapping[nn.Module, int]) -> list[int]:
    """The positions of the norm layers inside `part`."""
    return [position[module] for module in part.modules() if module in position]


def top_norms_by_name(model: nn.Module) -> set[str]:
    """Layers that SAR's official code leaves out, named as in torchvision's ResNets and timm's ViT-B."""
    parts_of_names = ("layer4", "blocks.9", "blocks.10", "blocks.11", "norm.")
    return {
        name
        for name, _ in norm_modules(model)
        if (inner := name.removeprefix("net.")) == "norm" or any(part in inner for part in parts_of_names)
    }
