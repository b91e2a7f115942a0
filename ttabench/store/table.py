"""Cells as a pandas table: columns whose types do not depend on what is in them, and the increase."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from ttabench.store.columns import COLUMNS, FLAGS, REAL, WHOLE

INCREASE = "increase"
SAME_AS_SOURCE = (
    "arch", "checkpoint", "dataset", "fingerprint", "corruption", "severity", "seed", "order", "reset",
    "contamination", "foreign", "held_out", "limit", "precision", "stream", "baseline", "pace",
)  # fmt: skip
"""What a cell shares with the cell of Source that it is compared with.

Source does not adapt: mode, batch size and epochs change none of its numbers.
"""


def table(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows of :func:`ttabench.store.columns.row` as a table; accuracies in percent.

    The columns are :data:`COLUMNS`, and :data:`INCREASE` after the accuracy. Types are the same for every
    table: ``int64`` for whole numbers, ``float64`` for others, ``bool`` for flags, text for the rest.
    """
    frame = pd.DataFrame([dict(row) for row in rows], columns=list(COLUMNS))
    kinds: dict[str, Any] = dict.fromkeys(WHOLE, "int64") | dict.fromkeys(REAL, "float64")
    kinds |= dict.fromkeys(FLAGS, "bool")
    frame = frame.astype({name: kinds.get(name, str) for name in COLUMNS})
    return with_increase(frame)


def with_increase(cells: pd.DataFrame) -> pd.DataFrame:
    """`cells` with points of accuracy above Source on the same weights and images, in a column of its own.

    NaN for Source itself, and where a cell or its Source has no number.
    """
    numbers = pd.to_numeric(cells["accuracy"], errors="coerce").where(cells["status"] == "ok")
    same = varying(cells, [name for name in SAME_AS_SOURCE if name in cells])
    is_source = cells["base"] == "source"
    sources = cells.loc[is_source & numbers.notna(), same].assign(_source=numbers)
    baseline = cells[same].merge(sources.drop_duplicates(same), "left", on=same)["_source"]
    increase = numbers.where(~is_source) - baseline.set_axis(cells.index)
    rest = cells.drop(columns=INCREASE, errors="ignore")
    rest.insert(list(rest).index("accuracy") + 1, INCREASE, increase)
    return rest


def varying(cells: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Those of the columns `names` in which cells differ, and at least one: the others tell no cells apart.

    Most columns of a protocol have one value, and looking for groups takes time for each column.
    """
    columns = {name: cells[name].to_numpy() for name in names}
    return [name for name, one in columns.items() if (one[1:] != one[:-1]).any()] or [*names[:1]]
