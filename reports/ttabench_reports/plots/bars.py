"""Bars: the mean accuracy of each method with its interval, sorted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ttabench.errors import counted
from ttabench_reports import naming
from ttabench_reports.evidence import Finding
from ttabench_reports.naming import MEAN
from ttabench_reports.plots.captions import flags, protocol
from ttabench_reports.plots.plot import Drawing
from ttabench_reports.plots.stacks import LINE, Line, Panel, name_x_axis, parts, stack
from ttabench_reports.plots.style import BLUE, GREY, INK, ORANGE, SIZE
from ttabench_reports.plots.which import highest_severities, methods
from ttabench_reports.report import Report
from ttabench_reports.shape import Row, Table

BOTTOM, RIGHT = 0.28, 0.32


def all_bars(report: Report) -> Iterator[Drawing]:
    """One for each dataset at its highest severity; long ones are several."""
    for table in highest_severities(report.tables):
        panels = [
            Panel(naming.arch(arch), [Line(row) for row in _sorted(rows)])
            for arch, rows in methods(table).items()
        ]
        for part in parts(panels, 0.02, BOTTOM):
            yield _bars(report, table, part)


def _sorted(rows: Sequence[Row]) -> list[Row]:
    """The highest mean first; rows without a mean last."""
    return sorted(rows, key=lambda row: math.inf if math.isnan(v := row.value(MEAN)) else -v)


def _bars(report: Report, table: Table, panels: Sequence[Panel]) -> Drawing:
    made = stack(panels, 0.02, BOTTOM, RIGHT)
    axes = made.axes
    findings = report.findings(table)
    for placed in made.lines:
        row, y = placed.row, placed.middle
        value = row.value(MEAN)
        if math.isnan(value):
            axes.text(1, y, row.words.get(MEAN, "–"), va="center_baseline", size=SIZE - 0.5, color=GREY)
            continue
        colour = GREY if row.kind == "source" else ORANGE if row.offline else BLUE
        hatch = "//////" if row.offline and row.kind != "source" else ""
        axes.barh(y, value, 0.72 * LINE, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
        low, high = _whisker(row, findings[id(row)].interval)
        if not math.isnan(low):
            axes.plot([low, high], [y, y], color=INK, linewidth=0.9, solid_capstyle="butt")
            axes.plot([low, high], [y, y], "|", color=INK, markersize=2.6, markeredgewidth=0.6)
        end = value if math.isnan(high) else max(high, value)
        axes.annotate(
            naming.number(value), (end, y), xytext=(2.5, 0), textcoords="offset points",
            va="center_baseline", size=SIZE - 0.5,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4},
        )  # fmt: skip
    for panel in made.panels:
        for placed in panel:
            if placed.row.kind == "source" and not math.isnan(value := placed.row.value(MEAN)):
                axes.plot(
                    [value, value],
                    [panel[0].top, panel[-1].bottom],
                    ":",
                    color=INK,
                    linewidth=0.6,
                    zorder=1.5,
                )
    axes.set(xlim=(0, 100), xticks=range(0, 101, 20))
    axes.xaxis.grid(True)
    word = "Accuracy" if table.natural else "Mean accuracy"
    name_x_axis(axes, f"{word} (%)", table)
    caption = _caption(table, [placed.row for placed in made.lines], findings)
    return Drawing("bars", table.title, f"{word}: {table.heading}", caption, made.figure)


def _whisker(row: Row, interval: tuple[float, float]) -> tuple[float, float]:
    """The 95 % interval, or ± the standard deviation over seeds, or NaN."""
    if not math.isnan(interval[0]):
        return interval
    value, sd = row.value(MEAN), row.sd.get(MEAN, math.nan)
    return value - sd, value + sd


def _caption(table: Table, shown: Sequence[Row], findings: dict[int, Finding]) -> str:
    over = "" if table.natural else f", mean over {counted(len(table.main), 'corruption')}"
    sentences = [f"Accuracy (%) on {table.heading}{over}; the best first."]
    tested = [not math.isnan(findings[id(row)].interval[0]) for row in shown]
    if any(tested):
        seeds = " and, where there are several, over seeds" if table.seeds else ""
        sentences.append(f"Whiskers: 95\u00a0% intervals (bootstrap over images{seeds}).")
    elif any(not math.isnan(row.sd.get(MEAN, math.nan)) for row in shown):
        sentences.append("Whiskers: standard deviation over seeds.")
    sentences.append("Gray, and the dotted line: Source. Blue: online.")
    if any(row.offline and row.kind != "source" for row in shown):
        sentences.append("Orange, hatched: offline.")
    return f"{' '.join(sentences)} {flags(shown)}{protocol(table)}"
