"""Known and unknown classes of every method on contaminated streams, as a table for analysis."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ttabench.store.columns import UNKNOWN
from ttabench_reports.cells.unknown import FOREIGN
from ttabench_reports.evidence.given import given
from ttabench_reports.evidence.means import notes
from ttabench_reports.tables.table import Table
from ttabench_reports.words.naming import MEAN


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
