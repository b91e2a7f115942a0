"""Means over the corruptions by severity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ttabench_reports import naming
from ttabench_reports.report import Report
from ttabench_reports.shape import Table
from ttabench_reports.sheets import words
from ttabench_reports.sheets.sheet import Cell, Group, Head, Line, Sheet
from ttabench_reports.sheets.table_notes import TableNotes, measured_rows


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
    names = [{(row.arch, row.method): row for row in measured_rows(table)} for table in tables]
    keys = list(dict.fromkeys(key for rows in names for key in rows))
    blocks: dict[str, list[Line]] = {}
    for arch, method in sorted(keys, key=lambda key: naming.arch_key(key[0])):
        block = blocks.setdefault(arch, [])
        rows = [rows.get((arch, method)) for rows in names]
        first = next(row for row in rows if row)
        cells = [
            notes.accuracy(row, table) if row else Cell("–") for row, table in zip(rows, tables, strict=True)
        ]
        head = Cell(naming.arch(arch) if not block else "")
        block.append([head, notes.label(*filter(None, rows)), words.short(first), *cells])
    heads = [Head("Model", "l"), Head("Method", "l"), Head("Given", "l")]
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
