"""Accuracy over a stream: windows of long streams, and the order of corruptions in continual sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ttabench_reports.cells.frames import DETAILS
from ttabench_reports.cells.grouped import by_row, grouped


@dataclass(frozen=True)
class Windows:
    """Accuracy (percent) in each window of `length` images: of every seed, and the mean over the seeds.

    sizes  images in each window (windows,); the last may have fewer than `length`.
    """

    length: int
    by_seed: Mapping[int, NDArray[np.float64]]
    sizes: NDArray[np.int64]

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """Mean over the seeds."""
        mean: NDArray[np.float64] = np.mean(list(self.by_seed.values()), axis=0)
        return mean

    def merged(self, most: int) -> Windows:
        """Longer windows, at most `most`. The last may have fewer images than the others, but at least half.

        With fewer, they belong to the window before: the accuracy of a few images would look like a change.
        """
        each = -(-len(self.sizes) // most)
        starts = np.arange(0, len(self.sizes), each)
        if len(starts) > 1 and 2 * self.sizes[starts[-1] :].sum() < self.length * each:
            starts = starts[:-1]
        sizes = np.add.reduceat(self.sizes, starts)
        merged = {
            seed: np.add.reduceat(accuracy * self.sizes, starts) / sizes
            for seed, accuracy in self.by_seed.items()
        }
        return Windows(self.length * each, merged, sizes)


def windows(frame: pd.DataFrame) -> dict[int, dict[str, Windows]]:
    """By number of row and corruption, where the cells have windows of one length.

    frame  cells with `row`, `corruption`, `seed`, `n_images` and :data:`frames.DETAILS`.
    """
    stored: dict[tuple[int, str], dict[int, Mapping[str, Any]]] = {}
    images: dict[tuple[int, str], int] = {}
    columns = (frame[name].to_numpy().tolist() for name in ("row", "corruption", "seed", "n_images", DETAILS))
    for row, corruption, seed, n_images, details in zip(*columns, strict=True):
        if isinstance(details, dict) and (windows := details.get("windows")):
            stored.setdefault((row, corruption), {})[seed] = windows
            images[row, corruption] = max(n_images, images.get((row, corruption), 0))
    made: dict[tuple[int, str], Windows] = {}
    for place, seeds in stored.items():
        shapes = {(int(windows["length"]), len(windows["accuracy"])) for windows in seeds.values()}
        if len(shapes) == 1:
            by_seed = {seed: np.array(windows["accuracy"], float) for seed, windows in seeds.items()}
            length, count = shapes.pop()
            made[place] = Windows(length, by_seed, _sizes(length, count, images[place]))
    return by_row(made.items())


def _sizes(length: int, count: int, images: int) -> NDArray[np.int64]:
    """Images in each of `count` windows; the last may have fewer."""
    sizes = np.full(count, length)
    rest = images - length * (count - 1)
    if 0 < rest <= length:
        sizes[-1] = rest
    return sizes


def orders(frame: pd.DataFrame) -> dict[int, tuple[str, ...]]:
    """The corruptions of each row of a continual sweep, by number of row, in the order of the stream."""
    continual = frame[frame["reset"] == "continual"]
    if continual.empty:
        return {}
    seen = [len(history.split()) for history in continual["history"]]
    places = pd.Series(seen, continual.index, dtype=float)
    mean = places.groupby([continual["row"], continual["corruption"]]).mean().sort_values(kind="stable")
    keys: list[tuple[int, str]] = mean.index.tolist()
    return {row: tuple(corruptions) for row, corruptions in grouped(keys).items()}


def several_orders(frame: pd.DataFrame) -> frozenset[int]:
    """The numbers of the rows of a continual sweep whose seeds have different orders of corruptions."""
    ran = frame[(frame["reset"] == "continual") & (frame["base"] != "source") & frame["accuracy"].notna()]
    differ = ran.groupby(["row", "corruption"])["history"].nunique() > 1
    keys: list[tuple[int, str]] = differ.index[differ].tolist()
    return frozenset(row for row, _ in keys)
