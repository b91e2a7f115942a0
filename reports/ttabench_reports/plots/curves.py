"""Plots with a curve for each method: a panel for each architecture, and one legend for all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ttabench.errors import counted
from ttabench_reports.cells.grouped import grouped
from ttabench_reports.plots.style import OTHERS, SIZE, WIDTH, Look, text_width
from ttabench_reports.plots.which import Looks
from ttabench_reports.tables.table import Row, legend_of
from ttabench_reports.words import naming

LEFT, RIGHT, BETWEEN = 0.36, 0.1, 0.28
HEADING, TICKS, AXIS_LABEL = 0.16, 0.2, 0.1
LEGEND_LINE, HANDLE = 0.115, 0.345
PANELS = 8  # in a figure


@dataclass(frozen=True)
class Curve:
    """Points of a method.

    others  the rows of points that are not of `row`; their flags count too.
    """

    row: Row
    x: Sequence[float]
    y: Sequence[float]
    others: Sequence[Row] = ()

    @property
    def rows(self) -> tuple[Row, ...]:
        """All that it shows."""
        return self.row, *self.others


Panels = Mapping[str, Sequence[Curve]]


def parts(panels: Panels) -> Iterator[Panels]:
    """As many panels as fit into a figure; those without curves are left out."""
    names = [name for name, group in panels.items() if group]
    for start in range(0, len(names), PANELS):
        yield {name: panels[name] for name in names[start : start + PANELS]}


def rows_of(panels: Panels) -> dict[str, list[Row]]:
    """The rows of each panel."""
    return {arch: [curve.row for curve in group] for arch, group in panels.items()}


def shown(panels: Panels) -> list[Row]:
    """All rows of all curves."""
    return [row for group in panels.values() for curve in group for row in curve.rows]


def curves(
    panels: Panels, looks: Looks, x: str, y: str, *, square: bool = False, ticks: float = TICKS
) -> tuple[Figure, list[Axes]]:
    """A figure and the axes of its panels. Methods without a look are gray.

    x, y    what the axes show.
    square  panels are as high as wide, or else lower.
    ticks   inches below a panel.
    """
    columns = 1 if len(panels) == 1 else 2
    lines = math.ceil(len(panels) / columns)
    width = (WIDTH - LEFT - RIGHT - BETWEEN * (columns - 1)) / columns
    body = min(width, 2.4) if square else 1.5 if columns == 1 else 1.1
    entries = _entries(panels, looks)
    legend_columns = _columns([label for label, _ in entries])
    legend = LEGEND_LINE * math.ceil(len(entries) / legend_columns) + 0.05
    height = lines * (HEADING + body + ticks) + AXIS_LABEL + legend
    figure = Figure(figsize=(WIDTH, height))
    made: list[Axes] = []
    for k, (arch, group) in enumerate(panels.items()):
        left = LEFT + (k % columns) * (width + BETWEEN)
        top = height - (k // columns) * (HEADING + body + ticks) - HEADING
        axes = figure.add_axes((left / WIDTH, (top - body) / height, width / WIDTH, body / height))
        axes.set_title(naming.arch(arch), loc="left", weight="bold", size=SIZE + 0.5, pad=2)
        for curve in sorted(group, key=lambda curve: _layer(curve.row, looks)):
            _draw(axes, curve, looks.of(curve.row))
        axes.grid(True)
        if k % columns == 0:
            axes.set_ylabel(y, labelpad=2)
        made.append(axes)
    low = min(axes.get_ylim()[0] for axes in made)
    high = max(axes.get_ylim()[1] for axes in made)
    for axes in made:
        axes.set_ylim(low, high)
    figure.text(0.5 * (1 + (LEFT - RIGHT) / WIDTH), legend / height, x, ha="center", va="bottom")
    figure.legend(
        [handle for _, handle in entries], [label for label, _ in entries], loc="lower center", frameon=False,
        ncols=legend_columns, bbox_to_anchor=(0.5, 0), borderaxespad=0.1, borderpad=0, labelspacing=0.25,
        handlelength=2.6, handletextpad=0.5, columnspacing=1.0,
    )  # fmt: skip
    return figure, made


def _layer(row: Row, looks: Looks) -> int:
    """Gray curves first; of the others, the best last."""
    names, name = list(looks.by_name), looks.names[id(row)]
    return len(names) - names.index(name) if name in names else -1


def _draw(axes: Axes, curve: Curve, look: Look | None) -> None:
    if look is None:
        axes.plot(curve.x, curve.y, color=OTHERS, linewidth=0.5)
        return
    axes.plot(curve.x, curve.y, **look.line, markevery=max(len(curve.x) // 8, 1))


def _entries(panels: Panels, looks: Looks) -> list[tuple[str, Line2D]]:
    rows = _rows(panels, looks)
    entries = [
        (_label(rows[name]), Line2D([], [], **look.line))
        for name, look in looks.by_name.items()
        if name in rows
    ]
    if others := len(rows.keys() - looks.by_name.keys()):
        label = counted(others, "other method")
        entries.append((label, Line2D([], [], color=OTHERS, linewidth=0.5)))
    return entries


def _rows(panels: Panels, looks: Looks) -> dict[str, list[Row]]:
    """The rows of each curve, in the order of the panels."""
    every = [curve for group in panels.values() for curve in group]
    return grouped((looks.names[id(curve.row)], row) for curve in every for row in curve.rows)


def _label(rows: Sequence[Row]) -> str:
    """The name of a curve, without settings where they differ between the panels; with the flags of each."""
    names = [row.plain_name for row in rows]
    return (names[0] if len(set(names)) == 1 else names[0].partition(" [")[0]) + "".join(legend_of(rows))


def _columns(labels: Sequence[str]) -> int:
    """As many columns of a legend as fit."""

    def width(columns: int) -> float:
        parts = np.array_split(np.arange(len(labels)), columns)  # as Matplotlib's legend does it
        return sum(max(text_width(labels[k]) for k in part) + HANDLE for part in parts)

    return max((n for n in range(1, len(labels) + 1) if width(n) <= WIDTH - 0.05), default=1)


def others(panels: Panels, looks: Looks) -> str:
    """A sentence that names the gray curves; ends with a space, if there is any."""
    names = [_label(rows) for name, rows in _rows(panels, looks).items() if name not in looks.by_name]
    return f"Gray: {', '.join(names)}. " if names else ""
