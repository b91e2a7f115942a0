"""What a per-corruption table is made of, before it becomes CSV, LaTeX, a picture or text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from ttabench.cell.stream_spec import ALL_STREAMS
from ttabench.corruptions.corruption_names import NATURAL
from ttabench_reports.cells.calibration import Reliability
from ttabench_reports.cells.grouped import grouped
from ttabench_reports.cells.over_stream import Windows
from ttabench_reports.words import naming
from ttabench_reports.words.naming import MEAN, MEAN_EXTRA
from ttabench_reports.words.notes import Notes
from ttabench_reports.words.unset_settings import defaults, without

Kind = Literal["source", "method", "increase", "published"]
OFFLINE, STALE, PUBLISHED = "†", "‡", "§"
LEGEND = {
    OFFLINE: "offline: sees all unlabelled test images before any is scored",
    STALE: "stale: measured with other code than is installed",
    PUBLISHED: "published, not measured here; the setting is the same as far as it is stated",
}
NOT_HELD_OUT = "offline: sees all unlabelled test images that are not held out before any is scored"
LABEL = ""  # the "column" of a row's label, for footnotes that are about the whole row


@dataclass
class Row:
    """One printed line.

    values    percent, or points in an increase row, by column; absent or NaN where there is no number.
    sd        standard deviation over seeds (ddof 1), by column; only where there are several.
    words     what stands in place of a number, by column: ``n/a``, ``failed`` or a dash.
    remarks   what a footnote says, by column; :data:`LABEL` for those about the whole row.
    letters   the footnotes of these remarks, by column.
    flags     keys of :data:`LEGEND`.
    partial   columns whose number is over some of the seeds only.
    collapsed  corruptions under which the predictions use too few classes, in some seed.
    about     what else is known: all that its table shares (:data:`frames.TABLE`), mode, batch_size, epochs,
              seeds, n_images, checkpoint, …; {} of a published row.
    correct   packed per-image correctness by corruption and seed, where it is known.
    reliability  of the main corruptions, where every cell has a number and its bins.
    unknown   of a contaminated stream: how foreign images are told from test images, over the main
              corruptions; {} where a cell lacks it or its number, see
              :mod:`ttabench_reports.cells.unknown_classes`.
    windows   accuracy over a long stream, by column.
    order     of a continual sweep: the corruptions in the order of the stream; () where seeds differ in it.
    baseline  Source of the same weights: the row beside it, or where that has more seeds, its part of them.
    whole     of Source over some of its seeds, which is not printed: the row with all of them, which is.
    of        of an increase row: the method's row.
    """

    arch: str
    method: str
    kind: Kind
    values: dict[str, float]
    sd: dict[str, float] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    remarks: dict[str, list[str]] = field(default_factory=dict)
    letters: dict[str, str] = field(default_factory=dict)
    flags: str = ""
    partial: frozenset[str] = frozenset()
    collapsed: frozenset[str] = frozenset()
    about: dict[str, Any] = field(default_factory=dict)
    correct: dict[str, dict[int, bytes]] = field(default_factory=dict)
    reliability: Reliability | None = None
    unknown: dict[str, float] = field(default_factory=dict)
    windows: dict[str, Windows] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    baseline: Row | None = None
    whole: Row | None = None
    of: Row | None = None

    @property
    def measured(self) -> bool:
        return self.kind in ("source", "method")

    @property
    def name(self) -> str:
        """The method and its variant as papers write them."""
        label = without(self.method, self.unset)
        return naming.method(label, str(self.about.get("config", "")))

    @property
    def unset(self) -> tuple[str, ...]:
        """Settings of the label that nobody set, see :mod:`unset_settings`."""
        return tuple(self.about.get("unset", ()))

    @property
    def plain_name(self) -> str:
        """:attr:`name` without ``(offline)``, where a mark, a colour or a heading says it."""
        return self.name.removesuffix(" (offline)") if OFFLINE in self.flags else self.name

    @property
    def offline(self) -> bool:
        return self.about.get("mode") == "offline"

    def value(self, column: str) -> float:
        return self.values.get(column, math.nan)

    def complete(self, column: str) -> bool:
        """Whether there is a number, and it is over all seeds."""
        return not math.isnan(self.value(column)) and column not in self.partial

    def printed(self, column: str, decimals: int = 1) -> float:
        """The number as it is printed. An increase is the difference of two printed numbers."""
        if math.isnan(value := self.value(column)):
            return value
        if self.of is not None and self.baseline is not None:
            rise = self.of.printed(column, decimals) - self.baseline.printed(column, decimals)
            return round(rise, decimals) + 0.0
        return float(f"{value:.{decimals}f}")

    @property
    def printed_baseline(self) -> Row | None:
        """The row of Source that is printed, over all its seeds; :attr:`baseline` may be a part of it."""
        return self.baseline and (self.baseline.whole or self.baseline)

    @property
    def rise(self) -> float:
        """Points of its mean above Source; NaN where there is nothing to compare it with."""
        return math.nan if self.baseline is None else self.value(MEAN) - self.baseline.value(MEAN)

    @property
    def falling(self) -> float:
        """A key for sorting: the highest mean first, rows without a mean last."""
        return math.inf if math.isnan(mean := self.value(MEAN)) else -mean

    @property
    def printed_rise(self) -> float:
        """:attr:`rise`, of the printed numbers."""
        return math.nan if self.baseline is None else self.printed(MEAN) - self.baseline.printed(MEAN)

    def spread(self, column: str) -> str:
        """``±0.3``; "" without several seeds, and for Source where they change nothing that is printed."""
        sd = self.sd.get(column, math.nan)
        varies = not math.isnan(sd) and (self.kind != "source" or round(sd, 1) > 0)
        return f"±{sd:.1f}" if varies else ""

    def raised(self, column: str) -> str:
        """The footnotes of one column as superscripts."""
        return naming.raised(self.letters.get(column, ""))

    def remark(self, column: str, text: str) -> None:
        if text not in self.remarks.setdefault(column, []):
            self.remarks[column].append(text)


def legend_of(rows: Iterable[Row]) -> dict[str, str]:
    """The flags that these rows carry, with their meaning."""
    flagged = [row for row in rows if row.flags]
    carried = {flag for row in flagged for flag in row.flags}
    held_out = any(row.offline and row.about["held_out"] for row in flagged)
    legend = LEGEND | ({OFFLINE: NOT_HELD_OUT} if held_out else {})
    return {flag: text for flag, text in legend.items() if flag in carried}


def with_stream(difference: str, stream: str) -> str:
    """What tells a table from others, with its long stream named."""
    said = f"stream {stream}"
    return ", ".join(filter(None, (said, difference))) if stream and said not in difference else difference


def beside_stream(difference: str, stream: str) -> str:
    """`difference` in brackets, without the stream and the reset that belongs to it: a heading names it."""
    implied = (f"stream {stream}", "continual") if stream else ()
    rest = [part for part in difference.split(", ") if part and part not in implied]
    return in_brackets(", ".join(rest))


def in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


@dataclass(frozen=True, eq=False)
class Table:
    """One dataset at one severity, or one natural shift, on one stream; rows as in the paper.

    key      what all its cells share (:data:`frames.TABLE`).
    difference  in what it differs from the tables of the same dataset and severity; "" for one alone, and for
             the default protocol. A long stream is always named.
    protocol in full; of each method where they differ.
    brief    the protocol that most methods have.
    seeds    how many, e.g. ``3`` or ``1 to 3``; "" for one.
    remarks  what else a reader must know; sentences.
    main     the corruptions that the mean is over.
    extra    those swept beside them, with a mean of their own.
    """

    key: dict[str, Any]
    difference: str
    protocol: str
    seeds: str
    remarks: tuple[str, ...]
    main: tuple[str, ...]
    extra: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: Notes
    brief: str = ""

    @property
    def title(self) -> str:
        """``digits-c, severity 5``, and :attr:`difference`."""
        return naming.where(self.key["dataset"], self.key["severity"]) + in_brackets(self.difference)

    @property
    def heading(self) -> str:
        """:attr:`title` with the dataset and the stream as papers write them."""
        return self.short_heading + beside_stream(self.difference, self._stream)

    @property
    def short_heading(self) -> str:
        """:attr:`heading` without what else of the protocol differs."""
        where = naming.where(naming.dataset(self.key["dataset"]), self.key["severity"])
        return f"{where}, {naming.stream(self._stream)}" if self._stream else where

    @property
    def _stream(self) -> str:
        return str(self.key["stream"])

    @property
    def measured_rows(self) -> list[Row]:
        """Source and the methods, without increases and published rows."""
        return [row for row in self.rows if row.measured]

    @property
    def measured(self) -> str:
        """Protocol, seeds, what an increase is, remarks and defaults that names do not say; sentences."""
        parts = [f"Protocol: {self.protocol}."]
        if self.seeds:
            parts.append(f"Mean and standard deviation over {self.seeds} seeds.")
        if any(row.kind == "increase" for row in self.rows):
            parts.append("Increase: points above Source.")
        return " ".join(filter(None, [*parts, *self.remarks, defaults(self.rows)]))

    @property
    def natural(self) -> bool:
        """Whether the images are a natural shift or a long stream: one column, and no mean over columns."""
        return len(self.main) == 1 and self.main[0] in (NATURAL, *ALL_STREAMS)

    @property
    def stream(self) -> bool:
        """Whether the images are a long stream. Intervals and tests are not made over it."""
        return len(self.main) == 1 and self.main[0] in ALL_STREAMS

    @property
    def main_columns(self) -> tuple[str, ...]:
        """The main corruptions and their mean, as they are printed."""
        return self.main if self.natural else (*self.main, MEAN)

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns with a number; of a natural shift MEAN too, for tables of means."""
        return (*self.main, MEAN, *self.extra, *([MEAN_EXTRA] if self.extra else []))

    def over(self, column: str) -> tuple[str, ...]:
        """The corruptions that a column is over."""
        return {MEAN: self.main, MEAN_EXTRA: naming.averaged(self.extra)}.get(column, (column,))

    def archs(self) -> dict[str, list[Row]]:
        """The rows of each architecture, in order."""
        return grouped((row.arch, row) for row in self.rows)

    def legend(self, columns: Iterable[str], rows: Iterable[Row] | None = None) -> list[tuple[str, str]]:
        """(mark, meaning) of every mark that shows in a table of these columns and rows."""
        shown = {LABEL, *columns}
        chosen = list(self.rows if rows is None else rows)
        used = {
            x for row in chosen for column, letters in row.letters.items() if column in shown for x in letters
        }
        return [*legend_of(chosen).items(), *((letter, self.notes.text(letter)) for letter in sorted(used))]
