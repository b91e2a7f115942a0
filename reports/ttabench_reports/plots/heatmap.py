"""Heat map: accuracy of each method under each corruption."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from matplotlib import colormaps
from matplotlib.collections import PolyCollection
from numpy.typing import NDArray

from ttabench_reports.evidence.places import best_places
from ttabench_reports.evidence.report import Report
from ttabench_reports.plots.captions import marks, protocol
from ttabench_reports.plots.numbers import Number, Numbers
from ttabench_reports.plots.plot import Drawing
from ttabench_reports.plots.stacks import Panel, PanelLine, Placed, Stack, parts, stack
from ttabench_reports.plots.style import GREY, PALE, SIZE, WIDTH, ink_on, text_width
from ttabench_reports.tables.table import Table
from ttabench_reports.words import naming
from ttabench_reports.words.naming import MEAN, MEAN_EXTRA

MEAN_WIDTH = 1.75  # of a mean's column, which has a decimal, against 1 of the others
SPACE = 0.3  # beside a mean
LEAST_WIDTH = 12.0  # few columns are no wider
SHADES = colormaps["Blues"]
Edges = NDArray[np.float64]


def heatmaps(report: Report) -> Iterator[Drawing]:
    """One for each table with several corruptions; long ones are several."""
    for table in report.tables:
        columns = table.columns
        if len(table.main) < 2:
            continue
        top = max(text_width(naming.title(column)) for column in columns) + 0.08
        panels = [
            Panel(naming.arch(arch), [PanelLine(row) for row in rows if row.kind != "increase"])
            for arch, rows in table.archs().items()
        ]
        for part in parts(panels, top, 0.03):
            yield _heatmap(table, columns, part, top)


def _heatmap(table: Table, columns: Sequence[str], panels: Sequence[Panel], top: float) -> Drawing:
    made = stack(panels, top, 0.03, 0.03)
    axes = made.axes
    left, right = _edges(columns)
    numbers = [v for row in table.rows if row.kind != "increase" for c in columns if (v := row.value(c)) == v]
    low = min(10 * math.floor(min(numbers, default=0) / 10), 90)
    best = best_places(table)
    _squares(made, columns, left, right, low)
    middles = ((left + right) / 2).tolist()
    across = max(right[-1], LEAST_WIDTH)
    room = axes.get_position().width * WIDTH / across - 0.01
    Numbers(axes, [
        _number(placed, x, column, low, (id(placed.row), column) in best, room)
        for placed in made.lines
        for x, column in zip(middles, columns, strict=True)
    ])  # fmt: skip
    _dots(made, columns, middles, low)
    for x, column in zip(middles, columns, strict=True):
        axes.annotate(
            naming.title(column), (x, 1), xytext=(0, 2), xycoords=axes.get_xaxis_transform(),
            textcoords="offset points", rotation=90, ha="center", va="bottom",
            weight="bold" if column in (MEAN, MEAN_EXTRA) else "normal",
        )  # fmt: skip
    axes.set(xlim=(0, across), xticks=[])
    axes.spines["bottom"].set_visible(False)
    shown = [placed.row for placed in made.lines]
    caption = (
        f"Accuracy (%) on {table.heading} by corruption, in whole percent; means have a decimal. "
        f"Bold: best of a model, with its ties. {marks(shown, columns)}{protocol(table)}"
    )
    title = f"Accuracy by corruption: {table.heading}"
    return Drawing("heatmap", table.title, title, caption, made.figure)


def _edges(columns: Sequence[str]) -> tuple[Edges, Edges]:
    """Left and right of each column."""
    left, right, x = [], [], 0.0
    for k, column in enumerate(columns):
        mean = column in (MEAN, MEAN_EXTRA)
        x += SPACE if k and (mean or columns[k - 1] in (MEAN, MEAN_EXTRA)) else 0
        left.append(x)
        x += MEAN_WIDTH if mean else 1
        right.append(x)
    return np.array(left), np.array(right)


def _squares(made: Stack, columns: Sequence[str], left: Edges, right: Edges, low: float) -> None:
    corners, faces = [], []
    for placed in made.lines:
        top, bottom = placed.top, placed.bottom
        for start, end, column in zip(left, right, columns, strict=True):
            corners.append([(start, top), (end, top), (end, bottom), (start, bottom)])
            faces.append(_shade(placed.row.value(column), low))
    squares = PolyCollection(corners, facecolors=faces, edgecolors="white", linewidths=0.5)
    made.axes.add_collection(squares, autolim=False)


@lru_cache(maxsize=10_000)
def _shade(value: float, low: float) -> tuple[float, ...] | str:
    return PALE if math.isnan(value) else SHADES(0.03 + 0.82 * max(value - low, 0) / (100 - low))


def _ink(value: float, low: float) -> str:
    face = _shade(value, low)
    return GREY if isinstance(face, str) else ink_on(face)


def _number(placed: Placed, x: float, column: str, low: float, best: bool, room: float) -> Number:
    """room: inches that a column has, a mean's aside."""
    value = placed.row.value(column)
    mean = column in (MEAN, MEAN_EXTRA)
    if math.isnan(value):
        word = placed.row.words.get(column, "")
        text = "fail" if word == "failed" else word
    else:
        text = naming.number(value) if mean else f"{value:.0f}"
    size, weight = SIZE - 0.5, "bold" if best else "normal"
    wide = text_width(text, size, weight)
    if wide > room and not mean:  # such as 100 in bold
        size *= room / wide
    return Number(x, placed.middle, text, _ink(value, low), size, weight)


def _dots(made: Stack, columns: Sequence[str], middles: Sequence[float], low: float) -> None:
    """A dot below each number that has a footnote."""
    places: dict[str, list[tuple[float, float]]] = {}
    for placed in made.lines:
        for x, column in zip(middles, columns, strict=True):
            if placed.row.letters.get(column) and not math.isnan(value := placed.row.value(column)):
                places.setdefault(_ink(value, low), []).append((x, placed.middle + 0.047))
    for ink, dots in places.items():
        made.axes.plot(*zip(*dots, strict=True), ".", color=ink, markersize=1.2)
