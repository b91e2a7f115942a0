"""What two sets of results do not share though names are the same: why they may not be comparable at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from ttabench.errors import first_of
from ttabench_reports.cells.grouped import grouped
from ttabench_reports.cells.stored_settings import parsed
from ttabench_reports.compare.matching import KEY, OF_PROTOCOL, in_other_protocols
from ttabench_reports.compare.verdicts import SAME


def unlike_in(both: pd.DataFrame) -> list[str]:
    """What differs though method, architecture and dataset have the same names."""
    pairs = both[both["_merge"] == "both"]
    warnings = []
    for column, by, what in (
        ("fingerprint", ["dataset"], "not the same data"),
        ("foreign", ["contamination"], "not the same data contaminate the stream"),
        ("checkpoint", ["arch", "dataset"], "not the same weights"),
        ("n_images", ["dataset"], "not the same number of images"),
    ):
        left, right = pairs[f"{column}_before"], pairs[f"{column}_after"]
        known = ~left.isin(["", 0]) & ~right.isin(["", 0])
        unlike = pairs.loc[known & (left != right), by].drop_duplicates()
        if len(unlike):
            names = ", ".join(" on ".join(map(str, row)) for row in unlike.itertuples(index=False))
            warnings.append(f"{what}: {names}.")
    unlike = pairs[(pairs["config_before"] != pairs["config_after"]) & (pairs["config_before"] != "")]
    changed = unlike[unlike["config_after"] != ""].drop_duplicates(
        ["method", "config_before", "config_after"]
    )
    warnings += [
        f"not the same settings: {row.method}: {settings}."
        for row in changed.itertuples()
        if (settings := _settings(row.config_before, row.config_after))
    ]
    some_may_be_the_same = {"left_only", "right_only"} <= {*both["_merge"]}
    sides = ("the baseline", "the candidate")
    renamed: list[str] = []
    if some_may_be_the_same:
        moved = in_other_protocols(both)
        renamed = [*_other_protocol(moved), *other_orders(moved), *other_settings(both, sides)]
    more = (*_other_ratio(both), *renamed, *_nothing_shared(both))
    return list(dict.fromkeys([*warnings, *more]))


def _other_ratio(both: pd.DataFrame) -> Iterator[str]:
    """Whether cells at a pace were run with other compute ratios."""
    paced = both[(both["_merge"] == "both") & (both["pace"] > 0)]
    changed = paced[(paced["pace_ratio_before"] - paced["pace_ratio_after"]).abs() > SAME]
    for row in changed.drop_duplicates(["method", "pace_ratio_before", "pace_ratio_after"]).itertuples():
        ratios = f"{row.pace_ratio_before:g} → {row.pace_ratio_after:g}"
        yield f"not the same compute ratio: {row.method}: {ratios}; --pace-ratio gives both sides one."


def _other_protocol(pairs: pd.DataFrame) -> Iterator[str]:
    """Whether missing cells are there under another protocol, see :func:`in_other_protocols`."""
    for name in OF_PROTOCOL:
        before, after = f"{name}_before", f"{name}_after"
        changed = pairs[pairs[before] != pairs[after]].drop_duplicates(["method", before, after])
        for row in changed.to_dict("records"):
            yield f"not the same protocol: {row['method']}: {name} {row[before]} → {row[after]}."


def other_orders(pairs: pd.DataFrame) -> Iterator[str]:
    """Whether cells of :func:`in_other_protocols` are of continual runs with other orders of corruptions."""
    runs = pairs[
        (pairs["reset_before"] == pairs["reset_after"]) & (pairs["history_before"] != pairs["history_after"])
    ]
    orders = grouped(
        (" → ".join(_in_order(cells, f"history_{side}") for side in ("before", "after")), str(method))
        for method, cells in runs.groupby("method", sort=False)
    )
    for change, methods in orders.items():
        yield f"not the same order of corruptions: {first_of(methods)}: {change}."


def _in_order(cells: pd.DataFrame, history: str) -> str:
    """The corruptions of continual cells, those that came first at the beginning."""
    seen = cells[history].map(lambda before: len(before.split())).sort_values(kind="stable")
    return ", ".join(cells.loc[seen.index, "corruption"].unique())


def other_settings(both: pd.DataFrame, sides: Sequence[str]) -> Iterator[str]:
    """Whether missing cells are there with other settings, which are in the name of a row: tent[lr=0.01].

    sides  what the two are called.
    """
    by = [name for name in KEY if name != "method"] + ["base"]
    named = both.assign(base=both["method"].str.partition("[")[0])
    missing, new = (named[named["_merge"] == one] for one in ("left_only", "right_only"))
    pairs = missing.merge(new, on=by, suffixes=("_before", "_after"))
    for _, pair in pairs.groupby("base"):
        before, after = (", ".join(pair[f"method_{side}"].unique()) for side in ("before", "after"))
        yield f"not the same settings: {before} in {sides[0]}; {after} in {sides[1]}."


def _nothing_shared(both: pd.DataFrame) -> Iterator[str]:
    """Which names keep two sides without a common cell apart: those of which they share none."""
    if (both["_merge"] == "both").any():
        return
    sides = [both[both["_merge"] == one] for one in ("left_only", "right_only")]
    for name in ("dataset", "arch", "corruption", "severity", "seed", "method"):
        old, new = (list(map(str, side[name].unique())) for side in sides)
        if old and new and not {*old} & {*new}:
            yield f"no common cell: {name} {first_of(old)} in the baseline; {first_of(new)} in the candidate."


def _settings(before: Any, after: Any) -> str:
    old, new = parsed(before), parsed(after)
    if old is None or new is None:
        return f"{before} → {after}"
    keys = [key for key in sorted(old | new) if old.get(key) != new.get(key)]
    return ", ".join(f"{key} {old.get(key, 'unset')} → {new.get(key, 'unset')}" for key in keys)
