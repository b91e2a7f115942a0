"""A data frame or rows as a plain table in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ttabench.errors import printable

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from rich.table import Table


def columns(frame: pd.DataFrame) -> None:
    """Print a frame."""
    table([str(c) for c in frame.columns], frame.itertuples(index=False))


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows under headings."""
    screen().print(make_table(headings, rows))


def make_table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Rows under headings, to be printed. Columns of short values keep their width, the others are folded."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    texts = [[printable(str(value)) for value in row] for row in rows]
    for at, heading in enumerate(headings):
        short = all(len(row[at]) <= len(heading) for row in texts)
        made.add_column(heading, overflow="fold", no_wrap=short)
    for row in texts:
        made.add_row(*map(Text, row))
    return made


def screen() -> Console:
    """The terminal; where there is none, text of 140 columns."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=140)


def pairs(rows: Iterable[tuple[str, str]]) -> None:
    """Print a name and a text per line, the texts wrapped; rows without a text are left out."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table.grid(padding=(0, 2))
    for name, text in rows:
        if text:
            made.add_row(Text(name), Text(printable(text)))
    Console(highlight=False).print(made)
