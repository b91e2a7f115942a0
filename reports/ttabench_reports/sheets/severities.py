"""Means over the corruptions by severity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ttabench_reports.evidence.report import Report
from ttabench_reports.sheets import words
from ttabench_reports.sheets.sheet import Head, Line, Sheet
from ttabench_reports.sheets.table_notes import NAMES, TableNotes, side_by_side
from ttabench_reports.tables.families import Family, families
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words import naming


def severities(report: Report) -> Iterator[Sheet]:
    """Means over the corruptions by severity, where several were swept."""
    for family in families(report.tables):
        if len(family.tables) > 1:
            yield _severity(family)


def _severity(family: Family) -> Sheet:
    tables, notes = family.tables, TableNotes()

    def cells(table: Table, row: Row, line: Sequence[Row]) -> Line:
        return [notes.accuracy(row, table, line=line)]

    parts = [side_by_side(tables, notes, cells, 1)]
    heads = [*NAMES, *(Head(f"Severity {table.key['severity']}") for table in tables)]
    caption = words.join(
        f"Mean accuracy (%) {words.over(tables)} of {family.heading} by severity.", words.measured(tables)
    )
    name = f"severity_{naming.slug(family.title)}"
    footer = words.how_to_read(tables)
    sheet = Sheet(name, caption, footer, heads, parts, labels=2, notes=notes.texts, main=True)
    return words.with_dashes_said(sheet)
