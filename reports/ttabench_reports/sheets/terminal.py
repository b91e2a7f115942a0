"""A table for the terminal: caption, columns as wide as there is room, footnotes."""

from __future__ import annotations

from rich import box
from rich.console import Group as Renderables
from rich.console import RenderableType
from rich.table import Table as Grid
from rich.text import Text

from ttabench_reports import naming
from ttabench_reports.sheets.sheet import Cell, Line, Sheet, used

STYLES = {"best": "bold", "second": "underline", "": ""}


def render(sheet: Sheet) -> RenderableType:
    """Superscript letters are Unicode; bold and underlined are as on paper."""
    grid = Grid(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for n, head in enumerate(sheet.heads):
        left = head.align != "r"
        grid.add_column(
            Text(head.text), justify="left" if left else "right", overflow="fold", no_wrap=n >= sheet.labels
        )
    for group in sheet.groups:
        if group.heading:
            grid.add_row(Text(group.heading, style="bold"), *[""] * (len(sheet.heads) - 1))
        for line in group.lines:
            grid.add_row(*_texts(line))
        grid.add_section()
    rows = [line for group in sheet.groups for line in group.lines]
    notes = [Text(f"{naming.raised(mark)} {text}") for mark, text in used(rows, sheet.notes)]
    return Renderables(Text(sheet.caption, style="bold"), grid, *notes, Text(sheet.footer, style="dim"))


def _texts(line: Line) -> list[Text]:
    texts: list[Text] = []
    for cell in line:
        texts += [_text(cell), *[Text()] * (cell.span - 1)]
    return texts


def _text(cell: Cell) -> Text:
    return Text(cell.text, STYLES[cell.place]).append(cell.after + naming.raised(cell.marks))
