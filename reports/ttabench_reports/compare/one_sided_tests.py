"""Paired tests on which images were right: did accuracy fall by more than chance explains?

All are one-sided: small p-values speak for a fall.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ttabench_reports.evidence import stats

Bits = NDArray[np.uint8]  # (cells, bytes), packed
ONES = np.array([byte.bit_count() for byte in range(256)], np.uint8)
"""How many bits of a byte are set. NumPy counts them itself from 2.0 on only."""


def cells_fell(before: Bits, after: Bits) -> NDArray[np.float64]:
    """p of a fall of each cell (row), by McNemar's exact test: (cells,)."""
    lost = ONES[before & ~after].sum(axis=1, dtype=np.int64)
    won = ONES[after & ~before].sum(axis=1, dtype=np.int64)
    return stats.mcnemar(lost, won, alternative="less")


def mean_fell(before: Bits, after: Bits, n_images: int, seeds: NDArray[np.int64]) -> float:
    """p of a fall in the mean over cells (rows) that share their images; `seeds` (cells,).

    See :func:`ttabench_reports.evidence.stats.mean_fell`.
    """
    by_image = np.zeros(n_images)
    by_cell = np.zeros(len(before))
    for start in range(0, len(before), 256):  # bounds memory: a bit unpacks to a byte
        part = slice(start, start + 256)
        for sign, bits in ((1, after[part] & ~before[part]), (-1, before[part] & ~after[part])):
            unpacked = np.unpackbits(bits, axis=1, count=n_images)
            by_image += sign * unpacked.sum(axis=0, dtype=np.int32)
            by_cell[part] += sign * ONES[bits].sum(axis=1, dtype=np.int64)
    of_seeds = [by_cell[seeds == seed].mean() / n_images for seed in np.unique(seeds)]
    return stats.mean_fell(by_image / len(before), of_seeds)


def holm(p: NDArray[np.float64], counted: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
    """p-values adjusted for their number (Holm, Scandinavian Journal of Statistics 6, 1979); NaN stay NaN.

    `counted` (same shape): tests that can reject at all. The others keep their p and do not weigh on the
    rest (Tarone, Biometrics 46, 1990); by default all count.
    """
    adjusted = p.copy()
    tested = ~np.isnan(p) if counted is None else ~np.isnan(p) & counted
    adjusted[tested] = stats.holm(p[tested])
    return adjusted


def one_of(families: int, p: NDArray[np.float64]) -> NDArray[np.float64]:
    """p-values of one of several families of tests, adjusted for their number (Bonferroni); NaN stay NaN.

    So the chance of a false alarm in any of them is the level, and not the level times `families`.
    """
    return np.minimum(families * p, 1)
