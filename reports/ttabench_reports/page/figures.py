"""Plots of the tables as pictures inside the page."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ttabench_reports.shape import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 6
"""Tables that get plots, each about a second; the plots of all are files of ``report --format plots``."""


@dataclass(frozen=True)
class Picture:
    """A plot as a data URL. shows: what a reader who cannot see it needs to know."""

    title: str
    shows: str
    url: str


def figures(tables: Sequence[Table]) -> list[Picture]:
    """The plots of the first tables."""
    return [
        Picture(table.heading, shows, _url(draw(table)))
        for table in tables[:MOST]
        for shows, draw in _drawings().items()
    ]


def _drawings() -> dict[str, Callable[[Table], Figure]]:
    from ttabench_reports import plots

    return {"Mean accuracy of each method; the numbers are in the tables.": plots.bars}


def _url(figure: Figure) -> str:
    buffer = io.BytesIO()
    metadata = {"Software": None}
    figure.savefig(buffer, format="png", dpi=160, bbox_inches="tight", pad_inches=0.04, metadata=metadata)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
