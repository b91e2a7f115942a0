"""The mean accuracies of two sets of results side by side: how they differ, and no verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttabench_reports.compare.comparison import Comparison
from ttabench_reports.compare.terminal import P_OF_FALL, causes, named, p_text
from ttabench_reports.words import naming

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

STALE = 3  # sentences about stale cells
ALONE = {"missing": "only in {0}", "new": "only in {1}"}


def side_by_side(comparison: Comparison, limit: int = 20) -> RenderableType:
    """Warnings, every mean of both sides, what differs between them, and which cells only one side has."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(f"warning: {text}", "yellow") for text in comparison.warnings]
    parts += [Text(f"stale: {text}", "yellow") for text in comparison.stale[:STALE]]
    if len(comparison.stale) > STALE:
        parts.append(
            Text(f"stale: {len(comparison.stale) - STALE} more; ttabench status names them", "yellow")
        )
    if int(comparison.means["cells"].sum()):
        parts.append(_means(comparison))
    notes = [Text(note) for note in (_counts(comparison), comparison.attested) if note]
    return Group(*parts, *causes(comparison, limit), *notes)


def _means(comparison: Comparison) -> Table:
    """A line per method on a network: both means, over the cells with a number on both sides."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    title = "Mean accuracy (%) over the cells of both"
    grid = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for name in ("dataset", "arch", "method"):
        grid.add_column(name, overflow="fold")
    for name in (*_headings(comparison.names), "change", P_OF_FALL, "cells"):
        grid.add_column(Text(name), justify="right", overflow="fold")
    for row in comparison.means[comparison.means["cells"] > 0].to_dict("records"):
        numbers = (f"{row['before']:.2f}", f"{row['after']:.2f}", naming.points(row["change"], 2))
        cells = str(row["cells"]) if row["cells"] == row["of"] else f"{row['cells']} of {row['of']}"
        names = (
            naming.where(row["dataset"], row["severity"]),
            row["arch"],
            named(row["method"], row["variant"]),
        )
        grid.add_row(*map(Text, map(str, names)), *numbers, p_text(row["p_value"]), cells)
    return grid


def _headings(names: tuple[str, str]) -> tuple[str, str]:
    """The names of the two sides, or ``before`` and ``after`` where these are the same or long."""
    short = tuple(name.rstrip("/").rpartition("/")[2] for name in names)
    apart = short[0] != short[1] and all(0 < len(name) <= 20 for name in short)
    return (short[0], short[1]) if apart else ("before", "after")


def _counts(comparison: Comparison) -> str:
    """``30 cells in both: 28 with the same accuracy; 2 only in results-before.``"""
    alone = {word: comparison.count(word) for word in ALONE}
    both = len(comparison.cells) - sum(alone.values())
    same, neither = comparison.count("same"), comparison.count("neither")
    text = f"{both} cells in both, {same} of them with the same accuracy"
    text += f" and {neither} without a number on both sides" if neither else ""
    for word, count in alone.items():
        text += f"; {count} {ALONE[word].format(*comparison.names)}" if count else ""
    return f"{text}. To fail if accuracy fell: --gate."
