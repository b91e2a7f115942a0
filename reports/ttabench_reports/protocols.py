"""Protocols in words: what is common listed once, the exceptions after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ttabench.protocol import Protocol
from ttabench_reports import naming
from ttabench_reports.frames import PROTOCOL, differences_in

Item = tuple[str, Mapping[str, Any]]
"""(who, the fields of :class:`ttabench.protocol.Protocol`, and ``arch`` where networks may differ)."""


def words(items: Sequence[Item], baseline: str = "") -> str:
    """``online, batch size 200, …, all images. Batch size 64: TENT, SAR. Offline, 10 epochs: Quantile``.

    Common is what most of the items have, field by field. `baseline` is that of a ccc stream.
    """
    common = {name: Counter(fields[name] for _, fields in items).most_common(1)[0][0] for name in PROTOCOL}
    if common["mode"] == "online":
        common["epochs"] = 0
    own_ratios = common["pace"] and len({fields["pace_ratio"] for _, fields in items}) > 1
    if own_ratios:  # each method has its own compute ratio: none of them is that of all
        common["pace_ratio"] = Protocol().pace_ratio
    several = _ratio_of_network(items) if common["pace"] else set()
    exceptions: dict[str, list[str]] = {}
    for who, fields in items:
        if who in several:
            who += f" on {naming.arch(fields['arch'])}"
        if other := differences_in(common, {name: fields[name] for name in PROTOCOL}):
            exceptions.setdefault(other, []).append(who)
    text = Protocol(**common).caption()
    if own_ratios:
        text = text.removesuffix(f" at compute ratio {common['pace_ratio']:g}")
    text += kept_by(baseline)
    return ". ".join(
        [text, *(f"{other[0].upper()}{other[1:]}: {', '.join(dict.fromkeys(who))}"
                 for other, who in exceptions.items())]
    )  # fmt: skip


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
