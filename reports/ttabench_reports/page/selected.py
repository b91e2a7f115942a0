"""The cells behind each row of a report's tables."""

from __future__ import annotations

import pandas as pd

from ttabench_reports.cells.frames import ROW, TABLE, checked, one_per_cell
from ttabench_reports.cells.grouped import grouped
from ttabench_reports.evidence.report import Report
from ttabench_reports.tables.table import Row
from ttabench_reports.words import naming


class Selected:
    """The cells that a report's tables show, and which of them belong to a row.

    cells    as :func:`frames.checked` gives them, each once, in an order that never varies.
    numbers  id of a measured row → its number on the page.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        cells = one_per_cell(checked(report.cells))
        order = cells.assign(_place=cells["corruption"].map(naming.corruption_key))
        order = order.sort_values(
            ["dataset", "severity", "arch", "base", "method", "_place", "seed", "cell_id"]
        )
        self.cells = order.drop(columns="_place").reset_index(drop=True)
        keys = self.cells[[*TABLE, *ROW]].itertuples(index=False, name=None)
        self._places = grouped((key, place) for place, key in enumerate(keys))
        measured = [row for table in report.tables for row in table.measured_rows]
        self.numbers = {id(row): number for number, row in enumerate(measured)}

    def places(self, row: Row) -> list[int]:
        """Where in :attr:`cells` the cells of a measured row stand."""
        return self._places[tuple(row.about[name] for name in (*TABLE, *ROW))]

    def of(self, row: Row) -> pd.DataFrame:
        """The cells of a measured row."""
        return self.cells.iloc[self.places(row)]
