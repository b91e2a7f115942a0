"""Protocols in words: what is common listed once, the exceptions after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ttabench.cell.protocol import Protocol
from ttabench_reports.cells.frames import PROTOCOL, USUAL, differences_in
from ttabench_reports.words import naming

THERE = "table of protocols"
Item = tuple[str, Mapping[str, Any]]
"""(who, the fields of :class:`ttabench.Protocol` but those that a heading says, and ``arch`` where networks
may differ)."""


def said(items: Sequence[Item], baseline: str = "", images: str = "all images") -> tuple[str, str]:
    """``online, batch size 200, …, all images. Batch size 64: TENT, SAR. Offline, 10 epochs: Quantile``.

    The second text is brief: it says that there are exceptions, and where they stand.

    Common is what most of the items have, field by field. Headings say the fields that an item lacks.
    `baseline` is that of a ccc stream; `images` is what :func:`ttabench.cell.subset_names.everything` says.
    """
    text, exceptions = _common_and_exceptions(items, baseline, images)
    others = [
        f"{other[0].upper()}{other[1:]}: {', '.join(dict.fromkeys(who))}" for other, who in exceptions.items()
    ]
    return ". ".join([text, *others]), f"{text}; exceptions: {THERE}" if exceptions else text


def of_row(fields: Mapping[str, Any], baseline: str = "") -> str:
    """The protocol of one method in full, without its compute ratio."""
    paced = {name: fields[name] for name in PROTOCOL} | {"pace_ratio": USUAL["pace_ratio"]}
    if paced["mode"] == "online":
        paced["epochs"] = 0
    text = Protocol(**paced).caption().removesuffix(f" at compute ratio {USUAL['pace_ratio']:g}")
    return text + kept_by(baseline)


def _common_and_exceptions(
    items: Sequence[Item], baseline: str, images: str
) -> tuple[str, dict[str, list[str]]]:
    """What most have in common, and who differs in what."""
    common = {name: _most_common(name, items) for name in PROTOCOL}
    if common["mode"] == "online":
        common["epochs"] = 0
    paced = [(who, fields) for who, fields in items if fields.get("pace", True)]
    one_ratio = common["pace"] and len({fields["pace_ratio"] for _, fields in paced}) == 1
    if not one_ratio:
        common["pace_ratio"] = USUAL["pace_ratio"]
    text = Protocol(**common).caption(images)
    if common["pace"] and not one_ratio:  # none of the compute ratios is that of all
        text = text.removesuffix(f" at compute ratio {common['pace_ratio']:g}")
    text += kept_by(baseline)
    if any(name not in fields for _, fields in items for name in PROTOCOL):
        text += ", unless a heading says otherwise"
    exceptions: dict[str, list[str]] = {}
    own_size = _one_batch_size(items)
    for who, fields in items:
        if who in own_size and fields["batch_size"] != common["batch_size"]:
            exceptions.setdefault(f"batch size {fields['batch_size']}", []).append(who)
    for who, fields in items:
        left_out = {"pace_ratio", *(["batch_size"] if who in own_size else [])}
        differing = {name: fields[name] for name in PROTOCOL if name in fields and name not in left_out}
        if other := differences_in(common, differing):
            exceptions.setdefault(other, []).append(who)
    if paced and not one_ratio:
        exceptions["compute ratios"] = _ratios(paced)
    return text, exceptions


def _most_common(name: str, items: Sequence[Item]) -> Any:
    values = Counter(fields[name] for _, fields in items if name in fields)
    return values.most_common(1)[0][0] if values else USUAL[name]


def _one_batch_size(items: Sequence[Item]) -> set[str]:
    """Who has the same batch size under several protocols: it is said once."""
    sizes: dict[str, set[Any]] = {}
    others: dict[str, set[Any]] = {}
    for who, fields in items:
        sizes.setdefault(who, set()).add(fields["batch_size"])
        rest = {**fields, "batch_size": None, "pace_ratio": None, "arch": None}
        others.setdefault(who, set()).add(tuple(sorted(rest.items())))
    return {who for who in sizes if len(sizes[who]) == 1 < len(others[who])}


def _ratios(items: Sequence[Item]) -> list[str]:
    """``TENT 2.4``, and ``TENT on ResNet18 2.4`` where networks have other ratios."""
    several = _ratio_of_network(items)
    return [
        f"{who}{' on ' + naming.arch(fields['arch']) if who in several else ''} {fields['pace_ratio']:g}"
        for who, fields in items
    ]


def _ratio_of_network(items: Sequence[Item]) -> set[str]:
    """Who has other compute ratios on other networks."""
    ratios: dict[str, dict[Any, set[Any]]] = {}
    for who, fields in items:
        ratios.setdefault(who, {}).setdefault(fields.get("arch"), set()).add(fields["pace_ratio"])
    return {who for who, by_arch in ratios.items() if len({*map(frozenset, by_arch.values())}) > 1}


def kept_by(baseline: str) -> str:
    """`` at the accuracy of ResNet18``, for the baseline of a ccc stream as cells have it."""
    name = baseline.rpartition("@")[0]
    return f" at the accuracy of {naming.arch(name)}" if name else ""
