"""Planned cells of a results folder that have no record yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ttabench.cell.protocol import Protocol
from ttabench.store.results_folder import PROTOCOL_OF_PLAN
from ttabench_reports.cells.frames import PROTOCOL
from ttabench_reports.cells.grouped import grouped


@dataclass(frozen=True)
class Missing:
    """Cells of one method, architecture, dataset and severity: which corruptions, and how many cells.

    protocols  how many of them have which protocol; None where the plan does not say it.
    """

    method: str
    base: str
    arch: str
    dataset: str
    severity: int
    corruptions: tuple[str, ...]
    cells: int
    protocols: tuple[tuple[Protocol | None, int], ...] = ()

    def __deepcopy__(self, memo: object) -> Missing:
        """Itself: pandas copies what is in a table's `attrs` at every step."""
        return self

    def under(self, fields: Mapping[str, Any], ignored: Collection[str] = ()) -> int:
        """How many of these cells have the protocol in `fields`, or one that the plan does not say."""
        left_out = {"pace_ratio", *ignored}  # the ratio is measured when the cells are run
        compared = [name for name in PROTOCOL if name not in left_out]
        return sum(
            number
            for protocol, number in self.protocols or [(None, self.cells)]
            if protocol is None or all(getattr(protocol, name) == fields[name] for name in compared)
        )


def missing(plan: Iterable[Mapping[str, Any]], stored: Iterable[str]) -> tuple[Missing, ...]:
    """What of a plan (see :meth:`ttabench.store.Store.plan`) is not among the `stored` ids.

    Cells that cannot be run have a reason in the plan and are not missing. A cell counts once, also where
    `plan` is that of several folders: each slice of a sweep stores the whole plan.
    """
    there = set(stored)
    lacking = {row["id"]: row for row in plan if row["id"] not in there and not row["reason"]}
    groups = grouped(
        ((row["method"], row["base"], row["arch"], row["dataset"], row["severity"]), row)
        for row in lacking.values()
    )
    return tuple(
        Missing(*key, tuple(dict.fromkeys(row["corruption"] for row in rows)), len(rows), _protocols(rows))
        for key, rows in groups.items()
    )


def _protocols(rows: Iterable[Mapping[str, Any]]) -> tuple[tuple[Protocol | None, int], ...]:
    stored = (row.get(PROTOCOL_OF_PLAN) for row in rows)
    counts = Counter(None if one is None else tuple(one.items()) for one in stored)
    return tuple((None if one is None else Protocol(**dict(one)), n) for one, n in counts.items())
