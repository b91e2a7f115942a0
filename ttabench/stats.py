"""How sure a number is: spread over seeds, intervals for accuracies and for paired differences.

Two methods on one cell are scored on the same images, so their difference is far better known than
either accuracy: only the images that exactly one of them got right count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Difference:
    """points = 100 · (mean of the second − mean of the first), its interval, and a two-sided p-value."""

    points: float
    low: float
    high: float
    p_value: float


def mean_sd(values: ArrayLike) -> tuple[float, float]:
    """Mean and standard deviation (ddof 1) of `values`, e.g. accuracies over seeds; sd is NaN below two.

    Raises ValueError for no values: a mean of nothing is a mistake upstream.
    """
    x = np.asarray(values, dtype=float)
    if x.size == 0:
        raise ValueError("no values to average")
    return float(x.mean()), float(x.std(ddof=1)) if x.size > 1 else math.nan


def wilson(
    accuracy: ArrayLike, n_images: ArrayLike, confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Score interval (low, high) in percent of an accuracy in percent over `n_images` independent images.

    Broadcasts; within 0 … 100 and never empty, also at 0 and 100 percent (Wilson, JASA 22, 1927).
    Raises ValueError for a confidence outside (0, 1).
    """
    z = _quantile(confidence)
    p, n = np.asarray(accuracy, dtype=float) / 100, np.asarray(n_images, dtype=float)
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return 100 * np.clip(centre - half, 0, 1), 100 * np.clip(centre + half, 0, 1)


def paired(first: ArrayLike, second: ArrayLike, confidence: float = 0.95) -> Difference:
    """Second minus first, from two correctness bitmaps (n,) over the same images.

    The interval is Newcombe's for paired proportions (Statistics in Medicine 17, 1998, method 10),
    which is right also near 100 percent; the p-value is McNemar's exact test.
    Raises ValueError unless both are boolean vectors of one length.
    """
    a, b = _bitmaps(first, second)
    if a.ndim != 1:
        raise ValueError(f"correctness has shape {a.shape}; expected (n,)")
    from scipy.stats import binomtest

    n = len(a)
    only_first, only_second = int((a & ~b).sum()), int((~a & b).sum())
    change = (only_second - only_first) / n
    # The two score intervals are combined as if for independent samples, less what they share.
    (low_a, low_b), (high_a, high_b) = (
        side / 100 for side in wilson([100 * a.mean(), 100 * b.mean()], n, confidence)
    )
    shared = 2 * _correlation(a, b)
    down_b, up_b, down_a, up_a = b.mean() - low_b, high_b - b.mean(), a.mean() - low_a, high_a - a.mean()
    below = math.sqrt(max(down_b**2 - shared * down_b * up_a + up_a**2, 0.0))
    above = math.sqrt(max(up_b**2 - shared * up_b * down_a + down_a**2, 0.0))
    discordant = only_first + only_second
    p_value = float(binomtest(only_second, discordant, 0.5).pvalue) if discordant else 1.0
    return Difference(100 * change, 100 * (change - below), 100 * (change + above), p_value)


def paired_mean(first: ArrayLike, second: ArrayLike, confidence: float = 0.95) -> Difference:
    """Second minus first, averaged over cells that share their images: two bitmaps (cells, n).

    One image under fifteen corruptions is not fifteen independent images, so the image is the unit:
    a t interval and test over the per-image mean differences.
    Raises ValueError unless both are boolean (cells, n) of one shape with n ≥ 2.
    """
    a, b = _bitmaps(first, second)
    if a.ndim != 2 or a.shape[1] < 2:
        raise ValueError(f"correctness has shape {a.shape}; expected (cells, n) with n of at least 2")
    from scipy.stats import t

    n = a.shape[1]
    by_image = b.mean(axis=0) - a.mean(axis=0)
    change, error = float(by_image.mean()), float(by_image.std(ddof=1)) / math.sqrt(n)
    half = float(t.ppf(0.5 + _checked(confidence) / 2, n - 1)) * error
    p_value = float(2 * t.sf(abs(change) / error, n - 1)) if error > 0 else float(change == 0)
    return Difference(100 * change, 100 * (change - half), 100 * (change + half), p_value)


def _bitmaps(first: ArrayLike, second: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    a, b = np.asarray(first), np.asarray(second)
    if a.dtype != np.bool_ or b.dtype != np.bool_:
        raise ValueError(f"correctness has type {a.dtype} and {b.dtype}; expected bool")
    if a.shape != b.shape or a.size == 0:
        raise ValueError(f"correctness has shapes {a.shape} and {b.shape}; expected the same images in both")
    return a, b


def _correlation(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> float:
    """Newcombe's continuity-corrected φ; 0 where one of the two is constant."""
    n = len(a)
    both, first, second = int((a & b).sum()), int((a & ~b).sum()), int((~a & b).sum())
    neither = n - both - first - second
    spread = float((both + first) * (second + neither) * (both + second) * (first + neither))
    if spread == 0:
        return 0.0
    agreement = both * neither - first * second
    return (max(agreement - n / 2, 0.0) if agreement > 0 else agreement) / math.sqrt(spread)


def _checked(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; expected a value between 0 and 1, e.g. 0.95")
    return confidence


def _quantile(confidence: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(0.5 + _checked(confidence) / 2))
