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
SPACE = 0.02  # inches between labels
LINE = 0.008  # inches beside a line that a label leaves free
TURNS = 32  # directions from a point in which its label may stand

Point = tuple[float, float]
Points = Sequence[Point]


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

    def nearest(self, point: Point, edge: float = 0.0) -> Point:
        """Its place that is nearest to a point, by `edge` below its top and above its bottom."""
        x, y = point
        return min(max(x, self.left), self.right), min(max(y, self.bottom + edge), self.top - edge)


def place(
    points: Points, texts: Sequence[str], width: float, height: float, lines: Sequence[Box] = ()
) -> list[Box]:
    """A box for each text beside its point, "" has none; all in inches, within 0 … `width` and 0 … `height`.

    Each takes the nearest place that is free of other texts, of points and of `lines`, and that no one takes
    for the label of another point. Where there is none, the one that covers least.
    """
    points_taken = [*(Box(x - POINT, y - POINT, x + POINT, y + POINT) for x, y in points), *lines]
    taken: list[Box] = []
    drawn: list[Points] = []
    for x, y, text in _labelled(points, texts):
        best, least = None, math.inf
        for box, far in _places(x, y, text_width(text, LABEL_SIZE) + SPACE):
            outside = max(-box.left, box.right - width, -box.bottom, box.top - height, 0.0)
            covered = sum(map(box.overlap, taken)) * 10 + sum(map(box.overlap, points_taken))
            line = _line((x, y), box)
            crossed = sum(_crosses(line, other) for other in taken)
            crossed += sum(_crosses(other, box) for other in drawn)
            cost = 1000 * outside + 300 * covered + crossed + _mistaken((x, y), box, points) + far
            if cost < least:
                best, least = box, cost
        assert best is not None
        taken.append(best)
        drawn.append(_line((x, y), best))
    return taken


def _mistaken(own: Point, box: Box, points: Points) -> float:
    """How easily a label passes for that of another point: one at its line, or hardly farther than its own.

    A line that touches a point costs as much as a tenth of an inch by which another point is nearer.
    """
    others = [point for point in points if point != own]
    touched = sum(_from_line(point, *(_line(own, box) or (own, own))) < POINT for point in others)
    nearest = min((math.dist(point, box.nearest(point)) for point in others), default=math.inf)
    return touched + 10 * max(math.dist(own, box.nearest(own)) + POINT - nearest, 0.0)


def _line(point: Point, box: Box) -> Points:
    """The ends of the line from a point to its label; empty where it needs no line."""
    end = box.nearest(point, 0.015)
    return (point, end) if math.dist(point, end) > 2 * POINT else ()


def _crosses(line: Points, box: Box) -> bool:
    """Whether a line goes through a box, seen at steps of a tenth."""
    if not line:
        return False
    (x, y), (to_x, to_y) = line
    places = ((x + k / 10 * (to_x - x), y + k / 10 * (to_y - y)) for k in range(11))
    return any(box.nearest(place) == place for place in places)


def _from_line(point: Point, start: Point, end: Point) -> float:
    """The distance of a point from a line with two ends."""
    (x, y), (dx, dy) = start, (end[0] - start[0], end[1] - start[1])
    length = dx * dx + dy * dy
    along = ((point[0] - x) * dx + (point[1] - y) * dy) / length if length else 0.0
    share = min(max(along, 0.0), 1.0)
    return math.dist(point, (x + share * dx, y + share * dy))


def _labelled(points: Points, texts: Sequence[str]) -> Iterator[tuple[float, float, str]]:
    return ((x, y, text) for (x, y), text in zip(points, texts, strict=True) if text)


def _places(x: float, y: float, width: float) -> Iterator[tuple[Box, float]]:
    """Boxes around a point, and how far they are."""
    for far in (0.0, 0.03, 0.06, 0.12, 0.2, 0.3, 0.4):
        for turn in range(TURNS):
            angle = 2 * math.pi * turn / TURNS
            dx, dy = math.cos(angle), math.sin(angle)
            reach = POINT + 0.01 + far
            middle_x = x + dx * reach + (width / 2) * max(min(1.6 * dx, 1), -1)
            middle_y = y + dy * (reach + HEIGHT / 2)
            box = Box(
                middle_x - width / 2, middle_y - HEIGHT / 2, middle_x + width / 2, middle_y + HEIGHT / 2
            )
            yield box, far + 0.032 * turn / TURNS


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
        if ends := _line((x, y), box):
            axes.plot(
                [corner[0] + end[0] for end in ends], [corner[1] + end[1] for end in ends], color=GREY,
                linewidth=0.3, transform=figure.dpi_scale_trans, zorder=1,
            )  # fmt: skip
        axes.text(
            corner[0] + middle[0], corner[1] + middle[1], text, size=LABEL_SIZE, ha="center", va="center",
            transform=figure.dpi_scale_trans,
        )  # fmt: skip
