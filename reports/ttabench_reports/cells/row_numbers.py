"""The numbers of the rows of tables: means over seeds, and what went wrong."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ttabench_reports.cells.calibration import reliabilities
from ttabench_reports.cells.frames import CORRECT
from ttabench_reports.cells.grouped import by_row, grouped
from ttabench_reports.cells.over_stream import orders, several_orders, windows
from ttabench_reports.cells.unknown_classes import unknown_figures


class RowNumbers:
    """Means over seeds, and what went wrong, by row number; made once for all tables."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame
        self.by_seed = frame.set_index(["row", "seed", "corruption"])["accuracy"].unstack("corruption")
        over_seeds = frame.groupby(["row", "corruption"], sort=False)["accuracy"]
        self.values = _nested(over_seeds.mean())
        self.sd = _nested(over_seeds.std())
        self.measured = _nested(over_seeds.count())
        of_row = frame[["row", "seed"]].drop_duplicates().sort_values("seed").groupby("row")["seed"]
        self.seed_names: dict[Any, tuple[int, ...]] = of_row.agg(tuple).to_dict()
        self.seeds = {row: len(seeds) for row, seeds in self.seed_names.items()}
        self.correct: dict[int, dict[str, dict[int, bytes]]] = {}
        bits = frame.loc[frame[CORRECT].map(len) > 0, ["row", "corruption", "seed", CORRECT]]
        for row, corruption, seed, packed in zip(*(bits[name].tolist() for name in bits), strict=True):
            self.correct.setdefault(row, {}).setdefault(corruption, {})[seed] = packed
        self.reliabilities = reliabilities(frame)
        self.unknown = unknown_figures(frame)
        self.windows = windows(frame)
        self.several_orders = several_orders(frame)
        self.orders = {row: of for row, of in orders(frame).items() if row not in self.several_orders}
        self.changed: dict[int, list[str]] = {}  # of the code, for rows with stale cells
        stale = frame.loc[frame["stale"], ["row", "stale_because"]].drop_duplicates()
        for row, because in stale.itertuples(index=False):
            known = self.changed.setdefault(row, [])
            known += [text for text in filter(None, because.split("; ")) if text not in known]
        ok = frame["accuracy"].notna()
        remarkable = frame.assign(ok=ok)[~ok | (frame["alarm"] != "")]
        shown = remarkable[["row", "corruption", "seed", "ok", "status", "reason", "alarm"]]
        cells = shown.itertuples(index=False)
        self.troubles: dict[Any, list[Any]] = grouped((cell.row, cell) for cell in cells)
        self._over: dict[tuple[str, ...], tuple[dict[Any, float], dict[Any, float]]] = {}

    def over_seeds(self, row: int, seeds: tuple[int, ...]) -> RowNumbers:
        """Those of one row over some of its seeds, by the same number of the row."""
        return RowNumbers(self._frame[(self._frame["row"] == row) & self._frame["seed"].isin(seeds)])

    def complete(self, row: int, column: str) -> bool:
        """Whether every seed of the row has a number."""
        return self.measured[row].get(column, 0) == self.seeds[row]

    def mean(self, row: int, over: tuple[str, ...]) -> tuple[float, float]:
        """Mean and sd, over seeds, of the mean over corruptions."""
        if over not in self._over:
            columns = self.by_seed.reindex(columns=list(over))  # one row may lack some of a table's columns
            by_seed = columns.mean(axis=1, skipna=False).groupby(level="row")
            whole = by_seed.count() == by_seed.size()
            self._over[over] = (by_seed.mean().where(whole).to_dict(), by_seed.std().where(whole).to_dict())
        means, sds = self._over[over]
        return means[row], sds[row]


def _nested(series: pd.Series[Any]) -> dict[int, dict[str, float]]:
    """A series over (row, column) as row → column → value."""
    pairs: dict[Any, float] = series.to_dict()
    return by_row(pairs.items())
