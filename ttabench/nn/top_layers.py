"""The norm layers near the output of a network, which some methods leave alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from torch import nn

from ttabench.classifier.norm_layers import norm_modules
from ttabench.classifier.transformer_blocks import LISTS


def top_norms(model: nn.Module, *, by_name: bool = False) -> set[str]:
    """Names of the norm layers near the output: of the last stage or blocks, and of all that follows.

    SAR, SoTTA and DeYO leave these alone. Stages (a network with several lists of blocks, as a ResNet)
    or blocks (one list, as a vision transformer) are found by their structure, not by their names; the
    last quarter of them, at least one, is the top: layer4 of a ResNet18, 3 of 12 or 2 of 7 transformer
    blocks with the final norm. No block is cut: all of its layers are in the top or none is. Where there
    are no blocks, the parts of the network and its single norm layers are counted.

    What follows is known from the order in which the layers ran (``Classifier.norm_order``); where that is
    unknown, the order in which they are defined is taken for it. A layer outside of the blocks that never
    ran is in the top too. With `by_name`, :func:`top_norms_by_name` decides.
    """
    if by_name:
        return top_norms_by_name(model)
    norms = dict(norm_modules(model))
    order: Iterable[str] = getattr(model, "norm_order", ()) or norms
    place = {norms[name]: i for i, name in enumerate(order) if name in norms}
    if not place:
        return set(norms)
    units = _units(model, place) or _units(model, place, loose=True) or [model]
    top = units[-max(1, round(len(units) / 4)) :]
    inside = {module for unit in units for module in unit.modules()}
    within = {module for unit in top for module in unit.modules()}
    start = min(i for norm, i in place.items() if norm in within)
    return {
        name
        for name, norm in norms.items()
        if norm in within or (norm not in inside and place.get(norm, start) >= start)
    }


def _units(module: nn.Module, place: Mapping[nn.Module, int], loose: bool = False) -> list[nn.Module]:
    """The stages in `module`, or the blocks where it has one list of them, in order; none without blocks.

    A list of blocks is a container of modules with norm layers inside, or neighbours of one type in
    another module (see :func:`_rows`). One that holds most of the network's norm layers, and after which
    none of its kind comes, is the body and looked into: the blocks behind a stem that has blocks too, a
    network in a row with its head. `place` has the network's norm layers by the order in which they run.
    With `loose`, any parts with norm layers count, and single norm layers where the parts have not most.
    """
    parts = [part for part in module.children() if part not in place and _held(part, place)]
    if loose and 2 * sum(len(_held(part, place)) for part in parts) <= len(place):
        parts = [part for part in module.children() if _held(part, place)]
    parts.sort(key=lambda part: min(_held(part, place)))
    contains = isinstance(module, LISTS)
    if not loose and not contains:
        parts = [row for row in _rows(parts, place) if _units(row, place)]
    for i, part in enumerate(parts):
        most = 2 * len(_held(part, place)) > len(place)
        if (len(parts) == 1 and not contains) or (most and type(part) not in map(type, parts[i + 1 :])):
            return _units(part, place, loose) or parts
    return parts


def _rows(parts: list[nn.Module], place: Mapping[nn.Module, int]) -> Iterator[nn.Module]:
    """`parts`, neighbours of one type as one list; not containers, nor layers with one norm layer each."""
    for _, row in groupby(parts, key=lambda part: part if type(part) in LISTS else type(part)):
        blocks = list(row)
        if 1 < len(blocks) < sum(len(_held(block, place)) for block in blocks):
            yield nn.ModuleList(blocks)
        else:
            yield from blocks


def _held(part: nn.Module, place: Mapping[nn.Module, int]) -> list[int]:
    return [place[inner] for inner in part.modules() if inner in place]


def top_norms_by_name(model: nn.Module) -> set[str]:
    """The layers SAR's official code leaves alone, by name: for torchvision's ResNets and timm's ViT-B."""
    marks = ("layer4", "blocks.9", "blocks.10", "blocks.11", "norm.")
    return {
        name
        for name, _ in norm_modules(model)
        if (own := name.removeprefix("net.")) == "norm" or any(mark in own for mark in marks)
    }
