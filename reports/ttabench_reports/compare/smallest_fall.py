"""How large a fall has to be before the paired test of a cell can confirm it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


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
