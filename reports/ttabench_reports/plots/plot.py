"""A plot: a figure, and what it shows."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.figure import Figure

from ttabench_reports.plots.style import plot_style


@dataclass(frozen=True)
class Drawing:
    """A figure that is drawn, but not written yet.

    kind     what it is, e.g. ``heatmap``.
    about    what it shows, e.g. ``digits-c, severity 5``; with `kind`, its file name.
    title    a heading, e.g. ``Accuracy by corruption: Digits-C, severity 5``.
    caption  plain text: what was measured, how, and what the marks mean.
    """

    kind: str
    about: str
    title: str
    caption: str
    figure: Figure


def render(drawing: Drawing, form: Literal["png", "pdf", "svg"]) -> bytes:
    """A drawing as PNG, PDF or SVG; the same drawing gives the same bytes."""
    metadata: dict[str, dict[str, Any]] = {
        "pdf": {"Title": drawing.title, "CreationDate": None, "Creator": None, "Producer": None},
        "png": {"Title": drawing.title, "Description": drawing.caption, "Software": None},
        "svg": {"Title": drawing.title, "Date": None, "Creator": None},
    }
    buffer = io.BytesIO()
    with plot_style():
        drawing.figure.savefig(buffer, format=form, metadata=metadata[form])
    return buffer.getvalue()
