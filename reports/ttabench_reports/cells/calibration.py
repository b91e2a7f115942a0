"""Reliability: accuracy by confidence, from the bins that cells store, see `ttabench.observe.calibration`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from struct import Struct

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ttabench.store.record_values import BINS, OF_BINS
from ttabench_reports.cells.frames import CALIBRATION
from ttabench_reports.cells.grouped import by_row

_BINS = Struct(f"{len(OF_BINS) * BINS}d")


@dataclass(frozen=True)
class Reliability:
    """Sums over cells.

    bins   (3, BINS): images, sum of confidences, right ones.
    error  expected calibration error in percent: the distance of confidence from accuracy, averaged over the
           images of a cell by bin (Naeini et al., AAAI 2015), then over the cells.
    """

    bins: NDArray[np.float64]
    error: float

    @property
    def confidence(self) -> NDArray[np.float64]:
        """Mean of each bin, 0 … 1; NaN for an empty one."""
        return self._mean(1)

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """Share of right images of each bin, 0 … 1; NaN for an empty one."""
        return self._mean(2)

    def _mean(self, row: int) -> NDArray[np.float64]:
        count = self.bins[0]
        mean: NDArray[np.float64] = np.where(count > 0, self.bins[row] / np.maximum(count, 1), np.nan)
        return mean


def packed(bins: Mapping[str, Sequence[float]]) -> bytes:
    """The bins of a cell as float64 (OF_BINS, BINS), in a sixth of the memory; b"" of none."""
    return _BINS.pack(*chain.from_iterable([bins[key] for key in OF_BINS])) if bins else b""


def reliabilities(frame: pd.DataFrame) -> dict[int, dict[str, Reliability]]:
    """By number of row and corruption, over the seeds; only where every cell with a number has its bins.

    frame  cells with `row`, `corruption`, `accuracy` and :data:`frames.CALIBRATION`.
    """
    ok = frame[frame["accuracy"].notna()]
    stored: list[bytes] = ok[CALIBRATION].to_numpy().tolist()
    if not any(stored):
        return {}
    bins = np.frombuffer(b"".join(stored)).reshape(-1, len(OF_BINS), BINS)  # of each cell
    errors = 100 * np.abs(bins[:, 1] - bins[:, 2]).sum(axis=1) / bins[:, 0].sum(axis=1)
    places = list(zip(ok["row"].tolist(), ok["corruption"].to_numpy().tolist(), strict=True))
    numbers: dict[tuple[int, str], int] = {}
    whole = [place for place, one in zip(places, stored, strict=True) if one]
    of_cell = np.array([numbers.setdefault(place, len(numbers)) for place in whole])
    order = np.argsort(of_cell, kind="stable")
    starts = np.flatnonzero(np.diff(of_cell[order], prepend=-1))
    sums = np.add.reduceat(bins[order], starts, axis=0)
    means = np.add.reduceat(errors[order], starts) / np.diff(starts, append=len(order))
    lacking = {place for place, one in zip(places, stored, strict=True) if not one}
    return by_row(
        (place, Reliability(sums[number], float(means[number])))
        for place, number in numbers.items() if place not in lacking
    )  # fmt: skip


def total(parts: Mapping[str, Reliability], corruptions: Sequence[str]) -> Reliability | None:
    """Over these corruptions; None where one of them is lacking."""
    if not corruptions or any(corruption not in parts for corruption in corruptions):
        return None
    chosen = [parts[corruption] for corruption in corruptions]
    bins = np.sum([one.bins for one in chosen], axis=0)
    return Reliability(bins, float(np.mean([one.error for one in chosen])))
