"""What is said of an attestation, as sentences and as JSON data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from ttabench.errors import counted
from ttabench.store.attestations import FILE
from ttabench.sweep.attestation.groups import Group, Key, Outcome, names_in


def listed(groups: Sequence[Group]) -> list[str]:
    """What would be tried, a line for each group."""
    names = names_in(groups)
    return [
        f"{counted(len(group.records), 'cell')} like {names[group.records[0].cell_id]}: "
        f"{'; '.join(sorted(group.changed)[:3]) or 'other references'}"
        for group in groups
    ]


def summary(outcome: Outcome, checked: bool = False) -> list[str]:
    """What was shown, in sentences; `checked`: of cells that are attested already."""

    def cells(keys: Sequence[Key]) -> str:
        number = sum(len(outcome.groups[key].records) for key in keys)
        return counted(number, "attested cell" if checked else "stale cell")

    lines = []
    if outcome.same:
        keys = [group.key for group in outcome.same]
        shown = "shown again" if checked else "attested"
        lines.append(
            f"{cells(keys)} {shown}, with {counted(len(outcome.measured), 'cell')} of them run again."
        )
    if outcome.accepted:
        lines.append(f"Of the old code, this did not run and was accepted: {'; '.join(outcome.accepted)}.")
    for title, found in (("refused", outcome.refused), ("not tried", outcome.left)):
        by_reason: dict[str, list[Key]] = defaultdict(list)
        for key, why in found.items():
            by_reason[why].append(key)
        lines += [f"{cells(keys)} {title}: {why}." for why, keys in sorted(by_reason.items())]
    if checked and outcome.refused:
        lines.append(f"For the refused ones, delete their lines of {FILE}: the cells are stale then.")
    return lines


def to_json(outcome: Outcome) -> dict[str, Any]:
    """The outcome as JSON data."""
    same = {group.key: "" for group in outcome.same}
    return {
        "attested": _reasons(outcome, same), **_not_shown(outcome),
        "measured": outcome.measured, "accepted": list(outcome.accepted),
    }  # fmt: skip


def listed_json(groups: Sequence[Group], outcome: Outcome) -> dict[str, Any]:
    """What would be tried, and what would not, as JSON data."""
    names = names_in(groups)
    to_try = [
        {
            "stratum": group.key[2], "cells": len(group.records), "like": names[group.records[0].cell_id],
            "changed": sorted(group.changed),
        }
        for group in groups
    ]  # fmt: skip
    return {"to_try": to_try, **_not_shown(outcome)}


def _not_shown(outcome: Outcome) -> dict[str, Any]:
    return {"refused": _reasons(outcome, outcome.refused), "not_tried": _reasons(outcome, outcome.left)}


def _reasons(outcome: Outcome, keys: Mapping[Key, str]) -> list[dict[str, Any]]:
    return [
        {"stratum": key[2], "cells": len(outcome.groups[key].records), "why": why}
        for key, why in keys.items()
    ]
