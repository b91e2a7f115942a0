"""Paired tests on which images were right: did accuracy fall by more than chance explains?

All are one-sided: small p-values speak for a fall.
"""

from __future__ import annotations

import math

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


def holm(p: NDArray[np.float64], counted: NDArray[np.bool_]) -> NDArray[np.float64]:
    """p-values adjusted for their number (Holm, Scandinavian Journal of Statistics 6, 1979); NaN stay NaN.

    `counted` (same shape): tests that can reject at all. The others keep their p and do not weigh on the
    rest (Tarone, Biometrics 46, 1990).
    """
    return np.where(counted, stats.holm(np.where(counted, p, np.nan)), p)


def one_of(families: int, p: NDArray[np.float64]) -> NDArray[np.float64]:
    """p-values of one of several families of tests, adjusted for their number (Bonferroni); NaN stay NaN.

    So the chance of a false alarm in any of them is the level, and not the level times `families`.
    """
    return np.minimum(families * p, 1)


def typical_smallest_fall(
    changed: NDArray[np.int64], n_images: NDArray[np.int64], level: float, tests: int
) -> float:
    """The median over cells of :func:`smallest_fall`, in points; NaN without cells, or where no test decides.

    changed, n_images (cells,)
    level   that the smallest p of `tests` corrected ones has to reach (Holm's first step).
    """
    if not len(changed) or level >= 0.5:
        return math.nan
    level /= max(tests, 1)
    pairs, counts = np.unique(np.stack([changed, n_images]), axis=1, return_counts=True)
    falls = [smallest_fall(int(change), int(size), level) for change, size in pairs.T]
    return float(np.median(np.repeat(falls, counts)))


def smallest_fall(changed: int, n_images: int, level: float) -> float:
    """The smallest fall, in points, that McNemar's exact one-sided test confirms at `level`.

    changed   images that only one side has right; where these are too few for any p-value this small, as
              many as it takes.

    >>> round(smallest_fall(60, 600, 0.025), 1)  # 39 lost, 21 won
    3.0
    """
    from scipy.stats import binom

    changed = max(changed, math.ceil(-math.log2(level)))
    lost = int(binom.isf(level, changed, 0.5)) + 1
    return 100 * (2 * min(lost, changed) - changed) / n_images
