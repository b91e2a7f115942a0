"""What the tables in a sheet share: footnotes, and lines with a row of each table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ttabench_reports.evidence.places import places_of_table, untested
from ttabench_reports.sheets import words
from ttabench_reports.sheets.sheet import Entry, Group, Head, Line
from ttabench_reports.tables.families import across
from ttabench_reports.tables.table import LABEL, LEGEND, NOT_HELD_OUT, OFFLINE, Row, Table, legend_of
from ttabench_reports.words import naming
from ttabench_reports.words.naming import MEAN
from ttabench_reports.words.notes import Notes

NAMES = (Head("Model", "l"), Head("Method", "l"), Head("Given", "l"))
"""The headings of :meth:`TableNotes.names`."""
UNTESTED = "not tested against the best: other seeds or images, or it is not stored which images were right"


class TableNotes:
    """Footnotes of several tables in one sheet: flags as they are, reasons under letters of their own."""

    def __init__(self) -> None:
        self._notes = Notes()
        self._legend = dict(LEGEND)

    @property
    def texts(self) -> dict[str, str]:
        return self._legend | self._notes.texts

    def of(self, rows: Iterable[Row]) -> list[tuple[str, str]]:
        """(mark, meaning) of the flags that these rows carry, and of all letters."""
        return [*legend_of(rows).items(), *self._notes.texts.items()]

    def mark(self, text: str) -> str:
        """The letter of a footnote."""
        return self._notes.letter(text)

    def names(self, rows: Sequence[Row], *, model: bool) -> list[Entry]:
        """Architecture (if `model`), method, and what it was given, for the rows of a line.

        The method has the marks that all rows have.
        """
        given = [words.short(row) for row in rows]
        texts = "; ".join(dict.fromkeys(cell.text for cell in given))  # data sets have their own numbers
        arch = Entry(naming.arch(rows[0].arch) if model else "")
        method = Entry(rows[0].plain_name, marks=self._shared(rows))
        return [arch, method, given[0]._replace(text=texts)]

    def accuracy(self, row: Row, table: Table, *, ranked: bool = True, line: Sequence[Row] = ()) -> Entry:
        """The mean of a row. In a `line` of several, with the marks of the row that not all of them have."""
        cell = words.accuracy(row, MEAN, places_of_table(table) if ranked else {}, spread=True)
        shared = self._shared(line or [row])
        of_mean = self.of_mean(row, table) if ranked else self.letters(row, MEAN)
        marks = "".join(mark for mark in self.of_row(row) if mark not in shared) + of_mean
        return cell if cell.marks == marks else cell._replace(marks=marks)

    def of_row(self, row: Row) -> str:
        """The marks that are about a whole row."""
        legend = legend_of([row])
        if legend.get(OFFLINE) == NOT_HELD_OUT:  # which is also true of the rows without held-out images
            self._legend[OFFLINE] = NOT_HELD_OUT
        return "".join(legend) + self.letters(row, LABEL)

    def of_mean(self, row: Row, table: Table) -> str:
        """The letters that are about its mean, where that is ranked."""
        return self.letters(row, MEAN) + (self.mark(UNTESTED) if id(row) in untested(table) else "")

    def _shared(self, rows: Sequence[Row]) -> str:
        marks = [self.of_row(row) for row in rows]
        return "".join(mark for mark in marks[0] if all(mark in others for others in marks))

    def letters(self, row: Row, *columns: str) -> str:
        """The letters of what is remarked of a row in these columns."""
        texts = (text for column in columns for text in row.remarks.get(column, ()))
        return "".join(sorted({self.mark(text) for text in texts}))


def groups(
    tables: Sequence[Table], line: Callable[[Table, Row, bool], Line],
    chosen: Callable[[Sequence[Row]], Sequence[Row]] = list,
) -> list[Group]:  # fmt: skip
    """A group for each table, in it a block for each architecture.

    line    what a row prints; it is told whether the row is the first of its block.
    chosen  those of the measured rows of an architecture that have a line.
    """
    return [
        Group(table.heading, [
            [line(table, row, not number) for number, row in enumerate(chosen(rows))]
            for rows in words.archs(table.measured_rows).values()
        ])
        for table in tables
    ]  # fmt: skip


def side_by_side(
    tables: Sequence[Table], notes: TableNotes, cells: Callable[[Table, Row, Sequence[Row]], Line], width: int
) -> Group:
    """A line for each method on each architecture, with its rows of all tables; a block each architecture.

    cells  what a row of a table prints, beside all rows of its line, in `width` columns.
    """
    blocks: dict[str, list[Line]] = {}
    lines = across(tables, naming.without_dataset)
    for (arch, _), rows in sorted(lines.items(), key=lambda item: naming.arch_key(item[0][0])):
        block = blocks.setdefault(arch, [])
        measured = list(rows.values())
        line = notes.names(measured, model=not block)
        for place, table in enumerate(tables):
            line += cells(table, rows[place], measured) if place in rows else [words.known("")] * width
        block.append(line)
    return Group("", list(blocks.values()))
