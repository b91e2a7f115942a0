"""Plots with a line for each method: lines in panels, one for each architecture, below each other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ttabench_reports.plots.style import SIZE, TALLEST, WIDTH, folded, text_width
from ttabench_reports.tables.table import Row, Table

LINE, MORE_LINES = 0.122, 0.085  # inches: the first line of a label, each further one
HEADING, GAP = 0.17, 0.06
LABELS = 1.1  # inches that labels may take


@dataclass(frozen=True)
class PanelLine:
    """A method in a panel. `ranks`: what the rank diagram shows of it."""

    row: Row
    ranks: NDArray[np.float64] | None = None

    @property
    def label(self) -> list[str]:
        """Its name and marks, folded."""
        return folded(self.row.plain_name + self.row.flags, LABELS)

    @property
    def height(self) -> float:
        return LINE + MORE_LINES * (len(self.label) - 1)


@dataclass(frozen=True)
class Panel:
    """Lines under a heading."""

    heading: str
    lines: Sequence[PanelLine]

    @property
    def height(self) -> float:
        return HEADING + sum(line.height for line in self.lines) + GAP


@dataclass(frozen=True)
class Placed:
    """A line and its place: inches from the top of the axes."""

    line: PanelLine
    top: float
    bottom: float

    @property
    def row(self) -> Row:
        return self.line.row

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2


@dataclass(frozen=True)
class Stack:
    """Panels in one figure. `axes`: x is for the plot to use, y is in inches from the top."""

    figure: Figure
    axes: Axes
    panels: Sequence[Sequence[Placed]]

    @property
    def lines(self) -> list[Placed]:
        return [placed for panel in self.panels for placed in panel]


def parts(panels: Iterable[Panel], top: float, bottom: float) -> Iterator[list[Panel]]:
    """Panels that fit into one figure each. A panel that is too high itself is continued in the next."""
    room = TALLEST - top - bottom
    part: list[Panel] = []
    for panel in panels:
        for piece in _pieces(panel, room):
            if part and sum(one.height for one in part) + piece.height > room:
                yield part
                part = []
            part.append(piece)
    if part:
        yield part


def _pieces(panel: Panel, room: float) -> Iterator[Panel]:
    count = math.ceil((panel.height - HEADING) / (room - HEADING))
    size = math.ceil(len(panel.lines) / count)
    for start in range(0, len(panel.lines), size):
        heading = panel.heading + (" (continued)" if start else "")
        yield Panel(heading, panel.lines[start : start + size])


def stack(panels: Sequence[Panel], top: float, bottom: float, right: float) -> Stack:
    """A figure with the labels of all lines; `top`, `bottom`, `right`: inches around the axes."""
    body = sum(panel.height for panel in panels)
    labels = [text for panel in panels for line in panel.lines for text in line.label]
    left = max(map(text_width, labels)) + 0.09
    height = top + body + bottom
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.add_axes((left / WIDTH, bottom / height, (WIDTH - left - right) / WIDTH, body / height))
    axes.set_ylim(body, 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    placed: list[list[Placed]] = []
    y = 0.0
    for panel in panels:
        axes.annotate(
            panel.heading, (0, y + HEADING / 2), xytext=(2 - 72 * left, 0), size=SIZE + 0.5, weight="bold",
            xycoords=axes.get_yaxis_transform(), textcoords="offset points", va="center_baseline",
        )  # fmt: skip
        y += HEADING
        placed.append([])
        for line in panel.lines:
            axes.annotate(
                "\n".join(line.label), (0, y + line.height / 2), xytext=(-3, 0), ha="right", va="center",
                xycoords=axes.get_yaxis_transform(), textcoords="offset points", linespacing=1.0,
            )  # fmt: skip
            placed[-1].append(Placed(line, y, y + line.height))
            y += line.height
        y += GAP
    return Stack(figure, axes, placed)


def write_beside(axes: Axes, y: float, text: str, *, space: float = 2.5, **look: Any) -> None:
    """Write `text` to the right of the axes, `space` points from them."""
    axes.annotate(
        text, (1, y), xytext=(space, 0), xycoords=axes.get_yaxis_transform(), textcoords="offset points",
        va="center_baseline", size=SIZE - 0.5, **look,
    )  # fmt: skip


def name_x_axis(axes: Axes, what: str, table: Table) -> None:
    """Write `what` and the table's heading below the axes; the caption alone has what would not fit."""
    place = axes.get_position()
    middle = WIDTH * (place.x0 + place.x1) / 2
    room = 2 * min(middle, WIDTH - middle)
    names = (f"{what}, {table.heading}", f"{what}, {table.short_heading}")
    axes.set_xlabel(next((name for name in names if text_width(name) <= room), what), labelpad=1.5)
