"""Reliability diagram: how often predictions are right, by their confidence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes

from ttabench_reports.naming import MEAN
from ttabench_reports.plots.captions import flags, protocol
from ttabench_reports.plots.curves import Curve, Panels, curves, others, parts
from ttabench_reports.plots.plot import Drawing
from ttabench_reports.plots.style import GREY, INK, SIZE, Look
from ttabench_reports.plots.which import highest_severities, looks, methods
from ttabench_reports.report import Report
from ttabench_reports.shape import Row, Table

LEAST = 0.002  # share of the images that a bin needs to be drawn


def reliability_diagrams(report: Report) -> Iterator[Drawing]:
    """One for each dataset at its highest severity, of the rows whose cells store their confidences."""
    for table in highest_severities(report.tables):
        panels = {
            arch: group
            for arch, rows in methods(table).items()
            if (group := [curve for row in rows if (curve := _curve(row))])
        }
        for part in parts(panels):
            yield _diagram(table, part)


def _curve(row: Row) -> Curve | None:
    if row.reliability is None:
        return None
    count = row.reliability.bins[0]
    drawn = count > LEAST * count.sum()
    return Curve(row, 100 * row.reliability.confidence[drawn], 100 * row.reliability.accuracy[drawn])


def _diagram(table: Table, panels: Panels) -> Drawing:
    drawn = {arch: [curve.row for curve in group] for arch, group in panels.items()}
    chosen = looks(drawn, lambda row: row.value(MEAN))
    figure, made = curves(panels, chosen, "Confidence (%)", "Accuracy (%)", square=True)
    for axes, rows in zip(made, drawn.values(), strict=True):
        axes.set(xlim=(0, 100), ylim=(0, 100), xticks=range(0, 101, 25), yticks=range(0, 101, 25))
        axes.axline((0, 0), slope=1, color=GREY, linewidth=0.5, dashes=(2, 2), zorder=1)
        _errors(axes, rows, chosen)
    rows = [row for group in drawn.values() for row in group]
    caption = (
        f"Accuracy by confidence on {table.heading}, over all corruptions, in 15 bins; bins with less than "
        f"{100 * LEAST:g}\u00a0% of the images are left out. Above the dotted line predictions are "
        "underconfident, below it overconfident. Numbers: expected calibration error (%), mean over the "
        f"corruptions. {others(panels, chosen)}{flags(rows)}{protocol(table)}"
    )
    return Drawing("reliability", table.title, f"Reliability: {table.heading}", caption, figure)


def _errors(axes: Axes, rows: Sequence[Row], chosen: Mapping[str, Look]) -> None:
    """The calibration errors of the methods with a look, in the corner above the diagonal."""
    shown = {row.method: row for row in rows if row.method in chosen and row.reliability}
    texts = [
        (chosen[method], f"{row.name.partition(' [')[0]} {row.reliability.error:.1f}")
        for method in chosen
        if (row := shown.get(method)) and row.reliability and not math.isnan(row.reliability.error)
    ]
    points = 72 * axes.bbox.height / axes.figure.dpi
    for k, (look, text) in enumerate(texts):
        y = 1 - (5 + 6.2 * k) / points
        axes.plot(
            0.045, y, look.marker, color=look.colour, markersize=2.4, markeredgewidth=0.6, clip_on=False,
            transform=axes.transAxes,
        )  # fmt: skip
        axes.text(0.08, y, text, va="center_baseline", size=SIZE - 0.8, color=INK, transform=axes.transAxes)
