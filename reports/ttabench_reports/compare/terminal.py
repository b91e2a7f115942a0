"""A comparison for people: what moved, what may have moved it, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import pandas as pd

from ttabench.cell import shift_name
from ttabench.errors import counted
from ttabench_reports.compare.comparison import BAD, Comparison
from ttabench_reports.compare.verdicts import NO_MEAN, Bounds
from ttabench_reports.words import naming

if TYPE_CHECKING:
    from rich.console import RenderableType

P_OF_FALL = "p (fall)"
"""The heading of p-values: that of a rise is about 1, whatever its size."""
WORDS = {  # of each verdict on a cell
    "same": "the same", "moved": "rose or fell within the bound", "chance": "fell no more than by chance",
    "fell": "fell", "lost": "lost their number", "gained": "gained a number",
    "neither": "without a number on both sides", "missing": "missing", "new": "new",
}  # fmt: skip


def render(comparison: Comparison, limit: int = 20) -> RenderableType:
    """Warnings, means and cells that moved (`limit` of each), what may have moved them, the verdict."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(f"warning: {text}", "yellow") for text in comparison.warnings]
    if comparison.stale:
        parts.append(Text("Stale, made with other code than is installed", "bold"))
        parts += first_lines(comparison.stale, len(comparison.stale), limit)
    bounds, cells = comparison.bounds, comparison.cells
    means = comparison.means[~comparison.means["verdict"].isin(["same", NO_MEAN])].sort_values("change")
    if len(means):
        parts.append(_grid("Means that moved", means, ("before", "after"), limit))
    beyond = f"Cells that fell by more than {counted(bounds.max_drop, 'point')}"
    for verdict, heading in (
        ("fell", beyond),
        ("chance", f"{beyond}, but no more than by chance"),
        ("moved", "Cells that rose or fell within the bound"),
    ):
        if len(some := cells[cells["verdict"] == verdict].sort_values("change")):
            parts.append(_grid(heading, some, ("accuracy_before", "accuracy_after"), limit))
    for verdict, heading in (("lost", "Cells that lost their number"), ("missing", "Missing cells")):
        some = cells[cells["verdict"] == verdict]
        if len(some):
            parts.append(Text(f"{heading}: {len(some)}", "bold"))
            parts += first_lines(map(describe, some.itertuples()), len(some), limit)
    parts += causes(comparison, limit)
    verdict, style = ("FAILED", "bold red") if comparison.failed else ("ok", "bold green")
    parts.append(Text.assemble((verdict, style), f": {counts(comparison)} ({_spelled(bounds)})."))
    parts += [Text(note) for note in (smallest_fall(comparison), comparison.attested) if note]
    missing, failing = cells["verdict"] == "missing", cells["verdict"].isin(BAD)
    whole = not (cells["verdict"] == "new").any()  # else missing cells may be there with other settings
    if comparison.failed and whole and not missing.all() and (missing | ~failing).all():
        parts.append(
            Text("Only missing cells failed: --subset lets the candidate be a part of the baseline.")
        )
    if len(cells) and cells["verdict"].isin(["missing", "new"]).all():
        parts.append(
            Text("No cell is in both: run the sweep of the candidate with the options of the baseline's.")
        )
    return Group(*parts)


def nothing(recorded: Sequence[str]) -> str:
    """That the cards do not differ, and in what: `recorded` is what both sides hold."""
    what = f" ({', '.join(recorded)})" if recorded else ""
    return f"Nothing that is recorded differs between the two{what}: the cause is not recorded, or is chance."


def causes(comparison: Comparison, limit: int) -> list[RenderableType]:
    """What may have moved the numbers; nothing where none moved."""
    from rich.text import Text

    if not comparison.changed:
        return []
    lines = first_lines(comparison.causes, len(comparison.causes), limit)
    return [
        Text("What may have changed them", "bold"), *(lines or [Text(f"  {nothing(comparison.recorded)}")])
    ]  # fmt: skip


def smallest_fall(comparison: Comparison) -> str:
    """How small a fall can be and still be told from chance, as a sentence; "" without a test."""
    points = comparison.smallest_fall
    if points != points:
        return ""
    beyond = max(points, comparison.bounds.max_drop)
    return (
        f"With these images, the test cannot find a fall of less than {beyond:.2f} points in a typical cell."
    )


def counts(comparison: Comparison) -> str:
    """``88 the same, 2 fell; 1 of 6 means fell``"""
    cells = ", ".join(f"{n} {word}" for v, word in WORDS.items() if (n := comparison.count(v)))
    fallen = int((comparison.means["verdict"] == "fell").sum())
    return cells + (f"; {fallen} of {len(comparison.means)} means fell" if fallen else "")


def named(method: str, variant: str) -> str:
    """``tent (offline, 3 epochs)``: a method, and what its mean differs in from its others."""
    return f"{method} ({variant})" if variant else method


def describe(row: Any) -> str:
    """One cell in words, with its numbers where it has both, or why it has none."""
    shift = shift_name(row.corruption, row.severity)
    name = f"{named(row.method, row.variant)} · {row.arch} · {row.dataset} · {shift} · seed {row.seed}"
    if row.verdict == "missing":
        return name
    if row.verdict == "lost":
        return f"{name}: {row.accuracy_before:.2f} → {row.status_after} ({row.reason_after})"
    numbers = f"{row.accuracy_before:.2f} → {row.accuracy_after:.2f}"
    return f"{name}: {numbers} ({naming.points(row.change, 2)})"


def describe_mean(row: Any) -> str:
    """One mean in words."""
    name = f"{named(row.method, row.variant)} · {row.arch} · {naming.where(row.dataset, row.severity)}"
    over = f"mean of {row.cells} of {row.of} cells"
    return f"{name}, {over}: {row.before:.2f} → {row.after:.2f} ({naming.points(row.change, 2)})"


def _spelled(bounds: Bounds) -> str:
    return (
        f"bounds: {counted(bounds.max_drop, 'point')} for a cell, {bounds.max_mean_drop:g} for a mean; "
        f"α = {bounds.alpha:g}"
    )


def first_lines(texts: Iterable[object], count: int, limit: int) -> list[RenderableType]:
    """The first `limit` of `count` texts, a line each, and how many more there are."""
    from rich.text import Text

    lines: list[RenderableType] = [Text(f"  {text}") for text in islice(texts, limit)]
    if count > limit:
        lines.append(Text(f"  … and {count - limit} more"))
    return lines


def _grid(heading: str, rows: pd.DataFrame, columns: tuple[str, str], limit: int) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for name in ("method", "arch", "dataset", "corruption" if "corruption" in rows else "cells"):
        grid.add_column(name, overflow="fold")
    for name in ("before", "after", "change", P_OF_FALL):
        grid.add_column(name, justify="right", no_wrap=True)
    for row in rows.head(limit).to_dict("records"):
        what = (
            f"{row['corruption']}, seed {row['seed']}"
            if "corruption" in row
            else f"{row['cells']} of {row['of']}"
        )
        method = named(row["method"], row["variant"])
        names = (method, row["arch"], naming.where(row["dataset"], row["severity"]), what)
        numbers = (f"{row[columns[0]]:.2f}", f"{row[columns[1]]:.2f}", naming.points(row["change"], 2))
        style = "bold" if row["verdict"] == "fell" else ""
        grid.add_row(*map(Text, names), *numbers, p_text(row["p_value"]), style=style)
    if len(rows) > limit:
        grid.caption = f"… and {len(rows) - limit} more"
    return grid


def p_text(p: float) -> str:
    """``0.03``, ``<0.001``; ``–`` without a test."""
    return "–" if p != p else "<0.001" if p < 0.001 else f"{p:.2g}"
