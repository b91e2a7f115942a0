"""The plots of a report, as PNG and PDF, as wide as a column of a paper.

The same cells give the same bytes. No meaning is given by colour alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pandas as pd

from ttabench_reports.evidence.report import Report
from ttabench_reports.formats.files import write_bytes, write_text
from ttabench_reports.plots.bars import all_bars
from ttabench_reports.plots.costs import cost_plots
from ttabench_reports.plots.document import document
from ttabench_reports.plots.heatmap import heatmaps
from ttabench_reports.plots.plot import Drawing, render
from ttabench_reports.plots.ranks import rank_diagrams
from ttabench_reports.plots.reliability import reliability_diagrams
from ttabench_reports.plots.severities import severity_curves, unknown_curves
from ttabench_reports.plots.streams import stream_curves
from ttabench_reports.plots.style import plot_style
from ttabench_reports.words import naming

__all__ = ["DRAWN", "Drawing", "drawings", "render", "write"]

DRAWN: dict[str, Callable[[Report], Iterator[Drawing]]] = {
    "heatmap": heatmaps,
    "bars": all_bars,
    "severity": severity_curves,
    "cost": cost_plots,
    "stream": stream_curves,
    "ranks": rank_diagrams,
    "reliability": reliability_diagrams,
    "unknown": unknown_curves,
}
"""Kind of plot → what draws all plots of this kind that a report has the numbers for."""


def write(cells: pd.DataFrame, to: Path, *, report: Report | None = None) -> list[Path]:
    """All plots of `cells` in the folder `to`, and ``plots.tex`` with all of them; their paths.

    Raises UserError where `to` cannot be written.
    """
    paths: list[Path] = []
    captions: dict[str, str] = {}
    for drawing in drawings(report or Report(cells)):
        name = _free(f"{drawing.kind}_{naming.slug(drawing.about)}", captions)
        captions[name] = drawing.caption
        paths += [write_bytes(Path(to) / f"{name}.{form}", render(drawing, form)) for form in ("png", "pdf")]
    return [*paths, write_text(Path(to) / "plots.tex", document(captions))]


def drawings(report: Report, kinds: Collection[str] = DRAWN) -> Iterator[Drawing]:
    """The plots of a report, each drawn when it is asked for. `kinds` are keys of :data:`DRAWN`."""
    for kind in kinds:
        made = DRAWN[kind](report)
        while True:
            with plot_style():  # only while drawing: the caller has settings of its own
                drawing = next(made, None)
            if drawing is None:
                break
            yield drawing


def _free(name: str, taken: Collection[str]) -> str:
    """`name`, or with a number behind it if it is taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free
