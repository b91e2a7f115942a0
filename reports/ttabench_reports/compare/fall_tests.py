"""Paired tests on which images were right: did accuracy fall by more than chance explains?

All are one-sided: small p-values speak for a fall.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ttabench import stats

Bits = NDArray[np.uint8]  # (cells, bytes), packed
LEAST_SEEDS = 3  # two say next to nothing about how much seeds differ
_ONES = np.array([byte.bit_count() for byte in range(256)], np.uint8)


def cells_fell(before: Bits, after: Bits) -> NDArray[np.float64]:
    """p of a fall of each cell (row), by McNemar's exact test: (cells,)."""
    lost = _ONES[before & ~after].sum(axis=1, dtype=np.int64)
    won = _ONES[after & ~before].sum(axis=1, dtype=np.int64)
    return stats.mcnemar(lost, won, alternative="less")


def mean_fell(before: Bits, after: Bits, n_images: int, seeds: NDArray[np.int64]) -> float:
    """p of a fall in the mean over cells (rows) that share their images; `seeds` (cells,).

    One image under fifteen corruptions is not fifteen images, so the image is the unit: a t test over
    each image's mean difference. From three seeds on they are a second unit, for what a method draws at
    random: the variances of both means add up, as for crossed random effects, with Satterthwaite's
    degrees of freedom (Biometrics Bulletin 2, 1946). 1 where nothing differs.
    """
    from scipy.special import stdtr

    by_image = np.zeros(n_images)
    by_cell = np.zeros(len(before))
    for start in range(0, len(before), 256):  # bounds memory: a bit unpacks to a byte
        part = slice(start, start + 256)
        for sign, bits in ((1, after[part] & ~before[part]), (-1, before[part] & ~after[part])):
            unpacked = np.unpackbits(bits, axis=1, count=n_images)
            by_image += sign * unpacked.sum(axis=0, dtype=np.int32)
            by_cell[part] += sign * _ONES[bits].sum(axis=1, dtype=np.int64)
    by_image /= len(before)
    change = float(by_image.mean())
    units = [by_image, np.array([by_cell[seeds == seed].mean() for seed in np.unique(seeds)]) / n_images]
    units = [unit for unit, least in zip(units, (2, LEAST_SEEDS), strict=True) if len(unit) >= least]
    variances = [float(unit.var(ddof=1)) / len(unit) for unit in units]
    if not sum(variances):
        return float(change >= 0)
    freedom = sum(variances) ** 2 / sum(
        v**2 / (len(unit) - 1) for v, unit in zip(variances, units, strict=True) if v
    )
    return float(stdtr(freedom, change / sum(variances) ** 0.5))


def holm(p: NDArray[np.float64], counted: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
    """p-values adjusted for their number (Holm, Scandinavian Journal of Statistics 6, 1979); NaN stay NaN.

    `counted` (same shape): tests that can reject at all. The others keep their p and do not weigh on the
    rest (Tarone, Biometrics 46, 1990); by default all count.
    """
    adjusted = p.copy()
    tested = ~np.isnan(p) if counted is None else ~np.isnan(p) & counted
    adjusted[tested] = stats.holm(p[tested])
    return adjusted
