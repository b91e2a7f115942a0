"""Where long tables break, so that caption, rows and footnotes of a part fit on a page together.

TeX does not tell the height of what it has not set yet: heights are estimated, from above.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ttabench_reports.sheets.sheet import Group, Head, Line, Sheet, by_column

Form = Literal["page", "column"]

TALLEST = 540.0  # points: less than the text height of common classes
LINE, RULE, CAPTION, NOTE = 9.6, 4.0, 12.0, 9.5  # heights in points
ROW_SPACE = 2.0  # points between rows of running text
CAPTION_WIDTH = {"page": 78, "column": 46}  # characters in a line, at the narrowest
NOTE_WIDTH = {"page": 92, "column": 54}
AGAIN = "Notes: below the first part of this table."
LABEL_WIDTH = {"page": 26, "column": 16}  # characters of a method's name in a line; longer ones fold
HEAD_WIDTH = 14  # the same for the heading of a column of numbers


def stacked(sheet: Sheet, form: Form) -> list[Sheet]:
    """The blocks that stand below each other in a float."""
    return sheet.narrow() if form == "column" else [sheet]


def head_lines(head: Head) -> list[str]:
    """The heading of a column, folded where it is much wider than a number."""
    return _folded(head.text, HEAD_WIDTH) if head.align == "r" and not head.rotated else [head.text]


def over_lines(sheet: Sheet) -> list[list[str]]:
    """Each heading above several columns, folded to their width: a wider one makes their last column wide."""
    widths = [_width(sheet, n, head) for n, head in enumerate(sheet.heads)]
    lines, at = [], 0
    for text, span in sheet.over:
        lines.append(_folded(text, sum(widths[at : at + span]) + span - 1))
        at += span
    return lines


def _folded(text: str, room: int) -> list[str]:
    """In lines of at most `room` characters, broken at spaces."""
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]


def _width(sheet: Sheet, column: int, head: Head) -> int:
    """Characters of the widest number or line of the heading."""
    cells = [list(by_column(line))[column] for group in sheet.groups for line in group.lines]
    numbers = [len(cell.text + cell.after) for cell in cells if cell.span == 1]
    heading = 1 if head.rotated else max(map(len, head_lines(head)))
    return max(1, heading, *numbers)


def pages_of(sheet: Sheet, form: Form) -> list[tuple[Sheet, float]]:
    """The sheet in as few parts as pages are needed, none much shorter than the others; and their heights."""
    if form == "column" and sheet.brief:
        sheet = replace(sheet, footer=sheet.brief)
    blocks = stacked(replace(sheet, groups=()), form)
    frame = sum(map(_frame, blocks))
    clusters = list(_clusters(sheet, form, len(blocks)))

    def broken(tallest: float) -> list[_Page]:
        pages = [_Page(sheet, form, frame, len(blocks), first=True)]
        for cluster in clusters:
            if not pages[-1].add(cluster, tallest):
                earlier = pages[-1].earlier | pages[-1].marks
                pages.append(_Page(sheet, form, frame, len(blocks), first=False, earlier=earlier))
                pages[-1].add(cluster, math.inf)
        return pages

    pages = broken(TALLEST)
    lowest, highest = 0.0, TALLEST
    while len(pages) > 1 and highest - lowest > 2 * LINE:
        middle = (lowest + highest) / 2
        trial = broken(middle)
        if len(trial) == len(pages):
            pages, highest = trial, middle
        else:
            lowest = middle
    return [(page.sheet(), page.height) for page in pages]


@dataclass(frozen=True)
class _Cluster:
    """Lines that stay together: a method's, its spread's and its increase's, and others by `_no_row_alone`.

    group, block  their numbers.
    above         the text of the first column, where an earlier line gives it.
    height        in points, in all blocks together.
    """

    lines: Sequence[Line]
    group: int
    block: int
    above: str
    height: float
    marks: frozenset[str]


def _clusters(sheet: Sheet, form: Form, blocks: int) -> Iterator[_Cluster]:
    texts = [(place, head) for place, head in enumerate(sheet.heads) if head.align != "r"]

    def height_of(lines: Sequence[Line]) -> float:
        return blocks * sum(_line_height(line, texts, LABEL_WIDTH[form]) for line in lines)

    for g, group in enumerate(sheet.groups):
        for b, block in enumerate(group.blocks):
            above = ""
            for lines in _no_row_alone(list(_together(block, sheet.labels)), height_of):
                height = height_of(lines)
                marks = frozenset(mark for line in lines for cell in line for mark in cell.marks)
                yield _Cluster(lines, g, b, above, height, marks)
                above = next((line[0].text for line in reversed(lines) if line[0].text), above)


def _no_row_alone(rows: list[list[Line]], height: Callable[[Sequence[Line]], float]) -> list[list[Line]]:
    """A block's first rows as one, and its last rows: a page neither ends nor begins with one of them alone.

    So up to three rows are one. Very high rows may stand alone.
    """
    for ends in (slice(0, 2), slice(-2, None)):
        if len(rows) > 1 and height(joined := [line for row in rows[ends] for line in row]) < TALLEST / 4:
            rows[ends] = [joined]
    return rows


def _together(lines: Sequence[Line], labels: int) -> Iterator[list[Line]]:
    cluster: list[Line] = []
    for line in lines:
        follows = all(cell.text in ("", "Increase") for cell in line[:labels])
        if cluster and not follows:
            yield cluster
            cluster = []
        cluster.append(line)
    if cluster:
        yield cluster


@dataclass
class _Page:
    """A part in the making."""

    whole: Sheet
    form: Form
    frame: float
    blocks: int
    first: bool
    clusters: list[_Cluster] = field(default_factory=list)
    body: float = 0.0
    marks: frozenset[str] = frozenset()
    earlier: frozenset[str] = frozenset()  # marks whose footnotes stand on the pages before
    texts: float = field(init=False)  # height of caption and footnotes

    def __post_init__(self) -> None:
        self.texts = self._texts(self.marks)

    @property
    def height(self) -> float:
        return self.frame + self.body + self.texts

    def add(self, cluster: _Cluster, tallest: float) -> bool:
        """Take a cluster, if the page is not taller then."""
        last = self.clusters[-1] if self.clusters else None
        body, marks = self.body + cluster.height, self.marks | cluster.marks
        if last is None or last.group != cluster.group:
            body += self.blocks * (2 * RULE + (LINE + RULE) * bool(self.whole.groups[cluster.group].heading))
        elif last.block != cluster.block:
            body += 3 * self.blocks
        texts = self.texts if marks == self.marks else self._texts(marks)
        if last and self.frame + body + texts > tallest:
            return False
        self.clusters.append(cluster)
        self.body, self.marks, self.texts = body, marks, texts
        return True

    def sheet(self) -> Sheet:
        groups: list[Group] = []
        for n, cluster in enumerate(self.clusters):
            whole = self.whole.groups[cluster.group]
            last = self.clusters[n - 1] if n else None
            lines = list(cluster.lines)
            if last is None or last.group != cluster.group:
                again = not n and not self.first and self._begun(cluster)
                groups.append(Group(whole.heading + " (continued)" * bool(whole.heading and again), []))
            group = groups[-1]
            if last is None or (last.group, last.block) != (cluster.group, cluster.block):
                group = groups[-1] = replace(group, blocks=[*group.blocks, []])
            if not n and cluster.above and not lines[0][0].text and self.whole.heads[0].text:
                lines[0] = [lines[0][0]._replace(text=cluster.above), *lines[0][1:]]
            groups[-1] = replace(group, blocks=[*group.blocks[:-1], [*group.blocks[-1], *lines]])
        notes = {mark: text for mark, text in self.whole.notes.items() if mark not in self.earlier}
        return replace(self.whole, groups=groups, notes=notes, footer=self._footer)

    @property
    def _footer(self) -> str:
        """How to read the table stands below its first part."""
        return self.whole.footer if self.first or not self.whole.footer else AGAIN

    def _begun(self, cluster: _Cluster) -> bool:
        """Whether the group of the page's first cluster began on an earlier page."""
        return cluster.lines[0] is not self.whole.groups[cluster.group].blocks[0][0]

    def _texts(self, marks: frozenset[str]) -> float:
        """Height of caption and footnotes."""
        caption = math.ceil(len(self.whole.caption) / CAPTION_WIDTH[self.form]) if self.first else 1
        length = sum(len(self.whole.notes.get(mark, "")) + 4 for mark in marks - self.earlier)
        notes = len(self._footer) + length
        return CAPTION * caption + NOTE * math.ceil(notes / NOTE_WIDTH[self.form]) + 14


def _frame(sheet: Sheet) -> float:
    """Height of rules and headings."""
    rotated = [len(head.text) for head in sheet.heads if head.rotated]
    top = 4.4 * max(rotated) if rotated else LINE * max(len(head_lines(head)) for head in sheet.heads)
    over = LINE * max(map(len, over_lines(sheet))) + RULE if sheet.over else 0
    return top + over + 4 * RULE


def _line_height(line: Line, texts: Sequence[tuple[int, Head]], label: int) -> float:
    """Of a line of a sheet with these columns of texts, which may fold."""
    lines = [1]
    for cell, head in ((line[place], head) for place, head in texts if place < len(line)):
        if head.align == "p":
            lines.append(math.ceil(len(cell.text) / (head.width * 90)))
        elif cell.span == 1:
            lines.append(math.ceil(len(cell.text) / label))
    spaced = max(lines) > 1 or any(head.align == "p" for _, head in texts)
    return LINE * max(lines) + ROW_SPACE * spaced
