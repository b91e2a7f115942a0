"""Plots as pictures inside the page."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from itertools import islice

from ttabench_reports.report import Report

MOST = 24
"""Plots on a page; ``report --format plots`` writes all."""
KINDS = (
    "bars",
    "severity",
    "cost",
    "stream",
    "ranks",
    "reliability",
)  # heat maps show no more than the tables


@dataclass(frozen=True)
class Picture:
    """A plot as a data URL. shows: what a reader who cannot see it needs to know."""

    title: str
    shows: str
    url: str


def figures(report: Report) -> tuple[list[Picture], bool]:
    """The first plots, and whether there are more."""
    from ttabench_reports import plots

    drawings = plots.drawings(report, KINDS)
    pictures = [
        Picture(drawing.title, drawing.caption, _url(plots.render(drawing, "png")))
        for drawing in islice(drawings, MOST)
    ]
    return pictures, next(drawings, None) is not None


def _url(picture: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"
