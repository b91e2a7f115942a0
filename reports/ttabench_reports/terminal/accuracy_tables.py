"""Tables of accuracies for the terminal, as wide as it allows: readable without colour, 80 columns or 120."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table as Grid
from rich.text import Text

from ttabench.errors import counted
from ttabench_reports.cells.grouped import grouped
from ttabench_reports.cells.set_by_users import SET, set_by_users
from ttabench_reports.evidence.given import Given, given
from ttabench_reports.evidence.places import places_of_table
from ttabench_reports.sheets import words
from ttabench_reports.sheets.footnotes import TableNotes
from ttabench_reports.tables.build import tables
from ttabench_reports.tables.table import LABEL, Row, Table
from ttabench_reports.terminal.sheets import STYLES, below_each_other, fits
from ttabench_reports.words import naming
from ttabench_reports.words.naming import MEAN, MEAN_EXTRA

if TYPE_CHECKING:
    from ttabench.store import Store

MOST_ROWS = 40
DIFFERENCES = "Increase: points above Source. Drop: points below clean images. From the printed numbers."
# (decimals of accuracies, decimals of increases) per corruption, from wide to narrow; means keep theirs.
PRECISIONS = ((1, 1), (1, 0), (0, 0))


def render(cells: pd.DataFrame, store: Store | None = None) -> RenderableType:
    """What a sweep shows at its end: per-corruption tables, or where those are many, only their means.

    store   where the cells are; its sweeps say which settings were asked for, so that names have no others.
    """
    if store is not None:
        cells = cells.copy(deep=False)
        cells.attrs[SET] = set_by_users(store.root, store.sweep())
    built = tables(cells)
    if sum(len(table.rows) for table in built) > MOST_ROWS:
        return Group(*_means(built))
    return Group(*(part for table in built for part in _parts(table)))


def _means(built: Sequence[Table]) -> Iterator[RenderableType]:
    """The means of all rows, and below them what their marks mean and how they were measured."""
    notes = TableNotes()
    yield means(built, notes)
    rows = [row for table in built for row in table.measured_rows]
    for mark, text in notes.of(rows):
        yield Text(f"{naming.raised(mark)} {text}")
    how = words.measured(built, exceptions=True)  # the table of protocols is not printed here
    yield Text(f"{words.join(how, DIFFERENCES, words.remarks(built))}\n", style="dim")


def _parts(table: Table) -> Iterator[RenderableType]:
    yield Text(f"{table.heading}: accuracy in %", style="bold")
    yield FittedTable(table, table.main_columns)
    if table.extra:
        yield FittedTable(table, (*table.extra, MEAN_EXTRA))
    for mark, text in table.legend((*table.main_columns, *table.extra, MEAN_EXTRA)):
        yield Text(f"{naming.raised(mark)} {text}")
    yield Text(f"{table.measured} {_had(table)}\n", style="dim")


def _had(table: Table) -> str:
    """What methods were given of the source data, and offline ones of the test images."""
    known = [
        (row.name, given(row.about)) for row in table.rows if row.kind == "method" and row.about["measured"]
    ]
    saw = grouped((_saw(facts), name) for name, facts in known)
    texts = [f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in saw.items() if text]
    tuned = dict.fromkeys(name for name, facts in known if facts.tuned)
    official = dict.fromkeys(name for name, facts in known if facts.code)
    had = (
        f"What methods saw in addition to one pass over the test images: {'; '.join(texts)}."
        if texts
        else "No method saw source data, or the test images more than once."
    )
    chosen = (
        f"Settings were chosen on the extra corruptions for: {', '.join(tuned)}."
        if tuned
        else "No settings were chosen on the extra corruptions."
    )
    code = f" Official code, unchanged: {', '.join(official)}." if official else ""
    return f"{had} {chosen}{code}"


def _saw(facts: Given) -> str:
    """``features of 2000 source images, 10 epochs``; "" for one pass over the test images alone."""
    source = facts.source if facts.source != "nothing" else ""
    return ", ".join(filter(None, (source, counted(facts.epochs, "epoch") if facts.epochs else "")))


@dataclass(frozen=True)
class FittedTable:
    """One per-corruption table with as many decimals as the terminal has room for."""

    table: Table
    columns: tuple[str, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for precision in PRECISIONS:
            if fits(whole := self.grid(self.columns, precision), console, options):
                yield whole
                return
        yield from below_each_other(self.columns, self.grid, console, options)

    def grid(self, columns: Sequence[str], precision: tuple[int, int] = PRECISIONS[0]) -> Grid:
        grid = Grid(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
        grid.add_column("", overflow="fold", max_width=30)
        heads = dict(zip(self.table.columns, naming.shorts(self.table.columns), strict=True))
        for column in columns:
            grid.add_column(Text(heads[column]), justify="right", no_wrap=True)
        means = columns if self.table.natural else (MEAN, MEAN_EXTRA)
        for arch, rows in self.table.archs().items():
            grid.add_row(Text(naming.arch(arch), style="bold"), *[""] * len(columns))
            for row in rows:
                rise = row.kind == "increase"
                label = "  Increase" if rise else f" {row.plain_name}{row.flags}{row.raised(LABEL)}"
                places = [places_of_table(self.table).get((id(row), c), "") for c in columns]
                texts = [
                    Text(_text(row, c, *precision, mean=c in means), STYLES[place])
                    for c, place in zip(columns, places, strict=True)
                ]
                grid.add_row(Text(label), *texts, style="dim" if rise else "")
            grid.add_section()
        return grid


def _text(row: Row, column: str, accuracy: int, increase: int, *, mean: bool) -> str:
    """`mean`: whether the number has its decimal at any width, and its spread behind it."""
    value = row.value(column)
    if mean:
        accuracy = increase = 1
    if math.isnan(value):
        word = row.words.get(column, "")
        return ("fail" if word == "failed" else word) + row.raised(column)
    if row.kind == "increase":
        return naming.points(row.printed(column, accuracy), increase)
    spread = row.spread(column) if mean else ""
    return naming.number(value, accuracy) + spread + row.raised(column)


def means(built: Sequence[Table], notes: TableNotes) -> Grid:
    """One line per dataset × severity × architecture × method; `notes` gets the footnotes."""
    grid = Grid(box=box.SIMPLE_HEAD, title="Means over the corruptions, in %", title_justify="left")
    for name in ("table", "arch", "method"):
        grid.add_column(name, overflow="fold")
    for name in ("accuracy", "increase", "drop"):
        grid.add_column(name, justify="right", overflow="fold")
    for number, table in enumerate(built):
        if number:
            grid.add_section()
        dataset = str(table.key["dataset"])
        heading, arch = naming.dataset(dataset) + table.title.removeprefix(dataset), ""
        for row in table.measured_rows:
            network = "" if row.arch == arch else naming.arch(row.arch)
            label = row.name + row.flags + naming.raised(notes.letters(row, LABEL, MEAN))
            grid.add_row(Text(heading), Text(network), Text(label), *_mean(row))
            heading, arch = "", row.arch
    return grid


def _mean(row: Row) -> tuple[str, str, str]:
    """The mean of a row, its increase and its drop; these are differences of the printed numbers."""
    mean, rise, clean = row.printed(MEAN), row.printed_rise, row.about["clean_accuracy"]
    if math.isnan(mean):
        return row.words.get(MEAN, ""), "", ""
    increase = "" if math.isnan(rise) else naming.points(rise)
    drop = "" if math.isnan(clean) else naming.number(round(clean, 1) - mean)
    return f"{naming.number(mean)} {row.spread(MEAN)}".rstrip(), increase, drop
