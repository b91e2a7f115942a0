"""One printed table, in any format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

Emphasis = Literal["", "best", "second"]


class Entry(NamedTuple):
    """One entry, in plain text (Unicode).

    after  printed small behind the text, e.g. ``±0.3``.
    marks  keys of the sheet's footnotes, raised.
    place  ``best`` (bold), ``second`` (underlined) or "".
    small  printed smaller, such as an increase.
    span   how many columns it takes.
    left   set flush left in a column of numbers; for words that take several columns.
    """

    text: str = ""
    after: str = ""
    marks: str = ""
    place: Emphasis = ""
    small: bool = False
    span: int = 1
    left: bool = False


@dataclass(frozen=True)
class Head:
    """A column's heading. align: l, r, or p for running text of `width` (part of the line)."""

    text: str
    align: Literal["l", "r", "p"] = "r"
    rotated: bool = False
    width: float = 0.0


Line = Sequence[Entry]


def by_column(line: Line) -> Iterator[Entry]:
    """An entry for each column of a line: empty ones where an entry takes several."""
    for cell in line:
        yield cell
        yield from [Entry()] * (cell.span - 1)


@dataclass(frozen=True)
class Group:
    """Lines that belong together, under a heading of their own ("" for none).

    blocks  a little space is between them; a page breaks between blocks if possible.
    """

    heading: str
    blocks: Sequence[Sequence[Line]]

    @property
    def lines(self) -> list[Line]:
        return [line for block in self.blocks for line in block]


@dataclass(frozen=True)
class Sheet:
    """A table.

    name     for files and labels.
    caption  plain text: what was measured, and how.
    footer   below the table: how to read it.
    heads    one for each column.
    over     (text, columns) headings that span columns, above the others; empty for none.
    labels   how many columns on the left say what a line is; the narrow form repeats them.
    notes    footnotes by mark; only those that are used are printed.
    cuts     columns at which the narrow form goes on below; empty where the table is narrow already.
    brief    the footer of the narrow form, where it is another.
    spared   columns that the narrow form does without.
    wide     whether it needs the width of a page also in a narrow form.
    main     whether it is one of the main tables; the others are for an appendix.
    """

    name: str
    caption: str
    footer: str
    heads: Sequence[Head]
    groups: Sequence[Group]
    over: Sequence[tuple[str, int]] = ()
    labels: int = 1
    notes: Mapping[str, str] = field(default_factory=dict)
    cuts: Sequence[int] = ()
    spared: Sequence[int] = ()
    wide: bool = False
    brief: str = ""
    main: bool = False

    @property
    def title(self) -> str:
        """The first sentence of its caption, as a heading."""
        return re.split(r"[.:] ", self.caption, maxsplit=1)[0].rstrip(".")

    @property
    def used_notes(self) -> list[tuple[str, str]]:
        """(mark, text) of the footnotes that its lines carry, in the order of `notes`."""
        marks = {mark for g in self.groups for line in g.lines for cell in line for mark in cell.marks}
        return [(mark, text) for mark, text in self.notes.items() if mark in marks]

    def narrow(self) -> list[Sheet]:
        """Its blocks below each other: the labels, and the columns between two cuts."""
        edges = [self.labels, *self.cuts, len(self.heads)]
        left = set(range(self.labels))
        kept = [left | set(range(a, b)) - set(self.spared) for a, b in pairwise(edges)]
        return [self._only(columns) for columns in kept]

    def without_empty(self, columns: Sequence[int]) -> Sheet:
        """A sheet without cuts, less those of these columns in which no line has more than a dash."""
        empty = {
            n for n in columns if not any(line[n].text.strip("–") for g in self.groups for line in g.lines)
        }
        kept = [n for n in range(len(self.heads)) if n not in empty]
        spared = tuple(kept.index(n) for n in self.spared if n in kept)
        return replace(self._only(set(kept)), spared=spared)

    def _only(self, columns: set[int]) -> Sheet:
        @cache  # most lines have the same widths
        def spans(*widths: int) -> list[int]:
            """How many of each entry's columns are kept."""
            ends = accumulate(widths)
            return [len(columns & set(range(e - w, e))) for e, w in zip(ends, widths, strict=True)]

        def cut(line: Line) -> list[Entry]:
            kept = zip(line, spans(*[cell.span for cell in line]), strict=True)
            return [cell if cell.span == span else cell._replace(span=span) for cell, span in kept if span]

        groups = [
            Group(g.heading, [[cut(line) for line in block] for block in g.blocks]) for g in self.groups
        ]
        kept = zip(self.over, spans(*[width for _, width in self.over]), strict=True)
        over = [(text, span) for (text, _), span in kept if span]
        heads = [head for n, head in enumerate(self.heads) if n in columns]
        return replace(self, heads=heads, groups=groups, over=over, cuts=(), spared=())
