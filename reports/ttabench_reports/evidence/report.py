"""The tables of one set of cells and what is known of them: made once, for all formats."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pandas as pd

from ttabench.system.garbage_collection import paused
from ttabench_reports.cells.frames import ROW, TABLE, checked, one_per_cell
from ttabench_reports.cells.grouped import grouped
from ttabench_reports.published.catalog import catalog
from ttabench_reports.tables.build import tables
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words import naming


class Report:
    """`cells` as :func:`load.read` gives them; `published` as :func:`published.load` does.

    Published architectures are taken by the names that they have here.
    """

    def __init__(self, cells: pd.DataFrame, published: pd.DataFrame | None = None) -> None:
        self.cells = cells
        self.published = None if published is None else _named_as_here(published)

    @cached_property
    def tables(self) -> list[Table]:
        with paused():
            return tables(self.cells, self.published)

    @cached_property
    def kept(self) -> pd.DataFrame:
        """The cells that the tables show, as :func:`frames.checked` gives them, each once.

        Their order never varies.
        """
        by = ["dataset", "severity", "arch", "base", "method", "corruption", "seed", "cell_id"]
        return one_per_cell(checked(self.cells)).sort_values(by, key=naming.in_order, ignore_index=True)

    @cached_property
    def _places(self) -> dict[Any, list[int]]:
        keys = self.kept[[*TABLE, *ROW]].itertuples(index=False, name=None)
        return grouped((key, place) for place, key in enumerate(keys))

    def places(self, row: Row) -> list[int]:
        """Where in :attr:`kept` the cells of a measured row stand."""
        return self._places[tuple(row.about[name] for name in (*TABLE, *ROW))]

    def cells_of(self, row: Row) -> pd.DataFrame:
        """The cells of a measured row."""
        return self.kept.iloc[self.places(row)]

    @cached_property
    def numbers(self) -> dict[int, int]:
        """Id of a measured row → its number on a page."""
        measured = (row for table in self.tables for row in table.measured_rows)
        return {id(row): number for number, row in enumerate(measured)}


def _named_as_here(published: pd.DataFrame) -> pd.DataFrame:
    known = catalog()
    pairs = zip(published["publication"], published["arch"], strict=True)
    names = [known[name].names(arch) if name in known else [arch] for name, arch in pairs]
    return published.assign(arch=pd.Series(names, published.index, dtype=object)).explode(
        "arch", ignore_index=True
    )
