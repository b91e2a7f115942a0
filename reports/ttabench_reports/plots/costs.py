"""Accuracy against cost: what a method adds, and what it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from ttabench_reports.evidence.report import Report
from ttabench_reports.plots.captions import flags, protocol
from ttabench_reports.plots.labels import LABEL_SIZE, Points, write_labels
from ttabench_reports.plots.plot import Drawing
from ttabench_reports.plots.style import BLUE, ORANGE, SIZE, WIDTH, shortened
from ttabench_reports.plots.which import dot, highest_severities, networks
from ttabench_reports.sheets import words
from ttabench_reports.sheets.costs import timed
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words.naming import MEAN

LEFT, RIGHT, HEADING, BODY, TICKS = 0.44, 0.06, 0.17, 1.9, 0.2
BOTTOM = 0.12
PANELS = 3  # in a figure
LEAST_RANGE = 1.0  # points: a panel's smallest, so that numbers at its ticks have a decimal at most
ALL_NAMED = 8  # dots in each panel, up to which all have their names


AXES = {
    "compute_ratio": (
        "Cost (1: Source's forward pass)",
        "the time of a method, adaptation included, over that of Source's forward pass "
        "(median over the cells)",
    ),
    "ms_per_image": (
        "Milliseconds per image",
        "the milliseconds that a method needs for an image, adaptation included (median over the cells)",
    ),
    "seconds": (
        "Seconds for a corruption",
        "the seconds that a method needs to adapt to the images of one corruption and to score them "
        "(median over the cells)",
    ),
}
"""What is known of a row's cost, the best measure first → the axis, and its meaning."""


def cost_plots(report: Report) -> Iterator[Drawing]:
    """One for each dataset at its highest severity; a panel for each network."""
    for table in highest_severities(report.tables):
        scored = [(name, [row for row in rows if row.complete(MEAN)]) for name, rows in networks(table)]
        every = [row for _, rows in scored for row in rows]
        cost = next((name for name in AXES if all(row.about[name] > 0 for row in every)), "seconds")
        timed_rows = [(name, [row for row in rows if row.about[cost] > 0]) for name, rows in scored]
        panels = [(name, rows) for name, rows in timed_rows if len(rows) > 1]
        for start in range(0, len(panels), PANELS):
            part = panels[start : start + PANELS]
            yield _cost_plot(table, cost, part, timed(report, apart=cost != "seconds"))


def _cost_plot(table: Table, cost: str, panels: Sequence[tuple[str, Sequence[Row]]], said: str) -> Drawing:
    """`said`: what is to be known of how times were measured."""
    height = len(panels) * (HEADING + BODY + TICKS) + BOTTOM
    figure = Figure(figsize=(WIDTH, height))
    rows = [row for _, members in panels for row in members]
    costs = [row.about[cost] for row in rows]
    few = max(len(members) for _, members in panels) <= ALL_NAMED
    room = max((max(costs) / min(costs)) ** 0.07, 1.05)
    for k, (name, members) in enumerate(panels):
        bottom = height - (k + 1) * (HEADING + BODY + TICKS) + TICKS
        place = (LEFT / WIDTH, bottom / height, (WIDTH - LEFT - RIGHT) / WIDTH, BODY / height)
        axes = figure.add_axes(place)
        axes.set_title(name, loc="left", weight="bold", size=SIZE + 0.5, pad=2)
        axes.set_xscale("log")
        axes.set_xlim(min(costs) / room, max(costs) * room)
        _panel(axes, members, [(row.about[cost], row.value(MEAN)) for row in members], all_named=few)
    label, meaning = AXES[cost]
    figure.text(0.5 * (1 + (LEFT - RIGHT) / WIDTH), 0, label, ha="center", va="bottom")
    caption = (
        f"Mean accuracy (%) on {table.heading} against {meaning}. Lines: methods that no other method "
        f"of their mode surpasses in both{'' if few else '; only these and Source are named'}. Square: "
        f"Source. Circles and full line: online. Diamonds and dashed line: offline. {flags(rows)}"
        f"{words.join(said, protocol(table))}"
    )
    return Drawing("cost", table.title, f"Accuracy against cost: {table.heading}", caption, figure)


def _panel(axes: Axes, rows: Sequence[Row], points: Points, *, all_named: bool) -> None:
    fronts = {offline: _front([points[k] for k in of]) for offline, of in _of_each_mode(rows).items()}
    for offline, front in fronts.items():
        colour = ORANGE if offline else BLUE
        dashes = "--" if offline else "-"
        axes.step(
            *zip(*front, strict=True), where="post", color=colour, linestyle=dashes, linewidth=0.6, zorder=1
        )
    for (x, y), row in zip(points, rows, strict=True):
        colour, marker = dot(row)
        axes.plot(x, y, marker, color=colour, markersize=2.8, markeredgewidth=0, zorder=2)
    axes.margins(y=0.09)
    _widen(axes)
    axes.grid(True)
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 100 * low else (1.0,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("Mean accuracy (%)", labelpad=2)
    on_front = {point for front in fronts.values() for point in front}
    texts = [
        text if all_named or row.kind == "source" or point in on_front else ""
        for text, row, point in zip(_labels(rows), rows, points, strict=True)
    ]
    write_labels(axes, points, texts, [_steps(front) for front in fronts.values()])


def _widen(axes: Axes) -> None:
    """Show at least :data:`LEAST_RANGE` points, at ticks with short numbers."""
    low, high = axes.get_ylim()
    room = max(LEAST_RANGE - (high - low), 0.0) / 2
    axes.set_ylim(low - room, high + room)
    axes.yaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10]))


def _of_each_mode(rows: Sequence[Row]) -> dict[bool, list[int]]:
    """Whether offline → the numbers of its rows, and of Source, which is compared with both."""
    found: dict[bool, list[int]] = {}
    for offline in (False, True):
        of = [k for k, row in enumerate(rows) if row.kind != "source" and row.offline == offline]
        if of:
            found[offline] = [*(k for k, row in enumerate(rows) if row.kind == "source"), *of]
    return found or {False: list(range(len(rows)))}


def _labels(rows: Sequence[Row]) -> list[str]:
    """Names and marks, with settings only where a method is there in several."""
    bases = Counter(row.about["base"] for row in rows)
    names = [row.plain_name if bases[row.about["base"]] > 1 else row.name.partition(" [")[0] for row in rows]
    return [shortened(name, 0.85, LABEL_SIZE) + row.flags for name, row in zip(names, rows, strict=True)]


def _steps(front: Points) -> list[tuple[float, float]]:
    """The corners of the line through the front: across, then up."""
    corners = list(front[:1])
    for (_, y), (to_x, to_y) in pairwise(front):
        corners += [(to_x, y), (to_x, to_y)]
    return corners


def _front(points: Points) -> list[tuple[float, float]]:
    """The points that no other surpasses: cheaper than all better ones."""
    front: list[tuple[float, float]] = []
    for x, y in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or y > front[-1][1]:
            front.append((x, y))
    return front
