"""Which rows of a table may be ranked against each other.

Offline and online rows never are: Source stands in both groups. Neither are rows of different weights: they
are other classifiers, each with its own Source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ttabench_reports.cells.frames import spell
from ttabench_reports.cells.grouped import grouped
from ttabench_reports.tables.table import Row, Table


def groups(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Rows of one architecture that may be ranked against each other, with Source.

    They share weights and mode; of the same weights, those of online methods come first.
    """
    for ours in by_weights(row for row in rows if row.measured):
        for offline in (False, True):
            group = [row for row in ours if row.kind == "source" or row.offline == offline]
            if any(row.kind == "method" for row in group):
                yield group


def groups_of_table(table: Table) -> Iterator[tuple[list[Row], set[int]]]:
    """All groups of a table; and of each, the ids of the rows that have their marks from it.

    Source stands in several groups of its weights, and has its marks from the first.
    """
    before: set[int] = set()
    for rows in table.archs().values():
        for group in groups(rows):
            yield group, {id(row) for row in group} - before
            before |= {id(row) for row in group if row.kind == "source"}


def by_weights(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows of one architecture, those of the same weights together."""
    return list(grouped((row.about["checkpoint"], row) for row in rows).values())


def which_weights(group: Sequence[Row], among: Sequence[Sequence[Row]]) -> str:
    """``weights 1a2b3c4d``, if the groups of an architecture do not all have the same; "" if they do."""
    several = len({row.about["checkpoint"] for rows in among for row in rows}) > 1
    return spell("checkpoint", group[0].about["checkpoint"]) if several else ""
