"""Footnotes that the tables in a sheet share."""

from __future__ import annotations

from dataclasses import replace

from ttabench_reports.naming import MEAN
from ttabench_reports.notes import Notes
from ttabench_reports.shape import LABEL, LEGEND, Row, Table
from ttabench_reports.sheets import words
from ttabench_reports.sheets.sheet import Cell


class TableNotes:
    """Footnotes of several tables in one sheet: flags as they are, reasons under letters of their own."""

    def __init__(self) -> None:
        self._notes = Notes()
        self._legend = LEGEND

    @property
    def texts(self) -> dict[str, str]:
        letters = [chr(ord("a") + k) for k in range(len(self._notes.kinds))]
        return {**self._legend, **{letter: self._notes.text(letter) for letter in letters}}

    def mark(self, text: str) -> str:
        """The letter of a footnote."""
        return self._notes.letter(text)

    def label(self, *rows: Row) -> Cell:
        """The name of a method, with the marks of its rows."""
        flags = [mark for mark in self._legend if any(mark in row.flags for row in rows)]
        letters = {letter for row in rows for letter in self._raised(row, LABEL)}
        return Cell(rows[0].name, marks="".join([*flags, *sorted(letters)]))

    def accuracy(self, row: Row, table: Table, *, ranked: bool = True) -> Cell:
        cell = words.accuracy(row, MEAN, table.places if ranked else {}, spread=True)
        return replace(cell, marks=self._raised(row, MEAN))

    def _raised(self, row: Row, column: str) -> str:
        return "".join(sorted({self._notes.letter(text) for text in row.remarks.get(column, ())}))


def measured_rows(table: Table) -> list[Row]:
    return [row for row in table.rows if row.measured]
