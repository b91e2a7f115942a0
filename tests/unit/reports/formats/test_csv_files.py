"""The CSV files of a report: what pandas would write."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cases import each
from ttabench_reports.formats.csv_files import as_csv
from ttabench_reports.formats.files import write_lines

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
    assert "\n".join([*as_csv(frame), ""]) == frame.to_csv(index=False, lineterminator="\n")


def test_lines_are_written_as_they_are(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "new" / "a.csv", ['é,"two\r\nlines"', ""])
    assert path.read_bytes() == 'é,"two\r\nlines"\n\n'.encode()


def test_a_file_stays_whole_where_its_next_lines_cannot_be_made(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        yield "new"
        raise KeyError

    path = write_lines(tmp_path / "a.csv", ["old"])
    with pytest.raises(KeyError):
        write_lines(path, lines())
    assert [each.read_text() for each in tmp_path.iterdir()] == ["old\n"]
