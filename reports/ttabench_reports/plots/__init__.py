"""The plots of a report, as PNG and PDF, as wide as a column of a paper.

The same cells give the same bytes. No meaning is given by colour alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pandas as pd

from ttabench_reports.evidence.report import Report
from ttabench_reports.formats.files import write_text
from ttabench_reports.plots.bars import all_bars
from ttabench_reports.plots.costs import cost_plots
from ttabench_reports.plots.document import document
from ttabench_reports.plots.heatmap import heatmaps
from ttabench_reports.plots.plot import Drawing, Plot, render, save
from ttabench_reports.plots.ranks import rank_diagrams
from ttabench_reports.plots.reliability import reliability_diagrams
from ttabench_reports.plots.severities import severity_curves
from ttabench_reports.plots.streams import stream_curves
from ttabench_reports.plots.style import plot_style
from ttabench_reports.plots.unknown import unknown_curves
from ttabench_reports.words import naming

__all__ = ["DRAWN", "Drawing", "Plot", "draw_all", "drawings", "render", "write"]

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
    """All plots of `cells` in the folder `to`, and ``plots.tex`` with all of them; their paths."""
    made = draw_all(report or Report(cells), Path(to))
    paths = [path for plot in made for path in plot.paths]
    return [*paths, write_text(Path(to) / "plots.tex", document(made))]


def draw_all(
    report: Report, folder: Path, formats: Sequence[str] = ("png", "pdf"), kinds: Sequence[str] = ()
) -> list[Plot]:
    """Draw and write the plots of a report.

    formats  some of png, pdf, svg.
    kinds    keys of :data:`DRAWN`; () = all.

    Raises UserError where `folder` cannot be written.
    """
    plots: list[Plot] = []
    taken: set[str] = set()
    for drawing in drawings(report, kinds):
        name = _free(f"{drawing.kind}_{naming.slug(drawing.about)}", taken)
        plots.append(save(drawing, Path(folder), name, formats))
    return plots


def drawings(report: Report, kinds: Sequence[str] = ()) -> Iterator[Drawing]:
    """The plots of a report, each drawn when it is asked for. `kinds` as in :func:`draw_all`."""
    for kind in kinds or DRAWN:
        made = DRAWN[kind](report)
        while True:
            with plot_style():  # only while drawing: the caller has settings of its own
                drawing = next(made, None)
            if drawing is None:
                break
            yield drawing


def _free(name: str, taken: set[str]) -> str:
    """`name`, or with a number behind it if it is taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    taken.add(free)
    return free
