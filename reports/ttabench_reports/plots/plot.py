"""A plot: a figure, what it shows, and its files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttabench_reports.formats.files import write_bytes
from ttabench_reports.plots.style import plot_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("png", "pdf", "svg")


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


@dataclass(frozen=True)
class Plot:
    """A plot that is written.

    name   of its files, without suffix.
    paths  its files, in the order of the formats that were asked for.
    """

    kind: str
    name: str
    title: str
    caption: str
    paths: tuple[Path, ...]


def save(drawing: Drawing, folder: Path, name: str, formats: Sequence[str]) -> Plot:
    """Write the files of a drawing. The same drawing gives the same bytes.

    Raises UserError where `folder` cannot be written, ValueError for a format outside :data:`KINDS`.
    """
    paths = [write_bytes(folder / f"{name}.{kind}", render(drawing, kind)) for kind in formats]
    return Plot(drawing.kind, name, drawing.title, drawing.caption, tuple(paths))


def render(drawing: Drawing, kind: str) -> bytes:
    """A drawing as PNG, PDF or SVG; the same drawing gives the same bytes. Raises ValueError."""
    metadata: dict[str, dict[str, Any]] = {
        "pdf": {"Title": drawing.title, "CreationDate": None, "Creator": None, "Producer": None},
        "png": {"Title": drawing.title, "Description": drawing.caption, "Software": None},
        "svg": {"Title": drawing.title, "Date": None, "Creator": None},
    }
    if kind not in metadata:
        raise ValueError(f"format is {kind!r}; expected one of {', '.join(KINDS)}")
    buffer = io.BytesIO()
    with plot_style():
        drawing.figure.savefig(buffer, format=kind, metadata=metadata[kind])
    return buffer.getvalue()
