"""A table for the terminal: caption, columns as wide as there is room, footnotes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich import box
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.console import Group as Renderables
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from ttabench.errors import NothingToReport
from ttabench_reports.evidence.report import Report
from ttabench_reports.sheets.costs import cost
from ttabench_reports.sheets.sheet import Entry, Sheet, by_column
from ttabench_reports.words import naming

T = TypeVar("T")
STYLES = {"best": "bold", "second": "underline", "": ""}


def costs(report: Report) -> RenderableType:
    """The table of costs. Raises NothingToReport where no cell has a cost."""
    sheet = cost(report)
    if sheet is None:
        if not any(row.about["measured"] for table in report.tables for row in table.measured_rows):
            raise NothingToReport("no cell has a cost: none has a number; ttabench status DIR says why.")
        raise NothingToReport("no cell has a cost: an earlier version made these results; sweep again.")
    return render(sheet)


def render(sheet: Sheet) -> RenderableType:
    """Superscript letters are Unicode; bold and underlined are as on paper."""
    notes = [Text(f"{naming.raised(mark)} {text}") for mark, text in sheet.used_notes]
    return Renderables(
        Text(sheet.caption, style="bold"), FittedSheet(sheet), *notes, Text(sheet.footer, style="dim")
    )


@dataclass(frozen=True)
class FittedSheet:
    """The table; if the terminal is too narrow, its columns in parts below each other, each with labels."""

    sheet: Sheet

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        numbers = range(self.sheet.labels, len(self.sheet.heads))
        yield from below_each_other(numbers, self.grid, console, options)

    def grid(self, numbers: Sequence[int]) -> Grid:
        """The label columns, and these columns of numbers."""
        sheet, chosen = self.sheet, [*range(self.sheet.labels), *numbers]
        grid = Grid(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        for n in chosen:
            head = sheet.heads[n]
            justify: JustifyMethod = "right" if head.align == "r" else "left"
            grid.add_column(Text(head.text), justify=justify, overflow="fold", no_wrap=n >= sheet.labels)
        for group in sheet.groups:
            if group.heading:
                grid.add_row(Text(group.heading, style="bold"), *[""] * (len(chosen) - 1))
            for line in group.lines:
                texts = [*map(_text, by_column(line))]
                grid.add_row(*[texts[n] for n in chosen])
            grid.add_section()
        return grid


def below_each_other(
    columns: Sequence[T], grid: Callable[[Sequence[T]], Grid], console: Console, options: ConsoleOptions
) -> list[Grid]:
    """Grids with a part of the columns each: as few as the width of the terminal allows."""
    for parts in range(1, len(columns) + 1):
        size = math.ceil(len(columns) / parts)
        grids = [grid(columns[k : k + size]) for k in range(0, len(columns), size)]
        if all(fits(one, console, options) for one in grids):
            break
    return grids


def fits(grid: Grid, console: Console, options: ConsoleOptions) -> bool:
    """Whether a grid is no wider than the terminal."""
    unlimited = options.update(max_width=10_000)
    return Measurement.get(console, unlimited, grid).maximum <= options.max_width


def _text(cell: Entry) -> Text:
    return Text(cell.text, STYLES[cell.place]).append(cell.after + naming.raised(cell.marks))
