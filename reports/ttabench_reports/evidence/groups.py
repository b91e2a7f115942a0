"""Which rows of a table may be ranked against each other.

Offline and online rows never are: Source stands in both groups. Neither are rows of different weights: they
are other classifiers, each with its own Source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ttabench_reports.cells.frames import spell
from ttabench_reports.tables.table import Row


def groups(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Rows of one architecture that may be ranked against each other, with Source.

    They share weights and mode; of the same weights, those of online methods come first.
    """
    for ours in by_weights(row for row in rows if row.measured):
        for offline in (False, True):
            group = [row for row in ours if row.kind == "source" or row.offline == offline]
            if any(row.kind == "method" for row in group):
                yield group


def by_weights(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows of one architecture, those of the same weights together."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(str(row.about["checkpoint"]), []).append(row)
    return list(found.values())


def which_weights(group: Sequence[Row], among: Sequence[Sequence[Row]]) -> str:
    """``weights 1a2b3c4d``, if the groups of an architecture do not all have the same; "" if they do."""
    several = len({row.about["checkpoint"] for rows in among for row in rows}) > 1
    return spell("checkpoint", group[0].about["checkpoint"]) if several else ""
