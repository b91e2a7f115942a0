"""What a per-corruption table is made of, before it becomes CSV, LaTeX, a picture or text."""

from __future__ import annotations

import math
import string
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from ttabench_reports import naming
from ttabench_reports.naming import MEAN, MEAN_EXTRA

Kind = Literal["source", "method", "increase", "published"]
OFFLINE, STALE, PUBLISHED = "†", "‡", "§"
LEGEND = {
    OFFLINE: "offline: sees all unlabelled test images before any is scored",
    STALE: "stale: measured with another version of the method's code than the one installed",
    PUBLISHED: "published numbers, not measured here",
}
LABEL = ""  # the "column" of a row's label, for footnotes that are about the whole row


@dataclass
class Row:
    """One printed line.

    values   percent, or points in an increase row, by column; absent or NaN where there is no number.
    sd       standard deviation over seeds (ddof 1), by column; only where there are several.
    words    what stands in place of a number, by column: ``n/a``, ``failed`` or a dash.
    letters  footnotes by column; :data:`LABEL` for those about the whole row.
    flags    keys of :data:`LEGEND`.
    partial  columns whose number is over some of the seeds only.
    about    what else is known: mode, batch_size, epochs, seeds, n_images, checkpoint, …
    """

    arch: str
    method: str
    kind: Kind
    values: dict[str, float]
    sd: dict[str, float] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    letters: dict[str, str] = field(default_factory=dict)
    flags: str = ""
    partial: frozenset[str] = frozenset()
    about: dict[str, Any] = field(default_factory=dict)
    baseline: Row | None = None

    @property
    def measured(self) -> bool:
        return self.kind in ("source", "method")

    def value(self, column: str) -> float:
        return self.values.get(column, math.nan)

    def raised(self, column: str) -> str:
        """The footnotes of one column as superscripts."""
        return naming.raised(self.letters.get(column, ""))

    def note(self, column: str, letter: str) -> None:
        if letter not in self.letters.get(column, ""):
            self.letters[column] = self.letters.get(column, "") + letter


@dataclass
class Notes:
    """Footnotes by letter, each text once; when the letters run out, one note for the rest."""

    texts: list[str] = field(default_factory=list)

    def letter(self, text: str) -> str:
        text = textwrap.shorten(text, 160, placeholder=" …")
        if text not in self.texts:
            if len(self.texts) >= len(string.ascii_lowercase) - 1:
                text = "other reasons; cells.csv has them all"
            if text not in self.texts:
                self.texts.append(text)
        return string.ascii_lowercase[self.texts.index(text)]

    def text(self, letter: str) -> str:
        return self.texts[string.ascii_lowercase.index(letter)]


@dataclass(frozen=True)
class Table:
    """One dataset at one severity on one stream; rows as in the paper.

    key      what all its cells share (:data:`frames.TABLE`).
    title    ``digits-c, severity 5``, and what tells it from its siblings.
    protocol in full; of each method where they differ.
    seeds    how many, e.g. ``3`` or ``1 to 3``; "" for one.
    remarks  what else a reader must know; sentences.
    main     the corruptions that the mean is over.
    extra    those swept beside them, with a mean of their own.
    """

    key: dict[str, Any]
    title: str
    protocol: str
    seeds: str
    remarks: tuple[str, ...]
    main: tuple[str, ...]
    extra: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: Notes

    @property
    def measured(self) -> str:
        """Protocol, seeds, remarks and what an increase is, in sentences."""
        parts = [f"Protocol: {self.protocol}."]
        if self.seeds:
            parts.append(f"Mean and standard deviation over {self.seeds} seeds.")
        if any(row.kind == "increase" for row in self.rows):
            parts.append("Increase: points above Source.")
        return " ".join([*parts, *self.remarks])

    @property
    def caption(self) -> str:
        return f"Accuracy (%) on {self.title}. {self.measured}"

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.main, MEAN, *self.extra, *([MEAN_EXTRA] if self.extra else []))

    def archs(self) -> dict[str, list[Row]]:
        """The rows of each architecture, in order."""
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(row.arch, []).append(row)
        return found

    def legend(self, columns: Iterable[str]) -> list[tuple[str, str]]:
        """(mark, meaning) of every mark that shows in a table of these columns."""
        shown = {LABEL, *columns}
        flags = {flag for row in self.rows for flag in row.flags}
        used = {
            x
            for row in self.rows
            for column, letters in row.letters.items()
            if column in shown
            for x in letters
        }
        return [(flag, text) for flag, text in LEGEND.items() if flag in flags] + [
            (letter, self.notes.text(letter)) for letter in sorted(used)
        ]

    def best(self, decimals: int = 1) -> set[tuple[int, str]]:
        """(id of row, column) of the highest accuracies per column and architecture; ties as printed."""
        found = set()
        for rows in self.archs().values():
            ours = [row for row in rows if row.measured]
            for column in self.columns if len(ours) > 1 else ():
                rounded = {id(row): round(row.value(column), decimals) for row in ours}
                top = max((v for v in rounded.values() if not math.isnan(v)), default=math.inf)
                found |= {(i, column) for i, v in rounded.items() if v == top}
        return found
