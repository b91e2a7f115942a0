"""How long cells usually take: single ones were measured while the machine was busy, or asleep."""

from __future__ import annotations

import pandas as pd

from ttabench.store.table import varying
from ttabench_reports.cells.frames import ROW, TABLE


def typical_seconds(cells: pd.DataFrame) -> pd.Series[float]:
    """Wall-clock seconds of each cell: the median over the cells of its row that have a number.

    Sums of these are what the cells would take again. Sums of the stored seconds are not: one cell can have
    fifty times those of the others of its row, where other work ran beside it. NaN in a row without a number.
    """
    measured = cells["seconds"].where(cells["status"] == "ok")
    row = [cells[name] for name in varying(cells, [*TABLE, *ROW])]
    return measured.groupby(row, dropna=False).transform("median")
