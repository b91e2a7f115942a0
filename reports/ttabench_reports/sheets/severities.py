"""Means over the corruptions by severity."""

from __future__ import annotations

from collections.abc import Iterator

from ttabench_reports.evidence.report import Report
from ttabench_reports.sheets import words
from ttabench_reports.sheets.sheet import Group, Head, Line, Sheet
from ttabench_reports.sheets.table_notes import NAMES, TableNotes, side_by_side
from ttabench_reports.tables.families import Family, families
from ttabench_reports.words import naming


def severities(report: Report) -> Iterator[Sheet]:
    """Means over the corruptions by severity, where several were swept."""
    for family in families(report.tables):
        if len(family.tables) > 1:
            yield _severity(family)


def _severity(family: Family) -> Sheet:
    tables, notes = family.tables, TableNotes()
    blocks: dict[str, list[Line]] = {}
    for arch, rows in side_by_side(tables):
        block = blocks.setdefault(arch, [])
        measured = [row for row in rows if row]
        cells = [
            notes.accuracy(row, table, line=measured) if row else words.known("")
            for row, table in zip(rows, tables, strict=True)
        ]
        block.append([*notes.names(measured, model=not block), *cells])
    heads = [*NAMES, *(Head(f"Severity {table.key['severity']}") for table in tables)]
    caption = words.join(
        f"Mean accuracy (%) {words.over(tables)} of {family.heading} by severity.", words.measured(tables)
    )
    name = f"severity_{naming.slug(family.title)}"
    parts = [Group("", list(blocks.values()))]
    footer = words.how_to_read(tables)
    sheet = Sheet(name, caption, footer, heads, parts, labels=2, notes=notes.texts, main=True)
    return words.with_dashes_said(sheet)
