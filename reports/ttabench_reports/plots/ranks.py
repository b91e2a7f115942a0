"""Rank diagram: the mean rank of each method over the corruptions. Descriptive: nothing is tested."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ttabench.errors import counted
from ttabench_reports.evidence.groups import groups, which_weights
from ttabench_reports.evidence.intervals_and_tests import ranks
from ttabench_reports.evidence.report import Report
from ttabench_reports.plots.captions import flags, protocol
from ttabench_reports.plots.plot import Drawing
from ttabench_reports.plots.stacks import Panel, PanelLine, name_x_axis, parts, stack, write_beside
from ttabench_reports.plots.which import dot, highest_severities
from ttabench_reports.tables.table import Table
from ttabench_reports.words import naming

BOTTOM, RIGHT = 0.28, 0.25


def rank_diagrams(report: Report) -> Iterator[Drawing]:
    """One for each dataset at its highest severity, of at least three rows; long ones are several."""
    for table in highest_severities(report.tables):
        if table.natural or len(table.main) < 2:
            continue
        for part in parts(_panels(table), 0.02, BOTTOM):
            yield _diagram(table, part)


def _panels(table: Table) -> Iterator[Panel]:
    """A panel for each architecture, weights and mode, the lowest mean rank first."""
    for arch, rows in table.archs().items():
        every = list(groups(rows))
        for group in every:
            lines = [PanelLine(row, of) for row, of in ranks(group, table)]
            if len(lines) > 2:
                offline = any(line.row.offline and line.row.kind == "method" for line in lines)
                mode = "" if len(every) == 1 else "offline" if offline else "online"
                heading = naming.network(arch, which_weights(group, every), mode)
                yield Panel(heading, sorted(lines, key=_mean))


def _mean(line: PanelLine) -> float:
    return math.nan if line.ranks is None else float(line.ranks.mean())


def _diagram(table: Table, panels: Sequence[Panel]) -> Drawing:
    made = stack(panels, 0.02, BOTTOM, RIGHT)
    axes = made.axes
    for placed in made.lines:
        row, of_row, y = placed.row, placed.line.ranks, placed.middle
        if of_row is None:
            continue
        mean, (colour, marker) = _mean(placed.line), dot(row)
        axes.plot([of_row.min(), of_row.max()], [y, y], color=colour, linewidth=1.0, alpha=0.55)
        axes.plot(mean, y, marker, color=colour, markersize=3.4, markeredgewidth=0)
        write_beside(axes, y, f"{mean:.1f}", space=3)
    most = max(map(len, made.panels))
    step = 1 if most <= 10 else 5
    axes.set(xlim=(0.6, most + 0.4), xticks=[1, *range(step if step > 1 else 2, most + 1, step)])
    axes.xaxis.grid(True)
    name_x_axis(axes, "Rank over the corruptions", table)
    caption = (
        f"Ranks by accuracy on {table.heading}, within a model and mode; 1 is best. Marker and number: the "
        f"mean over {counted(len(table.main), 'corruption')}. Line: from the lowest rank to the highest. The "
        "diagram is descriptive: no difference of ranks is tested. Only rows with a number under every "
        f"corruption. {flags(placed.row for placed in made.lines)}{protocol(table)}"
    )
    return Drawing("ranks", table.title, f"Ranks (descriptive): {table.heading}", caption, made.figure)
