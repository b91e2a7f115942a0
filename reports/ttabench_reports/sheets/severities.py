"""Means over the corruptions by severity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ttabench_reports import naming
from ttabench_reports.report import Report
from ttabench_reports.shape import Table
from ttabench_reports.sheets import words
from ttabench_reports.sheets.sheet import Cell, Group, Head, Line, Sheet
from ttabench_reports.sheets.table_notes import NAMES, TableNotes, side_by_side


def severities(report: Report) -> Iterator[Sheet]:
    """Means over the corruptions by severity, where several were swept."""
    families: dict[tuple[str, str], list[Table]] = {}
    for table in report.tables:
        families.setdefault((table.key["dataset"], table.difference), []).append(table)
    for (dataset, difference), tables in families.items():
        if len(tables) > 1 and len({table.key["severity"] for table in tables}) == len(tables):
            yield _severity(dataset, difference, sorted(tables, key=lambda table: table.key["severity"]))


def _severity(dataset: str, difference: str, tables: Sequence[Table]) -> Sheet:
    notes = TableNotes()
    blocks: dict[str, list[Line]] = {}
    for arch, rows in side_by_side(tables):
        block = blocks.setdefault(arch, [])
        cells = [
            notes.accuracy(row, table) if row else Cell("–") for row, table in zip(rows, tables, strict=True)
        ]
        block.append([*notes.names([row for row in rows if row], model=not block), *cells])
    heads = [*NAMES]
    heads += [Head(f"Severity {table.key['severity']}") for table in tables]
    in_brackets = f" ({difference})" if difference else ""
    caption = words.join(
        f"Mean accuracy (%) over the corruptions of {naming.dataset(dataset)}{in_brackets} by severity.",
        words.measured(tables),
    )
    footer = words.join(words.ranking(tables), words.GIVEN)
    name = f"severity_{naming.slug(dataset + in_brackets)}"
    return Sheet(
        name, caption, footer, heads, [Group("", list(blocks.values()))], labels=2, notes=notes.texts
    )
