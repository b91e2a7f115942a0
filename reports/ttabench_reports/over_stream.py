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
    """Accuracy (percent) in each window of `length` images, mean over the seeds."""

    length: int
    accuracy: NDArray[np.float64]

    def merged(self, most: int) -> Windows:
        """Longer windows, at most `most`. The last may be of fewer windows than the others."""
        each = -(-len(self.accuracy) // most)
        starts = range(0, len(self.accuracy), each)
        mean = np.array([self.accuracy[start : start + each].mean() for start in starts])
        return Windows(self.length * each, mean)


def windows(frame: pd.DataFrame) -> dict[int, dict[str, Windows]]:
    """By number of row and corruption, where the cells have windows of one length.

    frame  cells with `row`, `corruption` and :data:`frames.DETAILS`.
    """
    stored: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    columns = (frame[name].to_numpy().tolist() for name in ("row", "corruption", DETAILS))
    for row, corruption, details in zip(*columns, strict=True):
        if isinstance(details, Mapping) and (windows := details.get("windows")):
            stored.setdefault((row, corruption), []).append(windows)
    by_row: dict[int, dict[str, Windows]] = {}
    for (row, corruption), seeds in stored.items():
        if len({(windows["length"], len(windows["accuracy"])) for windows in seeds}) == 1:
            mean = np.mean([windows["accuracy"] for windows in seeds], axis=0)
            by_row.setdefault(row, {})[corruption] = Windows(int(seeds[0]["length"]), mean)
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
