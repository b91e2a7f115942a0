"""The tables of one set of cells and what is known of them: made once, for all formats."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from ttabench.system.garbage_collection import paused
from ttabench_reports.published.catalog import catalog
from ttabench_reports.tables.build import tables
from ttabench_reports.tables.table import Table


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


def _named_as_here(published: pd.DataFrame) -> pd.DataFrame:
    known = catalog()
    pairs = zip(published["publication"], published["arch"], strict=True)
    names = [known[name].names(arch) if name in known else [arch] for name, arch in pairs]
    return published.assign(arch=pd.Series(names, published.index, dtype=object)).explode(
        "arch", ignore_index=True
    )
