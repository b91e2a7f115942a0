"""CI's accuracy gate takes the baseline with the weights that this kind of machine trains."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))
from gate_baseline import BASELINES, fitting


def written(folder: Path, name: str, *weights: str) -> Path:
    pd.DataFrame({"checkpoint": weights}).to_csv(folder / name, index=False)
    return folder / name


def test_the_baseline_with_just_these_weights_is_taken_and_otherwise_the_first(tmp_path: Path) -> None:
    first = written(tmp_path, "baseline.csv", "a", "b", "a")
    other = written(tmp_path, "baseline-other.csv", "c", "d")
    files = [other, first]
    assert fitting(files, {"a", "b"}) == first
    assert fitting(files, {"c", "d"}) == other
    assert fitting(files, {"a", "d"}) == first
    assert fitting(files, {"c"}) == first


def test_the_baselines_have_the_same_cells_and_weights_of_their_own() -> None:
    frames = [pd.read_csv(file) for file in sorted(BASELINES.glob("baseline*.csv"))]
    assert len(frames) > 1
    names = ["method", "arch", "dataset", "corruption", "severity", "seed"]
    cells = [set(frame[names].itertuples(index=False, name=None)) for frame in frames]
    assert all(one == cells[0] for one in cells)
    weights = [set(frame["checkpoint"]) for frame in frames]
    assert len(set.union(*weights)) == sum(map(len, weights))
