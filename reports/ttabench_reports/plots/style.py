"""How all plots look: the width of a column, sizes, and colours that the colour-blind can tell apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib import style

from ttabench_reports.plots.fonts import families, width_of_one_point

WIDTH = 3.3
"""Inches: a column of a two-column paper."""
TALLEST = 7.0
"""Inches: a picture and its caption fit on a page of LaTeX's article."""
SIZE = 6.0
"""Points: labels, ticks and legends. Headings have one more, numbers in cells half a point less."""
STYLE = {
    "font.size": SIZE, "axes.titlesize": SIZE + 1, "axes.labelsize": SIZE,
    "axes.linewidth": 0.5, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "xtick.major.width": 0.5, "ytick.major.width": 0.5, "xtick.major.size": 2, "ytick.major.size": 2,
    "xtick.minor.size": 1, "xtick.minor.width": 0.4, "xtick.major.pad": 2, "ytick.major.pad": 2,
    "hatch.linewidth": 0.4, "grid.color": "#DDDDDD", "grid.linewidth": 0.4, "text.parse_math": False,
    "axes.formatter.use_mathtext": False, "pdf.fonttype": 42, "svg.fonttype": "none",
    "svg.hashsalt": "ttabench", "figure.dpi": 100, "savefig.dpi": 300,
}  # fmt: skip
BLUE, ORANGE = "#0072B2", "#E69F00"
INK, GREY, PALE = "#222222", "#6E6E6E", "#EFEFEF"
OTHERS = "#C4C4C4"


@dataclass(frozen=True)
class Look:
    """How the curve of a method looks. No two looks differ in colour alone."""

    colour: str
    dashes: Literal["-", "--", "-."]
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        """What Matplotlib is told of a line."""
        return {
            "color": self.colour, "linestyle": self.dashes, "marker": self.marker, "linewidth": 0.9,
            "markersize": 2.6, "markeredgewidth": 0.6,
        }  # fmt: skip


SOURCES = tuple(Look("#000000", "--", marker) for marker in "xo^s")
"""The look of Source; of several weights of a network, each has one."""
# Okabe and Ito's colours, without the yellow, which is too pale for lines.
LOOKS = (
    Look("#0072B2", "-", "o"),
    Look("#D55E00", "-", "s"),
    Look("#009E73", "-", "^"),
    Look("#CC79A7", "-.", "D"),
    Look("#E69F00", "-.", "v"),
    Look("#56B4E9", "-.", "P"),
)


@contextmanager
def plot_style() -> Iterator[None]:
    """The settings of Matplotlib inside the block, independent of the user's."""
    with style.context(["default", {**STYLE, "font.family": families()}]):
        yield


def text_width(text: str, size: float = SIZE, weight: str = "normal") -> float:
    """Width of a line of text in inches."""
    return width_of_one_point(text, weight) * size


def folded(text: str, room: float) -> list[str]:
    """`text` in lines of at most `room` inches, broken at spaces; a longer word is shortened."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and text_width(f"{lines[-1]} {word}") <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(shortened(word, room, SIZE))
    return lines


def shortened(word: str, room: float, size: float) -> str:
    """`word`, or as much of it as fits into `room` inches."""
    if text_width(word, size) <= room:
        return word
    length = len(word)
    while length > 1 and text_width(f"{word[:length]}…", size) > room:
        length -= 1
    return f"{word[:length]}…"


def ink_on(face: Sequence[float]) -> str:
    """Dark or white, whichever is easier to read on the colour `face` (WCAG's relative luminance)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in face[:3]]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return INK if (luminance + 0.05) / 0.066 > 1.05 / (luminance + 0.05) else "white"
