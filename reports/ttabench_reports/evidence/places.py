"""Which numbers of a table are the best and the second best, with their ties."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from ttabench_reports.evidence import stats
from ttabench_reports.evidence.groups import groups_of_table
from ttabench_reports.evidence.once_per_table import once_per_table
from ttabench_reports.evidence.paired_rows import paired_with
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words.naming import MEAN

Place = Literal["best", "second"]
ALPHA = 0.05


@once_per_table
def places_of_table(table: Table) -> dict[tuple[int, str], Place]:
    """(id of row, column) → ``best`` or ``second`` among the rows of the same weights and mode.

    Best is the highest number, and each that does not differ from it in a paired test (Holm-corrected over
    the group, at 5 %), that is higher over the seeds of both, or that prints the same; second is the highest
    method of the rest, with its ties. What prints no higher than Source is not second.
    Source competes with both modes, and is marked by how it stands among the online rows, if there are any.
    A number over fewer seeds takes no part. Where correctness is not stored, ties are as printed.
    """
    return {
        (id(row), column): place
        for group, marked in groups_of_table(table)
        for column in table.columns
        for row, place in places(group, table, column)
        if id(row) in marked
    }


def best_places(table: Table) -> set[tuple[int, str]]:
    """(id of row, column) of what is best, ties included; offline and online rows apart."""
    return {key for key, place in places_of_table(table).items() if place == "best"}


def places(rows: Sequence[Row], table: Table, column: str) -> list[tuple[Row, Place]]:
    """Best and second of these rows in one column, see :func:`places_of_table`."""
    able = [row for row in rows if row.complete(column)]
    if len(able) < 2:
        return []
    best = _with_ties(able, table, column)
    rest = [row for row in able if all(row is not other for other in best)]
    source = max((row.printed(column) for row in able if row.kind == "source"), default=-math.inf)
    second = [
        row for row in (_with_ties(rest, table, column) if rest else []) if row.printed(column) > source
    ]
    return [(row, "best") for row in best] + [(row, "second") for row in second]


def _with_ties(rows: Sequence[Row], table: Table, column: str) -> list[Row]:
    """The highest row first, then those that are no different from it."""
    top = max(rows, key=lambda row: row.value(column))
    others = [row for row in rows if row is not top]
    paired, over, printed = paired_with(top, table), table.over(column), top.printed(column)
    p = stats.holm(paired.p_values(top, others, over))

    return [top] + [
        row
        for row, adjusted in zip(others, p, strict=True)
        # By the seeds that both have: where these are other images, so may be the order of the means.
        if adjusted >= ALPHA or row.printed(column) == printed or not paired.is_lower(row, top, over)
    ]


@once_per_table
def untested(table: Table) -> frozenset[int]:
    """Ids of the rows whose mean could not be tested against the best of their weights and mode."""
    return frozenset().union(*(untested_among(group, table) for group, _ in groups_of_table(table)))


def untested_among(rows: Sequence[Row], table: Table) -> set[int]:
    """Ids of the methods among these rows with a mean that cannot be tested against the highest.

    They have other seeds or images, or no correctness. None in a table without any correctness: there all
    ties are as printed.
    """
    able = [row for row in rows if row.complete(MEAN)]
    if not able or not any(row.correct for row in table.rows):
        return set()
    return untested_against(max(able, key=lambda row: row.value(MEAN)), able, table)


def untested_against(one: Row, rows: Sequence[Row], table: Table) -> set[int]:
    """Ids of the methods among these rows, which have a mean, that cannot be tested against `one`."""
    others = [row for row in rows if row is not one and row.kind == "method"]
    p = paired_with(one, table).p_values(one, others, table.main)
    return {id(row) for row, value in zip(others, p, strict=True) if math.isnan(value)}
