"""Plots as pictures inside the page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice

from ttabench_reports.evidence.report import Report
from ttabench_reports.page.render import packed

MOST = 24
"""Plots on a page; ``report --format plots`` writes all."""
KINDS = ("bars", "severity", "cost", "stream", "ranks", "reliability")
"""Heat maps show no more than the tables."""


@dataclass(frozen=True)
class Picture:
    """A plot. shows: what a reader who cannot see it needs to know; drawing: a packed SVG."""

    title: str
    shows: str
    drawing: str


def figures(report: Report) -> tuple[list[Picture], bool]:
    """The first plots, and whether there are more."""
    from ttabench_reports import plots

    drawings = plots.drawings(report, KINDS)
    pictures = [
        Picture(drawing.title, drawing.caption, packed(_plain(plots.render(drawing, "svg"))))
        for drawing in islice(drawings, MOST)
    ]
    return pictures, next(drawings, None) is not None


def _plain(picture: bytes) -> str:
    """An SVG without comments and metadata, coordinates to a tenth of a point; its texts stay as they are.

    It is sharp at every size, and has a fraction of the bytes of pixels.
    """
    text = re.sub(
        r"<!--.*?-->|<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>",
        "",
        picture.decode(),
        flags=re.DOTALL,
    )
    text = re.sub(r">\s+<", "><", text)
    return re.sub(r"<[^>]+>", lambda tag: re.sub(r"\d+\.\d{2,}", _to_a_tenth, tag[0]), text)


def _to_a_tenth(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}"
