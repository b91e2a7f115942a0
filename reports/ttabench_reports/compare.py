"""What moved between two sets of results: the check that a change broke no number."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ttabench.errors import UserError
from ttabench_reports import naming
from ttabench_reports.frames import PROTOCOL, checked

if TYPE_CHECKING:
    from rich.console import RenderableType

KEY = ("method", "arch", "dataset", "corruption", "severity", "seed", *PROTOCOL, "history")
MEAN_OVER = ("corruption", "seed", "history")
SAME = 1e-4  # percent: cells.csv has 4 decimals
SLACK = 1e-9  # a fall of exactly the bound is within it, whatever the last bit says


@dataclass(frozen=True)
class Comparison:
    """Two sets of results, matched cell by cell.

    cells     one row per cell of either: :data:`KEY`, accuracy_before, accuracy_after, change (points),
              status_before, status_after, reason_after, verdict: same | moved (within the bound) |
              fell (beyond it) | lost (had a number, has none) | gained | missing | new.
    means     one row per method × arch × dataset × severity × protocol: before, after, change over the
              cells with a number in both, every cell weighing the same; `cells` of `of`; verdict.
    warnings  why the two may not be comparable at all; sentences.
    max_drop  points that a cell or a mean may fall.
    """

    cells: pd.DataFrame
    means: pd.DataFrame
    warnings: tuple[str, ...]
    max_drop: float

    @property
    def failed(self) -> bool:
        """Whether a cell or a mean fell by more than the bound, lost its number, or is missing."""
        bad = {"fell", "lost", "missing"}
        return bool(self.cells["verdict"].isin(bad).any() or (self.means["verdict"] == "fell").any())

    def count(self, verdict: str) -> int:
        return int((self.cells["verdict"] == verdict).sum())


def compare(
    baseline: pd.DataFrame | Path | str, candidate: pd.DataFrame | Path | str, max_drop: float = 1.0
) -> Comparison:
    """Hold `candidate` against `baseline`: each a table of cells, a results folder or a ``cells.csv``.

    Raises UserError for a bound below 0, and for anything that is not a table with cells.
    """
    if not max_drop >= 0 or math.isinf(max_drop):
        raise UserError(f"--max-drop is {max_drop}; expected a number of points, 0 or more.")
    sides = [
        (load(side), _name(side, word)) for side, word in ((baseline, "baseline"), (candidate, "candidate"))
    ]
    (before, before_twins), (after, after_twins) = (_matchable(frame, name) for frame, name in sides)
    both = before.merge(after, how="outer", on=list(KEY), suffixes=("_before", "_after"), indicator=True)
    both["change"] = both["accuracy_after"] - both["accuracy_before"]
    both["verdict"] = _verdicts(both, max_drop)
    both["_place"] = both["corruption"].map(naming.corruption_key)
    order = ["dataset", "severity", "arch", "method", "_place", *KEY]
    both = both.sort_values(list(dict.fromkeys(order)), ignore_index=True)
    means = _means(both, max_drop)
    warnings = [*_twins("baseline", before_twins), *_twins("candidate", after_twins), *_unlike(both)]
    shown = [*KEY, *(f"{n}_{s}" for n in ("accuracy", "status", "reason") for s in ("before", "after"))]
    return Comparison(both[[*shown, "change", "verdict"]], means, tuple(warnings), max_drop)


def load(results: pd.DataFrame | Path | str) -> pd.DataFrame:
    """The cells of a results folder or a ``cells.csv``. Raises UserError."""
    if isinstance(results, pd.DataFrame):
        return checked(results)
    path = Path(results)
    if path.is_dir():
        from ttabench.store import load_frame

        return checked(load_frame(path), str(path))
    if not path.exists():
        raise UserError(f"{path} does not exist; expected a results folder or a cells.csv.")
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (ValueError, OSError, pd.errors.ParserError):  # not text, no columns, ragged lines, unreadable
        raise UserError(
            f"{path} cannot be read as CSV; expected a results folder or the cells.csv of 'ttabench report'."
        ) from None
    return checked(frame, str(path))


def _name(side: object, word: str) -> str:
    return f"the {word}" if isinstance(side, pd.DataFrame) else str(side)


def _matchable(frame: pd.DataFrame, name: str) -> tuple[pd.DataFrame, int]:
    """One row per key, the latest; and how many others there were."""
    last = frame.sort_values("written", kind="stable").drop_duplicates(list(KEY), keep="last")
    kept = ["accuracy", "status", "reason", "fingerprint", "checkpoint", "config", "n_images"]
    return last[[*KEY, *kept]], len(frame) - len(last)


def _verdicts(both: pd.DataFrame, max_drop: float) -> pd.Series[str]:
    change = both["change"]
    verdict = pd.Series("same", both.index, dtype=object)
    verdict[change.abs() > SAME] = "moved"
    verdict[change < -(max_drop + SLACK)] = "fell"
    verdict[both["accuracy_before"].isna() & both["accuracy_after"].notna()] = "gained"
    verdict[both["accuracy_before"].notna() & both["accuracy_after"].isna()] = "lost"
    verdict[both["_merge"] == "left_only"] = "missing"
    verdict[both["_merge"] == "right_only"] = "new"
    return verdict


def _means(both: pd.DataFrame, max_drop: float) -> pd.DataFrame:
    by = [name for name in KEY if name not in MEAN_OVER]
    known = both[both["_merge"] != "right_only"]
    paired = known[known["change"].notna()]
    means = known.groupby(by, sort=False).size().to_frame("of")
    means["cells"] = paired.groupby(by, sort=False).size().reindex(means.index, fill_value=0)
    sides = paired.groupby(by, sort=False)[["accuracy_before", "accuracy_after"]].mean()
    means = means.join(sides).rename(columns={"accuracy_before": "before", "accuracy_after": "after"})
    means["change"] = means["after"] - means["before"]
    means["verdict"] = "same"
    means.loc[means["change"].abs() > SAME, "verdict"] = "moved"
    means.loc[means["change"] < -(max_drop + SLACK), "verdict"] = "fell"
    return means.reset_index()


def _twins(side: str, count: int) -> list[str]:
    if not count:
        return []
    return [
        f"the {side} has {count} cells more than once (other settings, weights or data); the latest counts."
    ]


def _unlike(both: pd.DataFrame) -> list[str]:
    """What the two sides do not share, though method, architecture and dataset have the same names."""
    pairs = both[both["_merge"] == "both"]
    found = []
    for column, by, what in (
        ("fingerprint", ["dataset"], "not the same data"),
        ("checkpoint", ["arch", "dataset"], "not the same weights"),
        ("n_images", ["dataset"], "not the same number of images"),
    ):
        left, right = pairs[f"{column}_before"], pairs[f"{column}_after"]
        known = ~left.isin(["", 0]) & ~right.isin(["", 0])
        unlike = pairs.loc[known & (left != right), by].drop_duplicates()
        if len(unlike):
            names = ", ".join(" on ".join(map(str, row)) for row in unlike.itertuples(index=False))
            found.append(f"{what}: {names}.")
    unlike = pairs[(pairs["config_before"] != pairs["config_after"]) & (pairs["config_before"] != "")]
    changed = unlike[unlike["config_after"] != ""].drop_duplicates(
        ["method", "config_before", "config_after"]
    )
    found += [
        f"not the same settings: {row.method}: {_settings(row.config_before, row.config_after)}."
        for row in changed.itertuples()
    ]
    return list(dict.fromkeys([*found, *_other_protocol(both)]))


def _other_protocol(both: pd.DataFrame) -> Iterator[str]:
    """Whether missing cells are there under another protocol."""
    by = [name for name in KEY if name not in (*PROTOCOL, "history")]
    missing, new = (both[both["_merge"] == side] for side in ("left_only", "right_only"))
    pairs = missing.merge(new, on=by, suffixes=("_before", "_after"))
    for name in PROTOCOL:
        before, after = f"{name}_before", f"{name}_after"
        changed = pairs[pairs[before] != pairs[after]].drop_duplicates(["method", before, after])
        for row in changed.to_dict("records"):
            yield f"not the same protocol: {row['method']}: {name} {row[before]} → {row[after]}."


def _settings(before: Any, after: Any) -> str:
    try:
        old, new = dict(json.loads(before)), dict(json.loads(after))
    except (ValueError, TypeError):
        return f"{before} → {after}"
    keys = [key for key in sorted(old | new) if old.get(key) != new.get(key)]
    return ", ".join(f"{key} {old.get(key, 'unset')} → {new.get(key, 'unset')}" for key in keys)


# ---- for terminals


def render(comparison: Comparison, limit: int = 20) -> RenderableType:
    """Verdict, warnings, means that moved, cells that fell or are gone (`limit` of each), counts."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(f"warning: {text}", "yellow") for text in comparison.warnings]
    means = comparison.means[comparison.means["verdict"].isin(["moved", "fell"])].sort_values("change")
    if len(means):
        parts.append(_grid("Means that moved", means, ("before", "after"), limit))
    cells = comparison.cells
    for verdict, heading in (
        ("fell", f"Cells that fell by more than {comparison.max_drop:g}"),
        ("moved", "Cells that moved within the bound"),
    ):
        if len(some := cells[cells["verdict"] == verdict].sort_values("change")):
            parts.append(_grid(heading, some, ("accuracy_before", "accuracy_after"), limit))
    for verdict, heading in (("lost", "Cells that lost their number"), ("missing", "Missing cells")):
        some = cells[cells["verdict"] == verdict]
        if len(some):
            parts.append(Text(f"{heading}: {len(some)}", "bold"))
            parts += [Text(f"  {_describe(row)}") for row in some.head(limit).itertuples()]
            if len(some) > limit:
                parts.append(Text(f"  … and {len(some) - limit} more"))
    parts.append(_verdict(comparison))
    return Group(*parts)


def _verdict(comparison: Comparison) -> RenderableType:
    from rich.text import Text

    words = {
        "same": "the same", "moved": "moved", "fell": "fell", "lost": "lost their number",
        "gained": "gained one", "missing": "missing", "new": "new",
    }  # fmt: skip
    counts = ", ".join(f"{n} {word}" for v, word in words.items() if (n := comparison.count(v)))
    fallen = int((comparison.means["verdict"] == "fell").sum())
    means = f"; {fallen} of {len(comparison.means)} means fell" if fallen else ""
    said, style = ("FAILED", "bold red") if comparison.failed else ("ok", "bold green")
    return Text.assemble((said, style), f": {counts}{means} (bound: {comparison.max_drop:g} points).")


def _grid(heading: str, rows: pd.DataFrame, columns: tuple[str, str], limit: int) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for name in ("method", "arch", "dataset", "corruption" if "corruption" in rows else "cells"):
        grid.add_column(name, overflow="fold")
    for name in ("before", "after", "change"):
        grid.add_column(name, justify="right", no_wrap=True)
    for row in rows.head(limit).to_dict("records"):
        what = (
            f"{row['corruption']}, seed {row['seed']}"
            if "corruption" in row
            else f"{row['cells']} of {row['of']}"
        )
        names = (row["method"], row["arch"], f"{row['dataset']}, severity {row['severity']}", what)
        numbers = (f"{row[columns[0]]:.2f}", f"{row[columns[1]]:.2f}", naming.points(row["change"], 2))
        style = "bold" if row["verdict"] == "fell" else ""
        grid.add_row(*map(Text, names), *numbers, style=style)
    if len(rows) > limit:
        grid.caption = f"… and {len(rows) - limit} more"
    return grid


def _describe(row: Any) -> str:
    name = f"{row.method} · {row.arch} · {row.dataset} · {row.corruption}-{row.severity} · seed {row.seed}"
    if row.verdict == "missing":
        return name
    return f"{name}: {row.accuracy_before:.2f} → {row.status_after} ({row.reason_after})"
