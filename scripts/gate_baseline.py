"""The baseline of CI's accuracy gate that was made with the weights that are trained here.

    python scripts/gate_baseline.py RESULTS

Processors with AVX-512 and with AVX2 train other weights by the same recipe, and with other weights
accuracies differ by points. Prints the file tests/regression/baseline*.csv whose weights are those of the
cells in RESULTS; baseline.csv where no file has them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from ttabench.store import load_frame

BASELINES = Path(__file__).resolve().parents[1] / "tests" / "regression"


def fitting(files: Iterable[Path], weights: set[str]) -> Path:
    """The first file with just these weights (hashes); the first of all where none has."""
    ordered = sorted(files, key=lambda file: file.stem)
    return next((file for file in ordered if set(pd.read_csv(file)["checkpoint"]) == weights), ordered[0])


def main() -> None:
    weights = set(load_frame(Path(sys.argv[1]))["checkpoint"])
    print(fitting(BASELINES.glob("baseline*.csv"), weights))


if __name__ == "__main__":
    main()
