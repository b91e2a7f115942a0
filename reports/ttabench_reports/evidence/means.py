"""The mean of each method over the corruptions, with its baseline, as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from ttabench_reports.cells.grouped import grouped
from ttabench_reports.evidence.given import given
from ttabench_reports.tables.table import LABEL, LEGEND, Row, Table
from ttabench_reports.words.naming import MEAN


def means(built: Sequence[Table]) -> pd.DataFrame:
    """Means over the corruptions per dataset × severity × arch × method: baseline, accuracy, increase."""
    lines = []
    for table in built:
        for row in table.measured_rows:
            mean, clean = row.value(MEAN), row.about["clean_accuracy"]
            source = row if row.kind == "source" else row.baseline
            lines.append({
                "table": table.title, "dataset": table.key["dataset"], "severity": table.key["severity"],
                "arch": row.arch, "method": row.method,
                "baseline": math.nan if source is None else source.value(MEAN),
                "accuracy": mean, "sd": row.sd[MEAN], "increase": row.rise,
                "clean": clean, "drop": clean - mean, "corruptions": len(table.main),
                "seeds": row.about["seeds"], "n_images": row.about["n_images"],
                "seconds_per_cell": row.about["seconds"], "mode": row.about["mode"],
                "batch_size": row.about["batch_size"],
                **{name: table.key[name] for name in ("order", "reset", "stream")},
                **given(row.about).columns(), "notes": notes(row),
            })  # fmt: skip
    return pd.DataFrame(lines)


def notes(row: Row) -> str:
    """The footnotes of one row in words, each with the columns it is about."""
    about = grouped((text, column) for column, texts in row.remarks.items() for text in texts)
    parts = [LEGEND[flag] for flag in row.flags]
    for text, columns in about.items():
        parts.append(text if columns in ([LABEL], [MEAN]) else f"{text} ({', '.join(filter(None, columns))})")
    return "; ".join(parts)
