"""How well foreign images are told from test images, see `ttabench.observe.unknown_classes`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from ttabench.store.columns import UNKNOWN
from ttabench_reports.cells.grouped import by_row

FOREIGN = "foreign_images"

Figures = Mapping[str, float]
"""The figures of a row by the names of `ttabench.store.columns.UNKNOWN`, percent; NaN where there is none."""


def unknown_figures(frame: pd.DataFrame) -> dict[int, dict[str, dict[str, float]]]:
    """By number of row and corruption, mean over the seeds; only where every cell with a number has them.

    frame  cells with `row`, `corruption`, `accuracy`, `foreign_images` and :data:`UNKNOWN`.
    """
    ok = frame[frame["accuracy"].notna()]
    if not ok[FOREIGN].notna().any():
        return {}
    grouped = ok.groupby(["row", "corruption"], sort=False)[[FOREIGN, *UNKNOWN]]
    whole = grouped.count().eq(grouped.size(), axis=0)
    means = grouped.mean().where(whole).dropna(subset=[FOREIGN])
    records = ({str(name): float(value) for name, value in one.items()} for one in means.to_dict("records"))
    return by_row(zip(means.index.tolist(), records, strict=True))


def over(parts: Mapping[str, Figures], corruptions: Sequence[str]) -> dict[str, float]:
    """The means over these corruptions; {} where one of them is lacking."""
    if not corruptions or any(corruption not in parts for corruption in corruptions):
        return {}
    chosen = [parts[corruption] for corruption in corruptions]
    return {name: sum(one[name] for one in chosen) / len(chosen) for name in (FOREIGN, *UNKNOWN)}
