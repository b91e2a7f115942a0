"""The paper's appendix tables: Source, each method and its Increase per architecture, by corruption."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ttabench_reports.evidence.places import places_of_table
from ttabench_reports.sheets import words
from ttabench_reports.sheets.sheet import Entry, Group, Head, Line, Sheet
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words import naming
from ttabench_reports.words.naming import MEAN_EXTRA


def sheets(table: Table, *, increase: bool = True) -> Iterator[Sheet]:
    """The main corruptions; then the extra ones, where they were swept. Without `increase`, no such rows."""
    name = f"per_corruption_{naming.slug(table.title)}"
    yield _sheet(table, name, table.main_columns, increase)
    if table.extra:
        yield _sheet(table, f"{name}_extra", (*table.extra, MEAN_EXTRA), increase)


def _sheet(table: Table, name: str, columns: Sequence[str], increase: bool) -> Sheet:
    rows = [row for row in table.rows if increase or row.kind != "increase"]
    groups = [
        Group(arch, list(_blocks(members, table, columns))) for arch, members in words.archs(rows).items()
    ]
    heads = [Head("", "l"), Head("Given", "l"), *(Head(naming.title(c), rotated=True) for c in columns)]
    measured = words.protocol(table, ", standard deviation below")
    caption = f"Accuracy (%) on {table.heading}. {measured}"
    footer = words.join(words.increase(rows), words.how_to_read([table]))
    blocks = math.ceil((len(columns) + 2) / 7)  # as many as stay readable in a column
    cuts = tuple(round(k * (len(columns) + 2) / blocks) for k in range(1, blocks))
    notes = dict(table.legend(columns, rows))
    return Sheet(name, caption, footer, heads, groups, notes=notes, cuts=cuts)


def _blocks(rows: Sequence[Row], table: Table, columns: Sequence[str]) -> Iterator[list[Line]]:
    """Source and online rows, offline rows, published rows."""
    blocks: dict[tuple[bool, bool], list[Line]] = {}
    for row in rows:
        kind = (row.kind == "published", row.offline and row.kind != "source")
        blocks.setdefault(kind, []).extend(_lines(row, table, columns))
    yield from (lines for lines in blocks.values() if lines)


def _lines(row: Row, table: Table, columns: Sequence[str]) -> Iterator[Line]:
    if row.kind == "increase":
        rises = [Entry(words.signed(row.printed(c)), small=True) for c in columns]
        if any(cell.text for cell in rises):
            yield [Entry("Increase", small=True), Entry(), *rises]
        return
    if row.kind == "published":
        numbers = [Entry(words.number(row.value(c))) for c in columns]
        if any(cell.text for cell in numbers):
            yield [words.label(row), Entry(), *numbers]
        return
    cells = [words.accuracy(row, c, places_of_table(table), spread=False) for c in columns]
    if all(row.words.get(c) == "n/a" for c in columns):  # the reason is a footnote of the row
        cells = [Entry("n/a", span=len(columns), left=True, small=True)]
    yield [words.label(row), words.short(row), *cells]
    if _varies(row, columns):
        spread = (row.sd.get(c, math.nan) for c in columns)
        texts = ("" if math.isnan(sd) else f"±{sd:.1f}" for sd in spread)
        yield [Entry(), Entry(), *(Entry(text, small=True) for text in texts)]


def _varies(row: Row, columns: Sequence[str]) -> bool:
    """Whether a row has a spread over seeds to print. Source, which no seed changes, has only zeros."""
    spreads = [sd for c in columns if not math.isnan(sd := row.sd.get(c, math.nan))]
    return any(round(sd, 1) for sd in spreads) if row.kind == "source" else bool(spreads)
