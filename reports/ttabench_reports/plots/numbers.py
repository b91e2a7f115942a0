"""Many short texts as one artist: a text object for each takes most of the time of a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.font_manager import FontProperties

from ttabench_reports.plots.fonts import families
from ttabench_reports.plots.style import text_width

DIGITS = 0.73  # height of a digit, as a share of the font's size


@dataclass(frozen=True)
class Number:
    """A text centered at (x, y) in data coordinates; `size` in points."""

    x: float
    y: float
    text: str
    ink: str
    size: float
    weight: str


class Numbers(Artist):
    """Draws :class:`Number` objects on axes."""

    def __init__(self, axes: Axes, numbers: Sequence[Number]) -> None:
        super().__init__()
        self.numbers = tuple(numbers)
        self.set_zorder(3)
        axes.add_artist(self)
        self.set_clip_on(False)

    def draw(self, renderer: RendererBase, *args: Any, **kwargs: Any) -> None:
        """Draw all texts, those of one look together."""
        assert self.axes is not None
        assert self.figure is not None
        places = self.axes.transData.transform([(number.x, number.y) for number in self.numbers])
        _, height = renderer.get_canvas_width_height()
        dpi = self.figure.dpi
        looks: dict[tuple[str, float, str], list[tuple[float, float, str]]] = {}
        for number, (x, y) in zip(self.numbers, places.tolist(), strict=True):
            left = x - text_width(number.text, number.size, number.weight) / 2 * dpi
            base = y - DIGITS * number.size / 72 / 2 * dpi
            at = left, height - base if renderer.flipy() else base, number.text
            looks.setdefault((number.ink, number.size, number.weight), []).append(at)
        renderer.open_group("numbers")
        for (ink, size, weight), texts in looks.items():
            font = FontProperties(family=families(), size=size, weight=weight)
            context = renderer.new_gc()
            context.set_foreground(ink)
            for left, base, text in texts:
                renderer.draw_text(context, left, base, text, font, 0)
            context.restore()
        renderer.close_group("numbers")
        self.stale = False
