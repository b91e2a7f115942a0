"""Reliability diagram: how often predictions are right, by their confidence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from ttabench.errors import counted
from ttabench_reports.evidence.report import Report
from ttabench_reports.plots.captions import flags, protocol
from ttabench_reports.plots.curves import Curve, Panels, curves, parts, rows_of, shown
from ttabench_reports.plots.plot import Drawing
from ttabench_reports.plots.style import GREY, INK, SIZE, Look, text_width
from ttabench_reports.plots.which import Looks, highest_severities, looks, methods
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words.naming import MEAN

NUMBERS = "Numbers: expected calibration error (%){}."
ELSEWHERE = "The table of statistics has the expected calibration errors."
LEAST = 0.002  # share of the images that a bin needs to be drawn
SMALL, LINE = SIZE - 0.8, 6.2  # points: size and distance of the lines of numbers


def reliability_diagrams(report: Report) -> Iterator[Drawing]:
    """One for each dataset at its highest severity, of the rows whose cells store their confidences."""
    for table in highest_severities(report.tables):
        panels = {
            arch: [curve for row in rows if (curve := _curve(row))] for arch, rows in methods(table).items()
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
    every = rows_of(panels)
    chosen = looks(every, lambda row: row.value(MEAN))
    # Dozens of gray curves hide these: the errors of all methods are in the table of statistics.
    panels = {arch: [one for one in group if chosen.of(one.row)] for arch, group in panels.items()}
    figure, made = curves(panels, chosen, "Confidence (%)", "Accuracy (%)", square=True)
    for axes in made:
        axes.set(xlim=(0, 100), ylim=(0, 100), xticks=range(0, 101, 25), yticks=range(0, 101, 25))
        axes.axline((0, 0), slope=1, color=GREY, linewidth=0.5, dashes=(2, 2), zorder=1)
    boxes = [_box(axes, group, chosen) for axes, group in zip(made, panels.values(), strict=True)]
    free = all(box is None or not box.covered for box in boxes)
    for axes, box in zip(made, boxes, strict=True):
        if free and box:
            _write(axes, box)
    left_out = len({*chosen.names.values()} - chosen.by_name.keys())
    few = (
        f"Source and the best methods; {counted(left_out, 'other')}: see the statistics. " if left_out else ""
    )
    numbers = NUMBERS.format("" if table.natural else ", mean over the corruptions")
    caption = (
        f"Accuracy by confidence on {table.heading}{'' if table.natural else ', over all corruptions'}, "
        "in 15 bins; bins with less than "
        f"{100 * LEAST:g}\u00a0% of the images are left out. Above the dotted line predictions are "
        f"underconfident, below it overconfident. {numbers if free else ELSEWHERE} "
        f"{few}{flags(shown(panels))}{protocol(table)}"
    )
    return Drawing("reliability", table.title, f"Reliability: {table.heading}", caption, figure)


@dataclass(frozen=True)
class _Box:
    """The calibration errors of a panel: a line each, from (left, top) down, in shares of the panel.

    covered  whether a curve goes through it.
    """

    left: float
    top: float
    size: float
    texts: Sequence[tuple[Look, str]]
    covered: bool


def _box(axes: Axes, group: Sequence[Curve], chosen: Looks) -> _Box | None:
    """The calibration errors of the methods with a look, in the corner that has fewer of their curves."""
    shown = {chosen.names[id(curve.row)]: curve.row for curve in group}
    texts = [
        (look, f"{row.name.partition(' [')[0]} {row.reliability.error:.1f}")
        for name, look in chosen.by_name.items()
        if (row := shown.get(name)) and row.reliability and not math.isnan(row.reliability.error)
    ]
    if not texts:
        return None
    size = 72 * axes.bbox.height / axes.figure.dpi
    high = (3.8 + LINE * len(texts)) / size
    wide = 0.08 + 72 * max(text_width(text, SMALL) for _, text in texts) / size
    corners = [(0.0, 1.0), (1.0 - wide - 0.02, high + 0.02)]  # left and top: above the diagonal, and below it
    inside = {corner: _inside(group, chosen, corner, (wide, high)) for corner in corners}
    left, top = min(inside, key=lambda corner: inside[corner])
    return _Box(left, top, size, texts, any(inside[left, top]))


def _write(axes: Axes, box: _Box) -> None:
    for k, (look, text) in enumerate(box.texts):
        y = box.top - (5 + LINE * k) / box.size
        axes.plot(
            box.left + 0.045, y, look.marker, color=look.colour, markersize=2.4, markeredgewidth=0.6,
            clip_on=False, transform=axes.transAxes,
        )  # fmt: skip
        axes.text(
            box.left + 0.08, y, text, va="center_baseline", size=SMALL, color=INK, transform=axes.transAxes
        )


def _inside(
    group: Sequence[Curve], chosen: Looks, corner: tuple[float, float], size: tuple[float, float]
) -> tuple[int, int]:
    """How much of the curves with a look, and of the others, is in a box of a panel."""
    (left, top), (wide, high) = corner, size
    counts = [0, 0]
    for curve in group:
        x, y = (np.asarray(values) / 100 for values in (curve.x, curve.y))
        along = np.linspace(0, max(len(x) - 1, 0), 20 * len(x))
        at = np.arange(len(x))
        x, y = np.interp(along, at, x), np.interp(along, at, y)
        within = (x >= left) & (x <= left + wide) & (y <= top) & (y >= top - high)
        counts[chosen.of(curve.row) is None] += int(within.sum())
    return counts[0], counts[1]
