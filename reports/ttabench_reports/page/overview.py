"""The first table of the page: one line per method, architecture and dataset, with its mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ttabench_reports.evidence import intervals_and_tests as evidence
from ttabench_reports.evidence.given import Given, given
from ttabench_reports.evidence.places import places_of_table
from ttabench_reports.evidence.report import Report
from ttabench_reports.page import protocol_cards
from ttabench_reports.page.gaps import Gap
from ttabench_reports.sheets import words
from ttabench_reports.sheets.footnotes import TableNotes
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words import naming
from ttabench_reports.words.naming import MEAN

NO_SOURCE = "none"
FILTERS = {
    "table": "Dataset", "arch": "Architecture", "protocol": "Protocol", "mode": "Mode",
    "source": "Source data",
}  # fmt: skip
WIDTH = 100  # of the picture of an interval, in its own units


@dataclass(frozen=True)
class MeasuredRow:
    """A measured row with what a reader sees of it.

    state   words such as ``stale`` or ``9 of 15 corruptions``; none for a complete row.
    picture the interval drawn between the lowest of the table and 100 %: (low, mean, high, Source), from 0
            to :data:`WIDTH`; None without a mean.
    marks, mean_marks   the marks and footnotes of the row, and those of its mean.
    """

    table: Table
    row: Row
    number: int
    card: str
    given: Given
    finding: evidence.Finding
    source: str
    state: tuple[str, ...]
    place: str
    picture: tuple[float, ...] | None
    marks: str
    mean_marks: str

    @property
    def increase(self) -> float:
        """Points above Source, the difference of the printed numbers; NaN where there is none."""
        return round(self.row.printed_rise, 1) + 0.0

    @property
    def interval(self) -> str:
        return words.interval(*self.finding.interval)

    @property
    def said(self) -> str:
        """What the picture of the interval shows: ``TENT: 77.3, from 76.8 to 77.8; Source: 53.9``."""
        low, high = self.finding.interval
        ends = "" if math.isnan(low) else f", from {words.number(low)} to {words.number(high)}"
        source = (
            "" if self.row.baseline is None else f"; Source: {words.number(self.row.baseline.value(MEAN))}"
        )
        return f"{self.row.name}: {words.number(self.row.value(MEAN))}{ends}{source}"


def lines(report: Report, notes: TableNotes) -> list[MeasuredRow]:
    """One line for each measured row, in the order of the tables; `notes` gets the footnotes."""
    listed = []
    for table in report.tables:
        findings = evidence.findings(table)
        low = floor(table)
        for row in table.measured_rows:
            finding, had = findings[id(row)], given(row.about)
            place = places_of_table(table).get((id(row), MEAN), "")
            listed.append(MeasuredRow(
                table, row, report.numbers[id(row)], protocol_cards.card_id(row), had, finding,
                source_data(had), _state(row, table), place, _picture(row, finding, low), notes.of_row(row),
                notes.of_mean(row, table),
            ))  # fmt: skip
    return listed


def source_data(had: Given) -> str:
    """``features``, ``images``, ``statistics`` or ``none``."""
    return had.kind or NO_SOURCE


def floor(table: Table) -> float:
    """Where the scale of a table begins, in percent: the ten below its lowest number."""
    numbers = [v for row in table.measured_rows for v in row.values.values() if not math.isnan(v)]
    return min(10.0 * math.floor(min(numbers, default=0.0) / 10), 90.0)


def _picture(row: Row, finding: evidence.Finding, low: float) -> tuple[float, ...] | None:
    mean = row.value(MEAN)
    if math.isnan(mean):
        return None
    ends = [mean if math.isnan(end) else end for end in finding.interval]
    source = mean if row.baseline is None else row.baseline.value(MEAN)
    values = (ends[0], mean, ends[1], mean if math.isnan(source) else source)

    def place(value: float) -> float:
        return round(4 + (WIDTH - 8) * (max(value, low) - low) / (100 - low), 1)

    return tuple(map(place, values))


def _state(row: Row, table: Table) -> tuple[str, ...]:
    states = ["stale"] if row.about["stale"] else []
    word = row.words.get(MEAN, "")
    if word == "n/a":
        states.append("n/a")
    elif math.isnan(row.value(MEAN)):
        states.append(f"{sum(map(row.complete, table.main))} of {len(table.main)} corruptions")
    if any(text.startswith("alarm") for texts in row.remarks.values() for text in texts):
        states.append("alarm")
    return tuple(states)


def title(tables: Sequence[Table]) -> str:
    """The datasets, as papers write them."""
    return ", ".join(dict.fromkeys(naming.dataset(table.key["dataset"]) for table in tables))


def several(listed: Sequence[MeasuredRow]) -> Mapping[str, bool]:
    """Which columns the means have: datasets and seeds where there are several, tests where there are any."""
    return {
        "intervals": any(not math.isnan(line.finding.interval[0]) for line in listed),
        "tests": any(line.finding.record or not math.isnan(line.finding.p_source) for line in listed),
        "dataset": len({line.table.heading for line in listed}) > 1,
        "seeds": any(line.row.about["seeds"] > 1 for line in listed),
    }


def filters(listed: Sequence[MeasuredRow]) -> list[dict[str, Any]]:
    """The choices a reader has, see :func:`choices`; none where there is but one."""
    by_name = {
        "table": {line.table.title: line.table.heading for line in listed},
        "arch": {line.row.arch: naming.arch(line.row.arch) for line in listed},
        "mode": {line.given.mode: line.given.mode for line in listed},
        "source": {line.source: line.source for line in listed},
    }
    return choices({name: values for name, values in by_name.items() if len(values) > 1})


def choices(by_name: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
    """(value, words) by what a reader looks at, a key of :data:`FILTERS`.

    The page opens on the first network on the first dataset, on a leaderboard under the first protocol.
    """
    return [
        {
            "name": name, "label": FILTERS[name], "choices": list(values.items()),
            "opens": next(iter(values)) if name in ("table", "arch", "protocol") else "",
        }
        for name, values in by_name.items()
    ]  # fmt: skip


def counts(cells: pd.DataFrame, troubles: Sequence[Gap]) -> list[tuple[int, str, str]]:
    """(how many, of what, a link) for the head of the page."""
    by_kind: dict[str, int] = {}
    for gap in troubles:
        by_kind[gap.kind] = by_kind.get(gap.kind, 0) + gap.cells
    counted = [(int(cells["accuracy"].notna().sum()), "cells measured", "#means")]
    kinds = [kind for kind in ("missing", "failed", "stale", "n/a", "alarm") if kind in by_kind]
    return counted + [
        (by_kind[kind], "with an alarm" if kind == "alarm" else kind, "#gaps") for kind in kinds
    ]
