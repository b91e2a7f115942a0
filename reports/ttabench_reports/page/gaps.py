"""What the numbers lack: cells that are missing, failed, n/a or stale, and alarms."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ttabench.store.columns import MISSING
from ttabench_reports.cells.grouped import grouped
from ttabench_reports.page import protocol_cards
from ttabench_reports.words import naming
from ttabench_reports.words.notes import kind


@dataclass(frozen=True)
class Gap:
    """Cells of one architecture with the same trouble."""

    kind: str
    methods: tuple[str, ...]
    arch: str
    tables: tuple[str, ...]
    corruptions: tuple[str, ...]
    cells: int
    reason: str


def gaps(cells: pd.DataFrame, attrs: Mapping[Hashable, Any]) -> list[Gap]:
    """The troubles of `cells` (see :func:`frames.checked`), and what their folders planned and lack."""
    listed = _planned(attrs.get(MISSING, ()))
    ok = cells["accuracy"].notna()
    listed += _group("failed", cells[~ok & (cells["status"] != "n/a")], "reason")
    listed += _group("stale", cells[ok & cells["stale"]], "stale_because")
    listed += _group("n/a", cells[~ok & (cells["status"] == "n/a")], "reason")
    listed += _group("alarm", cells[ok & (cells["alarm"] != "")], "alarm")
    listed += _group("warning", cells[ok & (cells["warning"] != "")], "warning")
    return listed


def _planned(absent: Sequence[Any]) -> list[Gap]:
    """One gap for the methods that lack the same cells."""
    groups = grouped(((one.arch, one.dataset, one.severity, one.corruptions), one) for one in absent)
    return [
        Gap(
            "missing", tuple(naming.method(one.method) for one in members), naming.arch(arch),
            (naming.where(naming.dataset(dataset), severity),), _titles(corruptions),
            sum(one.cells for one in members), "planned, not measured yet; run the same sweep again",
        )
        for (arch, dataset, severity, corruptions), members in groups.items()
    ]  # fmt: skip


def _group(name: str, cells: pd.DataFrame, column: str) -> list[Gap]:
    """One gap for each architecture and kind of reason."""
    if cells.empty:
        return []
    listed = []
    for (arch, _), group in cells.assign(_kind=cells[column].map(kind)).groupby(
        ["arch", "_kind"], sort=False
    ):
        places = group[["dataset", "severity"]].drop_duplicates().itertuples(index=False)
        methods = sorted({naming.method(label) for label in group["method"]}, key=str.casefold)
        listed.append(Gap(
            name, tuple(methods), naming.arch(str(arch)),
            tuple(naming.where(naming.dataset(dataset), severity) for dataset, severity in places),
            _titles(group["corruption"].unique()), len(group),
            "; ".join(protocol_cards.ranges(group[column])) or "no reason stored",
        ))  # fmt: skip
    return listed


def _titles(corruptions: Iterable[str]) -> tuple[str, ...]:
    ordered = sorted(corruptions, key=naming.corruption_key)
    return tuple(naming.title(name) for name in ordered)
