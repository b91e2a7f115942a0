"""Accuracy over the stream: whether a method gains or collapses the longer it adapts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ttabench_reports.evidence.report import Report
from ttabench_reports.plots.captions import flags, protocol
from ttabench_reports.plots.curves import Curve, Panels, curves, others, parts, rows_of, shown
from ttabench_reports.plots.plot import Drawing
from ttabench_reports.plots.style import SIZE
from ttabench_reports.plots.which import looks, methods
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words import naming
from ttabench_reports.words.naming import MEAN

MOST = 25
"""Windows in a plot; with more, curves hide each other."""


def stream_curves(report: Report) -> Iterator[Drawing]:
    """One for each long stream, and one for each continual sweep over corruptions."""
    for table in report.tables:
        yield from _windows(table)
        if table.key["reset"] == "continual" and len(table.main) > 1:
            yield from _continual(table)


def _windows(table: Table) -> Iterator[Drawing]:
    measured = methods(table)
    for column in table.main:
        panels = {
            arch: [_over_windows(row, column) for row in rows if column in row.windows]
            for arch, rows in measured.items()
        }
        lengths = {
            curve.row.windows[column].merged(MOST).length for group in panels.values() for curve in group
        }
        several = " and ".join(f"{length:,}" for length in sorted(lengths))
        for part in parts(panels):
            meaning = f"{naming.title(column)} stream, in windows of {several} test images"
            yield _drawing(table, part, column, "Test images seen (thousands)", meaning)


def _over_windows(row: Row, column: str) -> Curve:
    """The accuracy of each window at its middle."""
    windows = row.windows[column].merged(MOST)
    middles = (windows.sizes.cumsum() - windows.sizes / 2) / 1000
    return Curve(row, middles.tolist(), windows.accuracy.tolist())


def _continual(table: Table) -> Iterator[Drawing]:
    measured = methods(table)
    # Rows in another order of corruptions cannot share an axis. Source has all orders of the methods.
    whole = [row for rows in measured.values() for row in rows if len(row.order) == len(table.main)]
    every = [row.order for row in whole if row.kind == "method"] or [row.order for row in whole]
    if not every:
        return
    order = max(dict.fromkeys(every), key=every.count)  # of equals the first
    places = list(range(1, len(order) + 1))
    panels: Mapping[str, Sequence[Curve]] = {
        arch: [Curve(row, places, [row.value(c) for c in order]) for row in rows if _follows(row, order)]
        for arch, rows in measured.items()
    }
    left_out = {row.plain_name for rows in measured.values() for row in rows if not _follows(row, order)}
    meaning = "corruptions in the order of the stream; methods are not reset between them"
    if left_out:
        why = "In another order, in several or not under all"
        meaning += f". {why}, so not drawn: {', '.join(sorted(left_out))}"
    for part in parts(panels):
        yield _drawing(table, part, "", "Corruption", meaning, order)


def _follows(row: Row, order: Sequence[str]) -> bool:
    """Whether a row has this order. Source does not adapt, so any order is its own."""
    return row.order == order or row.kind == "source"


def _drawing(
    table: Table, panels: Panels, column: str, x: str, meaning: str, order: Sequence[str] = ()
) -> Drawing:
    chosen = looks(rows_of(panels), lambda row: row.value(column or MEAN), lowest=2)
    figure, made = curves(panels, chosen, x, "Accuracy (%)", ticks=0.3 if order else 0.2)
    for axes in made if order else ():
        axes.set_xticks(range(1, len(order) + 1), naming.shorts(order), rotation=90, size=SIZE - 0.8)
    hidden = others(panels, chosen)
    caption = (
        f"Accuracy (%) over the stream on {table.heading}: {meaning}. "
        f"{'In color: Source, the best methods and the two worst. ' if hidden else ''}{hidden}"
        f"{flags(shown(panels))}{protocol(table)}"
    )
    about = f"{table.title}-{column}" if column and len(table.main) > 1 else table.title
    return Drawing("stream", about, f"Accuracy over the stream: {table.heading}", caption, figure)
