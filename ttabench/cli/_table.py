"""A data frame or rows as a plain table in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ttabench.errors import printable

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from rich.table import Table


USUAL = 80  # columns of a terminal
SENTENCE = 12  # columns that a folded text needs at least


def columns(frame: pd.DataFrame) -> None:
    """Print a frame."""
    table([str(c) for c in frame.columns], frame.itertuples(index=False))


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows under headings."""
    screen().print(make_table(headings, rows))


def make_table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Rows under headings, to be printed.

    Columns of short values keep their width, and so do columns of names as far as `USUAL` columns have room
    for them. The others are folded.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    texts = [[printable(str(value)) for value in row] for row in rows]
    columns = [[row[at] for row in texts] for at in range(len(headings))]
    sentences = [any(" " in text for text in column) for column in columns]
    room = USUAL - sum(
        3 + max(len(heading), SENTENCE if sentence else 0)
        for heading, sentence in zip(headings, sentences, strict=True)
    )
    for heading, column, sentence in zip(headings, columns, sentences, strict=True):
        over = max(map(len, column), default=0) - len(heading)
        whole = over <= 0 or (over <= room and not sentence)
        room -= over if whole and over > 0 else 0
        made.add_column(heading, overflow="fold", no_wrap=whole)
    for row in texts:
        made.add_row(*map(Text, row))
    return made


def screen() -> Console:
    """The terminal; where there is none, text of 140 columns."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=140)


def say(text: str) -> None:
    """Print a sentence; a terminal wraps it between words."""
    console = screen()
    console.print(printable(text), markup=False, soft_wrap=not console.is_terminal)


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
