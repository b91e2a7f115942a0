"""Rows as a plain table in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ttabench.errors import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table


USUAL = 80  # columns of a terminal
SENTENCE = 12  # columns that a folded text needs at least
REPORT = 120  # columns of a report where there is no terminal
GAP = 3  # columns between two columns of a table


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows under headings."""
    screen().print(make_table(headings, rows))


def make_table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> Fitted:
    """Rows under headings, to be printed."""
    return Fitted(headings, [[printable(str(value)) for value in row] for row in rows])


@dataclass(frozen=True)
class Fitted:
    """A table. On a terminal that is too narrow for it, each row is a list of headings and values.

    Columns of short values keep their width, and so do columns of names as far as `USUAL` columns have room
    for them. The others are folded.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        folded = self._folded()
        widths = [
            max(len(heading), SENTENCE if fold else max((len(row[at]) for row in self.rows), default=0))
            for at, (heading, fold) in enumerate(zip(self.headings, folded, strict=True))
        ]
        if sum(widths) + GAP * (len(widths) - 1) <= options.max_width:
            yield self._table(folded)
            return
        for row in self.rows:
            yield ""
            yield _grid(zip(self.headings, row, strict=True))

    def _folded(self) -> list[bool]:
        """Whether each column is folded."""
        columns = [[row[at] for row in self.rows] for at in range(len(self.headings))]
        sentences = [any(" " in text for text in column) for column in columns]
        room = USUAL - sum(
            GAP + max(len(heading), SENTENCE if sentence else 0)
            for heading, sentence in zip(self.headings, sentences, strict=True)
        )
        folded = []
        for heading, column, sentence in zip(self.headings, columns, sentences, strict=True):
            over = max(map(len, column), default=0) - len(heading)
            whole = over <= 0 or (over <= room and not sentence)
            room -= over if whole and over > 0 else 0
            folded.append(not whole)
        return folded

    def _table(self, folded: Sequence[bool]) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading, fold in zip(self.headings, folded, strict=True):
            made.add_column(heading, overflow="fold", no_wrap=not fold)
        for row in self.rows:
            made.add_row(*map(Text, row))
        return made


def screen(width: int = 140) -> Console:
    """The terminal; where there is none, text of `width` columns."""
    from rich.console import Console

    console = Console(emoji=False, highlight=False)
    return console if console.is_terminal else Console(emoji=False, highlight=False, width=width)


def say(text: str) -> None:
    """Print a sentence; a terminal wraps it between words."""
    console = screen()
    console.print(printable(text), markup=False, soft_wrap=not console.is_terminal)


def pairs(rows: Iterable[tuple[str, str]]) -> None:
    """Print a name and a text per line, the texts wrapped; rows without a text are left out."""
    from rich.console import Console

    Console(emoji=False, highlight=False).print(_grid(rows))


def _grid(rows: Iterable[tuple[str, str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    made = Table.grid(padding=(0, 2))
    for name, text in rows:
        if text:
            made.add_row(Text(name), Text(printable(text), overflow="fold"))
    return made
