"""The measured rows of tables as lines for analysis: means with their baseline, unknown classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from ttabench.store.columns import UNKNOWN
from ttabench_reports.cells.grouped import grouped
from ttabench_reports.cells.unknown_classes import FOREIGN
from ttabench_reports.evidence.given import given
from ttabench_reports.tables.table import LABEL, Row, Table, legend_of
from ttabench_reports.words.naming import MEAN


def line_of(table: Table, row: Row, **own: Any) -> dict[str, Any]:
    """Where a row is from, its `own` columns, what its method was given, and its footnotes."""
    return {
        "table": table.title, "dataset": table.key["dataset"], "severity": table.key["severity"],
        "arch": row.arch, "method": row.method, **own, **given(row.about).columns(), "notes": notes(row),
    }  # fmt: skip


def means(built: Sequence[Table]) -> pd.DataFrame:
    """Means over the corruptions per dataset × severity × arch × method: baseline, accuracy, increase."""
    lines = []
    for table in built:
        for row in table.measured_rows:
            mean, clean, about = row.value(MEAN), row.about["clean_accuracy"], row.about
            source = row if row.kind == "source" else row.baseline
            lines.append(line_of(
                table, row, baseline=math.nan if source is None else source.value(MEAN),
                accuracy=mean, sd=row.sd[MEAN], increase=row.rise, clean=clean, drop=clean - mean,
                corruptions=len(table.main), seeds=about["seeds"], n_images=about["n_images"],
                seconds_per_cell=about["seconds"], mode=about["mode"], batch_size=about["batch_size"],
                **{name: table.key[name] for name in ("order", "reset", "stream")},
            ))  # fmt: skip
    return pd.DataFrame(lines)


def unknown_frame(tables: Sequence[Table]) -> pd.DataFrame:
    """One line per contaminated table and method: means over the corruptions and seeds, in percent."""
    lines = [
        {
            **{name: table.key[name] for name in ("dataset", "severity", "contamination")},
            "arch": row.arch, "method": row.method,
            "accuracy": row.value(MEAN), FOREIGN: row.unknown[FOREIGN],
            **{name: row.unknown[name] for name in UNKNOWN},
            "n_images": row.about["n_images"], "seeds": row.about["seeds"], "mode": row.about["mode"],
            "batch_size": row.about["batch_size"], "table": table.title, **given(row.about).columns(),
            "notes": notes(row),
        }
        for table in tables
        for row in table.rows
        if row.unknown
    ]  # fmt: skip
    return pd.DataFrame(lines)


def notes(row: Row) -> str:
    """The footnotes of one row in words, each with the columns it is about."""
    about = grouped((text, column) for column, texts in row.remarks.items() for text in texts)
    parts = [*legend_of([row]).values()]
    for text, columns in about.items():
        parts.append(text if columns in ([LABEL], [MEAN]) else f"{text} ({', '.join(filter(None, columns))})")
    return "; ".join(parts)
