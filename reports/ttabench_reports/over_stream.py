"""Accuracy over a stream: windows of long streams, and the order of corruptions in continual sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ttabench_reports.frames import DETAILS


@dataclass(frozen=True)
class Windows:
    """Accuracy (percent) in each window of `length` images: of every seed, and the mean over the seeds."""

    length: int
    by_seed: Mapping[int, NDArray[np.float64]]

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """Mean over the seeds."""
        mean: NDArray[np.float64] = np.mean(list(self.by_seed.values()), axis=0)
        return mean

    def merged(self, most: int) -> Windows:
        """Longer windows, at most `most`. The last may be of fewer windows than the others."""
        each = -(-len(self.accuracy) // most)
        starts = range(0, len(self.accuracy), each)
        merged = {
            seed: np.array([accuracy[start : start + each].mean() for start in starts])
            for seed, accuracy in self.by_seed.items()
        }
        return Windows(self.length * each, merged)


def windows(frame: pd.DataFrame) -> dict[int, dict[str, Windows]]:
    """By number of row and corruption, where the cells have windows of one length.

    frame  cells with `row`, `corruption`, `seed` and :data:`frames.DETAILS`.
    """
    stored: dict[tuple[int, str], dict[int, Mapping[str, Any]]] = {}
    columns = (frame[name].to_numpy().tolist() for name in ("row", "corruption", "seed", DETAILS))
    for row, corruption, seed, details in zip(*columns, strict=True):
        if isinstance(details, Mapping) and (windows := details.get("windows")):
            stored.setdefault((row, corruption), {})[seed] = windows
    by_row: dict[int, dict[str, Windows]] = {}
    for (row, corruption), seeds in stored.items():
        shapes = {(int(windows["length"]), len(windows["accuracy"])) for windows in seeds.values()}
        if len(shapes) == 1:
            by_seed = {seed: np.array(windows["accuracy"], float) for seed, windows in seeds.items()}
            by_row.setdefault(row, {})[corruption] = Windows(shapes.pop()[0], by_seed)
    return by_row


def orders(frame: pd.DataFrame) -> dict[int, tuple[str, ...]]:
    """The corruptions of each row of a continual sweep, by number of row, in the order of the stream."""
    continual = frame[frame["reset"] == "continual"]
    seen = [len(history.split()) for history in continual["history"]]
    places = pd.Series(seen, continual.index, dtype=float)
    mean = places.groupby([continual["row"], continual["corruption"]]).mean().sort_values(kind="stable")
    by_row: dict[int, tuple[str, ...]] = {}
    keys: list[tuple[int, str]] = mean.index.tolist()
    for row, corruption in keys:
        by_row[row] = (*by_row.get(row, ()), corruption)
    return by_row
