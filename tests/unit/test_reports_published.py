"""The published numbers are the published numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from ttabench.corruptions.names import CORRUPTIONS
from ttabench.errors import UserError
from ttabench_reports import published


def test_every_row_is_whole_and_its_printed_mean_is_its_mean() -> None:
    known = published.load()
    assert tuple(known.columns) == published.COLUMNS
    for key, row in known.groupby(["publication", "dataset", "severity", "arch", "method"]):
        values = row.set_index("corruption")["accuracy"]
        assert set(values.index) == {*CORRUPTIONS, "mean"}, key
        assert len(values) == 16, key
        assert values[list(CORRUPTIONS)].mean() == pytest.approx(values["mean"], abs=0.1), key


def test_the_papers_appendix_is_copied_faithfully(shared: Path) -> None:
    theirs = pd.read_csv(shared / "paper/appendix_tables.csv").rename(
        columns={"accuracy_percent": "accuracy"}
    )
    ours = published.load("quantile2026").drop(columns="publication")
    pd.testing.assert_frame_equal(ours, theirs)


def test_an_unknown_publication_is_named() -> None:
    assert published.publications() == ["quantile2026", "tent2021"]
    with pytest.raises(UserError, match="did you mean 'tent2021'"):
        published.load("tent2012")


def test_reports_import_light_and_never_torch() -> None:
    code = """
import sys
import ttabench_reports
assert not {"pandas", "matplotlib", "rich", "torch"} & set(sys.modules)
import ttabench_reports.compare, ttabench_reports.latex, ttabench_reports.plots
import ttabench_reports.published, ttabench_reports.tables, ttabench_reports.terminal
assert not {"torch", "scipy", "seaborn", "matplotlib.pyplot"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
