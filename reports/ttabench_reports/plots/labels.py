"""Labels of points in a scatter plot, placed so that they neither cover each other nor a point."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.axes import Axes

from ttabench_reports.plots.style import GREY, text_width

LABEL_SIZE = 5.2
HEIGHT = 1.15 * LABEL_SIZE / 72  # inches of a line
POINT = 0.035  # inches around a point that a label leaves free
SPACE = 0.03  # inches between labels
LINE = 0.008  # inches beside a line that a label leaves free


Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Box:
    """A rectangle in inches."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: Box) -> float:
        """Area in common."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return width * height if width > 0 and height > 0 else 0.0


def place(
    points: Sequence[tuple[float, float]], texts: Sequence[str], width: float, height: float,
    lines: Sequence[Box] = (),
) -> list[Box]:  # fmt: skip
    """A box for each text beside its point, "" has none; all in inches, within 0 … `width` and 0 … `height`.

    Each takes the nearest place that is free of other texts, of points and of `lines`, and where there is
    none, the one that covers least.
    """
    points_taken = [*(Box(x - POINT, y - POINT, x + POINT, y + POINT) for x, y in points), *lines]
    taken: list[Box] = []
    for x, y, text in _labelled(points, texts):
        best, least = None, math.inf
        for box, far in _places(x, y, text_width(text, LABEL_SIZE) + SPACE):
            outside = max(-box.left, box.right - width, -box.bottom, box.top - height, 0.0)
            covered = sum(map(box.overlap, taken)) * 3 + sum(map(box.overlap, points_taken))
            cost = 1000 * outside + 100 * covered + far
            if cost < least:
                best, least = box, cost
        assert best is not None
        taken.append(best)
    return taken


def _labelled(points: Points, texts: Sequence[str]) -> Iterator[tuple[float, float, str]]:
    return ((x, y, text) for (x, y), text in zip(points, texts, strict=True) if text)


def _places(x: float, y: float, width: float) -> Iterator[tuple[Box, float]]:
    """Boxes around a point, and how far they are."""
    for far in (0.0, 0.06, 0.12, 0.2, 0.3, 0.4):
        for turn in range(16):
            angle = turn * math.pi / 8
            dx, dy = math.cos(angle), math.sin(angle)
            reach = POINT + 0.01 + far
            middle_x = x + dx * reach + (width / 2) * max(min(1.6 * dx, 1), -1)
            middle_y = y + dy * (reach + HEIGHT / 2)
            box = Box(
                middle_x - width / 2, middle_y - HEIGHT / 2, middle_x + width / 2, middle_y + HEIGHT / 2
            )
            yield box, far + 0.002 * turn


def _thin(corners: Points) -> Iterator[Box]:
    """The pieces of a line through these corners, each up and down or across."""
    for (x, y), (to_x, to_y) in pairwise(corners):
        yield Box(min(x, to_x) - LINE, min(y, to_y) - LINE, max(x, to_x) + LINE, max(y, to_y) + LINE)


def write_labels(axes: Axes, points: Points, texts: Sequence[str], steps: Sequence[Points] = ()) -> None:
    """Write a text beside each point (in data coordinates), with a thin line where it stands apart.

    texts  "" for a point without a label.
    steps  corners of each line in the plot, every piece of which goes across or up and down.
    """
    figure = axes.figure
    axes.autoscale_view()  # the limits must be final
    inches = axes.transData + figure.dpi_scale_trans.inverted()
    corner = figure.dpi_scale_trans.inverted().transform(axes.bbox.min)
    size = figure.dpi_scale_trans.inverted().transform(axes.bbox.max) - corner
    spots = [(float(x), float(y)) for x, y in inches.transform(points) - corner]
    pieces: list[Box] = []
    for line in filter(None, steps):
        pieces += _thin([(float(x), float(y)) for x, y in inches.transform(line) - corner])
    boxes = place(spots, texts, float(size[0]), float(size[1]), pieces)
    for (x, y, text), box in zip(_labelled(spots, texts), boxes, strict=True):
        middle = (box.left + box.right) / 2, (box.bottom + box.top) / 2
        near = min(max(x, box.left), box.right), min(max(y, box.bottom + 0.015), box.top - 0.015)
        if math.dist((x, y), near) > 2 * POINT:
            ends = [(x, y), near]
            axes.plot(
                [corner[0] + end[0] for end in ends], [corner[1] + end[1] for end in ends], color=GREY,
                linewidth=0.3, transform=figure.dpi_scale_trans, zorder=1,
            )  # fmt: skip
        axes.text(
            corner[0] + middle[0], corner[1] + middle[1], text, size=LABEL_SIZE, ha="center", va="center",
            transform=figure.dpi_scale_trans,
        )  # fmt: skip
