"""One HTML page with tables, plots, protocol cards and gaps. It needs no network and no other file."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ttabench.provenance.staleness import attested_note
from ttabench_reports.evidence.report import Report
from ttabench_reports.formats.files import write_text
from ttabench_reports.page import details, figures, gaps, overview, per_corruption, protocol_cards, render
from ttabench_reports.sheets import words
from ttabench_reports.sheets.footnotes import TableNotes

__all__ = ["NAME", "html", "write"]

NAME = "results.html"


def write(
    cells: pd.DataFrame, to: Path, *, increase: bool = True, report: Report | None = None
) -> list[Path]:
    """``results.html`` in the folder `to`; its path. Without `increase`, tables show accuracies only."""
    report = report or Report(cells)
    return [write_text(Path(to) / NAME, html(report, increase=increase))]


def html(report: Report, *, increase: bool = True, back: str = "", name: str = "") -> str:
    """The page as text; the same report gives the same text.

    back  address of a page to link to, e.g. of a leaderboard; "" for none.
    name  what the results are called; "" for the names of their datasets.
    """
    notes = TableNotes()
    lines = overview.lines(report, notes)
    pictures, left_out = figures.figures(report)
    troubles = gaps.gaps(report.kept, report.cells.attrs)
    return render.template(
        "page.html.j2",
        title=name or overview.title(report.tables),
        back=back,
        counts=overview.counts(report.kept, troubles),
        filters=overview.filters(lines),
        several=overview.several(lines),
        lines=lines,
        marks=notes.of(line.row for line in lines),
        how=words.how_to_read(report.tables),
        sections=[per_corruption.section(table, report, increase=increase) for table in report.tables],
        figures=pictures,
        left_out=left_out,
        cards=protocol_cards.cards(report),
        attested=attested_note(report.kept.get("attested", ())),
        gaps=troubles,
        data=details.details(report),
    )
