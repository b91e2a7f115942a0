"""The per-corruption tables of the page: numbers with shades, marks and footnotes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ttabench_reports.evidence.given import given
from ttabench_reports.evidence.places import places_of_table
from ttabench_reports.evidence.report import Report
from ttabench_reports.page.overview import floor, source_data
from ttabench_reports.page.render import exact
from ttabench_reports.sheets import words
from ttabench_reports.tables.table import LABEL, Row, Table
from ttabench_reports.words import naming
from ttabench_reports.words.naming import MEAN, MEAN_EXTRA

SHADES = 10


@dataclass(frozen=True)
class PageCell:
    """A number or the word in its place: exact and printed; shade 0 … 10; points above Source."""

    value: str
    text: str
    marks: str = ""
    classes: str = ""
    rise: str = ""


@dataclass(frozen=True)
class PageRow:
    row: Row
    number: int | None  # None: published, nothing more is known
    marks: str
    given: str
    mode: str
    source: str
    entries: tuple[PageCell, ...]


@dataclass(frozen=True)
class Section:
    """One dataset at one severity."""

    anchor: str
    table: Table
    columns: tuple[str, ...]
    heads: tuple[tuple[str, str, bool], ...]
    groups: tuple[tuple[str, str, tuple[PageRow, ...]], ...]
    legend: tuple[tuple[str, str], ...]
    increase: bool
    how: str


def section(table: Table, report: Report, *, increase: bool) -> Section:
    columns = (*table.main_columns, *table.extra, *([MEAN_EXTRA] if table.extra else ()))
    rises = {id(row.of): row for row in table.rows if row.of is not None} if increase else {}
    low = floor(table)
    groups = tuple(
        (arch, naming.arch(arch), tuple(_lines(rows, table, columns, rises, low, report)))
        for arch, rows in table.archs().items()
    )
    shown = [row for row in table.rows if row.kind != "increase"]
    heads = tuple((c, naming.title(c), c in (MEAN, MEAN_EXTRA)) for c in columns)
    how = words.join(words.ranking([table]), words.GIVEN)
    legend = tuple(table.legend(columns, shown))
    return Section(
        f"table-{naming.slug(table.title)}", table, columns, heads, groups, legend, bool(rises), how
    )


def _lines(
    rows: list[Row], table: Table, columns: tuple[str, ...], rises: dict[int, Row], low: float,
    report: Report,
) -> Iterator[PageRow]:  # fmt: skip
    for row in rows:
        if row.kind == "increase":
            continue
        entries = tuple(_entry(row, column, table, rises.get(id(row)), low) for column in columns)
        marks = row.flags + row.letters.get(LABEL, "")
        if row.kind == "published":
            yield PageRow(row, None, marks, "", "published", "", entries)
        else:
            had = given(row.about)
            number = report.numbers[id(row)]
            yield PageRow(row, number, marks, had.short, had.mode, source_data(had), entries)


def _entry(row: Row, column: str, table: Table, rise: Row | None, low: float) -> PageCell:
    value = row.value(column)
    marks = row.letters.get(column, "")
    mean_class = "m" if column in (MEAN, MEAN_EXTRA) else ""
    if math.isnan(value):
        return PageCell("", row.words.get(column, ""), marks, f"word {mean_class}".strip())
    shade = round(SHADES * max(value - low, 0) / (100 - low))
    place = places_of_table(table).get((id(row), column), "")
    classes = " ".join(filter(None, (f"h{shade}", place, mean_class)))
    points = words.signed(rise.printed(column)) if rise else ""
    return PageCell(exact(value), words.number(value), marks, classes, points)
