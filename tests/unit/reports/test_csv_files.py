"""The CSV files of a report: what pandas would write."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from tests.cases import each
from ttabench_reports.formats.csv_files import as_csv

COLUMNS = {
    "numbers": [0.0, -0.0, 0.1, math.nan, 1e-20, 1e22, math.inf],
    "whole": [0, 1, -1, 2**53, 7, 7, 7],
    "flags": [True, False, True, True, False, False, True],
    "texts": ["", "a,b", 'a "word"', "two\nlines", "é", " ", "nan"],
    "mixed": [1, True, 1.0, None, "1", math.nan, np.float64(-0.0)],
    "absent": [math.nan] * 7,
    "a name, quoted": ["x"] * 7,
}


@each(
    "frame",
    [
        pd.DataFrame(COLUMNS),
        pd.DataFrame({"whole": pd.array([1, None, 3], "Int64"), "texts": ["a", None, "a"]}),
        pd.DataFrame(COLUMNS)[:0],
    ],
    ids=["all kinds", "with gaps", "no rows"],
)
def test_a_file_is_what_pandas_writes(frame: pd.DataFrame) -> None:
    assert as_csv(frame) == frame.to_csv(index=False, lineterminator="\n")
