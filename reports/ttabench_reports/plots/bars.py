"""Means: a dot for each method with its interval, sorted; online and offline methods in their own panels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from matplotlib.ticker import MaxNLocator

from ttabench_reports.evidence import intervals_and_tests as evidence
from ttabench_reports.evidence.report import Report
from ttabench_reports.plots.captions import flags, protocol
from ttabench_reports.plots.plot import Drawing
from ttabench_reports.plots.stacks import Panel, PanelLine, Placed, name_x_axis, parts, stack, write_beside
from ttabench_reports.plots.style import GREY, INK
from ttabench_reports.plots.which import dot, highest_severities, networks
from ttabench_reports.sheets import words
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words import naming
from ttabench_reports.words.naming import MEAN

BOTTOM, RIGHT = 0.28, 0.32


def all_bars(report: Report) -> Iterator[Drawing]:
    """One for each dataset at its highest severity; long ones are several."""
    for table in highest_severities(report.tables):
        panels = [panel for name, rows in networks(table) for panel in _panels(name, rows)]
        for part in parts(panels, 0.02, BOTTOM):
            yield _bars(table, part)


def _panels(network: str, rows: Sequence[Row]) -> Iterator[Panel]:
    """Online methods with Source, then offline ones: these are never ranked against each other."""
    offline = [row for row in rows if row.offline and row.kind != "source"]
    online = [row for row in rows if not row.offline or row.kind == "source"]
    both = bool(offline) and any(row.kind != "source" for row in online)
    panels = {f"{network}, online": online, f"{network}, offline": offline} if both else {network: rows}
    for heading, members in panels.items():
        yield Panel(heading, [PanelLine(row) for row in sorted(members, key=lambda row: row.falling)])


def _bars(table: Table, panels: Sequence[Panel]) -> Drawing:
    made = stack(panels, 0.02, BOTTOM, RIGHT)
    axes = made.axes
    findings = evidence.findings(table)
    ends: list[float] = []
    for placed in made.lines:
        row, y = placed.row, placed.middle
        value = row.value(MEAN)
        if math.isnan(value):
            write_beside(axes, y, row.words.get(MEAN, "–"), color=GREY)
            continue
        colour, marker = dot(row)
        low, high = _whisker(row, findings[id(row)].interval)
        if not math.isnan(low):
            ends.extend((low, high))
            axes.plot([low, high], [y, y], color=colour, linewidth=1.1, solid_capstyle="butt")
            axes.plot([low, high], [y, y], "|", color=colour, markersize=2.6, markeredgewidth=0.7)
        ends.append(value)
        axes.plot(value, y, marker, color=colour, markersize=3.0, markeredgewidth=0)
        write_beside(axes, y, naming.number(value))
    for panel in made.panels:
        value = _source(panel)
        if not math.isnan(value):
            ends.append(value)
            span = [panel[0].top, panel[-1].bottom]
            axes.plot([value, value], span, ":", color=INK, linewidth=0.6, zorder=1.5)
    axes.set_xlim(*_cropped(ends))
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.xaxis.grid(True)
    word = "Accuracy" if table.natural else "Mean accuracy"
    name_x_axis(axes, f"{word} (%)", table)
    caption = _caption(table, [placed.row for placed in made.lines], findings)
    return Drawing("bars", table.title, f"{word}: {table.heading}", caption, made.figure)


def _source(panel: Sequence[Placed]) -> float:
    """The mean of Source in a panel: its own row, or that which its methods are compared with."""
    own = [placed.row for placed in panel if placed.row.kind == "source"]
    beside = [placed.row.printed_baseline for placed in panel]
    return next((row.value(MEAN) for row in (*own, *beside) if row), math.nan)


def _cropped(ends: Sequence[float]) -> tuple[float, float]:
    """The part of the axis that has all dots and intervals, with a little room."""
    low, high = (min(ends), max(ends)) if ends else (0.0, 100.0)
    room = max(0.04 * (high - low), 0.5)
    return max(low - room, 0.0), min(high + room, 100.0 + 0.02 * (high - low) + 0.3)


def _whisker(row: Row, interval: tuple[float, float]) -> tuple[float, float]:
    """The 95 % interval, or ± the standard deviation over seeds, or NaN."""
    if not math.isnan(interval[0]):
        return interval
    value, sd = row.value(MEAN), row.sd.get(MEAN, math.nan)
    return value - sd, value + sd


def _caption(table: Table, shown: Sequence[Row], findings: dict[int, evidence.Finding]) -> str:
    over = f", mean over {len(table.main)} corruptions" if len(table.main) > 1 else ""
    sentences = [f"Accuracy (%) on {table.heading}{over}; the best first."]
    untested = [row for row in shown if math.isnan(findings[id(row)].interval[0])]
    if some := len(untested) < len(shown):
        sentences.append(f"Whiskers: 95\u00a0% intervals ({words.bootstrap([table])}).")
    if any(not math.isnan(row.sd.get(MEAN, math.nan)) for row in untested):
        which = " of rows without an interval" if some else ""
        sentences.append(f"Whiskers{which}: standard deviation over seeds.")
    sentences.append("Gray square, and the dotted line: Source. Blue circles: online.")
    if any(row.offline and row.kind != "source" for row in shown):
        sentences.append("Orange diamonds: offline, never to be ranked against online.")
    sentences.append("The axis does not begin at 0.")
    return f"{' '.join(sentences)} {flags(shown)}{protocol(table)}"
