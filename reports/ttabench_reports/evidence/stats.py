"""Uncertainty of results: intervals and paired tests, with images and seeds as units.

Two methods on one cell are scored on the same images. So their difference is known more precisely than either
accuracy: only images that exactly one method classifies correctly matter. Seeds are a second level of
randomness: another seed gives another number on the same images. Two seeds say next to nothing about how
much seeds differ. So seeds are a unit from :data:`LEAST_SEEDS` on; with fewer, they are taken as given, and
intervals and tests are about the images alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEAST_SEEDS = 3
"""From so many seeds on, intervals and tests include the randomness of seeds."""


def wilson(
    accuracy: ArrayLike, n_images: ArrayLike, confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Score interval (low, high) in percent of an accuracy in percent over `n_images` independent images.

    Broadcasts; within 0 … 100 and never empty, also at 0 and 100 percent (Wilson, JASA 22, 1927).
    Raises ValueError for a confidence outside (0, 1).
    """
    from scipy.special import ndtri

    z = float(ndtri(0.5 + _checked(confidence) / 2))
    p, n = np.asarray(accuracy, dtype=float) / 100, np.asarray(n_images, dtype=float)
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return 100 * np.clip(centre - half, 0, 1), 100 * np.clip(centre + half, 0, 1)


def mcnemar(
    only_first: ArrayLike, only_second: ArrayLike, alternative: Literal["two-sided", "less"] = "two-sided"
) -> NDArray[np.float64]:
    """p-values of McNemar's exact test, from numbers of images that only one method got right.

    alternative   two-sided: the methods differ; less: the second gets fewer images right than the first.

    Broadcasts; 1 if there is no such image (McNemar, Psychometrika 12, 1947). Equals scipy's
    ``binomtest(only_second, only_first + only_second, 0.5, alternative)``.
    """
    from scipy.special import bdtr

    a, b = np.asarray(only_first, dtype=np.int64), np.asarray(only_second, dtype=np.int64)
    total = np.maximum(a + b, 1)
    p: NDArray[np.float64]
    if alternative == "less":
        p = bdtr(b.astype(float), total, 0.5)
    else:
        p = np.minimum(2 * bdtr(np.minimum(a, b).astype(float), total, 0.5), 1.0)
    return np.where(a + b > 0, p, 1.0)


def mean_fell(by_image: ArrayLike, by_seed: ArrayLike = ()) -> float:
    """One-sided p-value of a mean below zero, from its parts by image (n,) and by seed (seeds,), n ≥ 1.

    One image under fifteen corruptions is not fifteen images, so the image is the unit: Student's t over the
    images. From :data:`LEAST_SEEDS` on, seeds are a second unit, for what a method draws at random: the
    variances of both means add up, as for crossed random effects, with Satterthwaite's degrees of freedom
    (Biometrics Bulletin 2, 1946). 1 where nothing differs.

    With few seeds it finds more than :meth:`Moments.p_values`, the levels at which intervals reach zero.
    """
    from scipy.special import stdtr

    parts = [(np.asarray(by_image, float), 2), (np.asarray(by_seed, float), LEAST_SEEDS)]
    change = float(parts[0][0].mean())
    units = [unit for unit, least in parts if len(unit) >= least]
    # The variance of equal numbers may be 1e-34 instead of 0, because their mean is rounded.
    variances = [float(unit.var(ddof=1)) / len(unit) if np.ptp(unit) else 0.0 for unit in units]
    if not sum(variances):  # all images change alike: the sign test
        return 0.5 ** len(parts[0][0]) if change < 0 else 1.0
    freedom = sum(variances) ** 2 / sum(
        v**2 / (len(unit) - 1) for v, unit in zip(variances, units, strict=True) if v
    )
    return float(stdtr(freedom, change / sum(variances) ** 0.5))


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """p-values (m,) adjusted for m tests (Holm, Scandinavian Journal of Statistics 6, 1979).

    NaN means that a test was not made: it stays NaN and is not counted.
    """
    p = np.asarray(p_values, dtype=float)
    adjusted = np.full(p.shape, math.nan)
    made = np.flatnonzero(~np.isnan(p))
    order = made[np.argsort(p[made], kind="stable")]
    steps = np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1))
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


TIMES = 1000
STEP = 20  # of the 500 levels of p-values: the nearest are looked for in two steps


@lru_cache(maxsize=2)
def resamples(n_images: int) -> NDArray[np.uint8]:
    """How often each image is in each of :data:`TIMES` bootstrap samples: (TIMES, n); the same on every call.

    All values on n images use the same samples, so differences of bootstrap means are paired.
    """
    rng = np.random.Generator(np.random.PCG64(0))
    counts = np.empty((TIMES, n_images), np.uint8)
    for row in counts:
        row[:] = np.bincount(rng.integers(0, n_images, n_images), minlength=n_images)
    return counts


def bootstrap_means(values: ArrayLike) -> NDArray[np.float32]:
    """Means of :func:`resamples` of the images of each row: (rows, n) → (times, rows)."""
    x = np.asarray(values, dtype=np.float32)
    counts = resamples(x.shape[1])
    total = np.zeros((len(counts), len(x)), np.float32)
    for start in range(0, x.shape[1], 4096):  # in parts, to limit the memory
        part = slice(start, start + 4096)
        total += counts[:, part].astype(np.float32) @ x[:, part].T
    return total / np.float32(x.shape[1])


def percentiles(draws: ArrayLike, confidence: float = 0.95) -> NDArray[np.float64]:
    """(low, high) that hold this share of draws (times, …) between them: (2, …)."""
    tail = 0.5 - _checked(confidence) / 2
    bounds: NDArray[np.float64] = np.quantile(np.asarray(draws, dtype=float), [tail, 1 - tail], axis=0)
    return bounds


@dataclass(frozen=True)
class Spread:
    """A mean over seeds and images, and its standard errors.

    mean          of values (seeds, n).
    plain         standard error over images, which includes part of the variance between seeds.
    images        the same without that part.
    seeds         standard error over seeds, which includes part of the variance between images; 0 for fewer
                  than LEAST_SEEDS.
    n_images, n_seeds

    The variance of the mean is images² + seeds²: (MS_image − MS_rest)/(n·seeds) and MS_seed/(n·seeds), with
    the mean squares of the analysis of variance of the values by seed and image.
    """

    mean: float
    plain: float
    images: float
    seeds: float
    n_images: int
    n_seeds: int

    @classmethod
    def from_moments(cls, sums: NDArray[np.float64], across: Any, within: Any, n: int) -> Spread:
        """From the sums over n images (seeds,) and of products, see :class:`Moments`."""
        mean, plain, images, by_seed = (float(value) for value in _components(sums, across, within, n))
        return cls(mean, math.sqrt(plain), math.sqrt(images), math.sqrt(by_seed), n, len(sums))

    def between(self, low: float, high: float, confidence: float = 0.95) -> tuple[float, float]:
        """The interval (low, high), from :func:`percentiles` of the draws of the mean.

        These draws are :func:`bootstrap_means` of the values' mean over the seeds, (times,).
        With one or two seeds: the bootstrap's percentile interval over images, without the randomness of
        seeds. Where fewer than three images differ from the others, it is too narrow (86 % with two).
        With more seeds: the half widths of images (bootstrap) and seeds (Student's t) are added in squares
        (MOVER: Zou and Donner, Statistics in Medicine 27, 2008).
        """
        # The bootstrap has the variance of n images around their own mean, including the randomness of seeds.
        wider = math.sqrt(self.n_images / (self.n_images - 1)) * (
            self.images / self.plain if self.plain else 1
        )
        below, above = wider * max(self.mean - low, 0.0), wider * max(high - self.mean, 0.0)
        half = _student(self.n_seeds - 1, confidence) * self.seeds if self.seeds else 0.0
        return self.mean - math.hypot(below, half), self.mean + math.hypot(above, half)


class Moments:
    """Sums and products of the values of several methods on the same images, for paired tests.

    values  (methods, seeds, n): whole numbers such as 0 and 1 for wrong and right, or counts of corruptions.
            They are summed exactly.
    sums    (methods, seeds), over the images.
    across  (methods, methods): of the products of each seed of one with each seed of the other, over all.
    within  (methods, methods): of the products of the same seed.
    """

    def __init__(self, values: NDArray[Any]) -> None:
        methods, seeds, self.n = values.shape
        most = int(values.max(initial=0))
        if values.dtype == np.uint8 and most <= 1 and hasattr(np, "bitwise_count"):  # NumPy 2
            packed = np.packbits(values, axis=2)
            words = np.pad(packed, ((0, 0), (0, 0), (0, -packed.shape[2] % 8))).view(np.uint64)
            self.sums = np.bitwise_count(words).sum(axis=2).astype(float)
            self.within = _both_right(words.reshape(methods, -1))
        else:
            self.sums = values.sum(axis=2).astype(float)
            self.within = _products(values.reshape(methods, -1), most)
        over_seeds = values.sum(axis=1, dtype=np.min_scalar_type(seeds * most))
        self.across = _products(over_seeds, seeds * most) if seeds > 1 else self.within
        self._totals: list[float] = self.sums.sum(axis=1).tolist()

    def is_lower(self, method: int, other: int) -> bool:
        """Whether the mean of a method's values is below the other's."""
        return self._totals[method] < self._totals[other]

    def spread(self, method: int, minus: int | None = None) -> Spread:
        """Of a method's values, or of its differences from another's."""
        if minus is None:
            own = self.across[method, method], self.within[method, method]
            return Spread.from_moments(self.sums[method], *own, self.n)
        return Spread.from_moments(self.sums[method] - self.sums[minus], *self._of(method, minus), self.n)

    def p_values(self, method: int, others: Sequence[int]) -> NDArray[np.float64]:
        """Two-sided, of a mean of zero of a method's differences from each of `others`: (others,).

        The levels at which intervals of Student's t just reach zero.
        """
        a, b = method, np.array(others, int)
        mean, _, images, by_seed = _components(self.sums[a] - self.sums[b], *self._of(a, b), self.n)
        return _p_values(mean, np.sqrt(images), np.sqrt(by_seed), self.n, self.sums.shape[1])

    def _of(self, a: int, b: Any) -> tuple[Any, Any]:
        """`across` and `within` of the differences of a method from another, or from each of others."""
        across, within = (p[a, a] - 2 * p[a, b] + p[b, b] for p in (self.across, self.within))
        return across, within

    def discordant(self, method: int, other: int | Sequence[int]) -> tuple[Any, Any]:
        """How many images only `method`, and only the other (or each of others), got right.

        Of values 0 and 1 of a single seed.
        """
        p, (a, b) = self.within, (method, other)
        return p[a, a] - p[a, b], p[b, b] - p[a, b]


def _products(values: NDArray[Any], most: int) -> NDArray[np.float64]:
    """``values @ values.T`` of whole numbers (rows, n) up to `most`, exactly."""
    exact: NDArray[Any] = values.astype(np.float32 if values.shape[1] * most**2 < 1 << 24 else np.float64)
    products: NDArray[np.float64] = (exact @ exact.T).astype(float)
    return products


def _both_right(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """How many bits two of these rows (rows, words) have in common: in half the time of a matrix product.

    In blocks of four rows: all pairs at once would leave the cache, and calls for each row take time.
    """
    counts = np.empty((len(words), len(words)))
    for start in range(0, len(words), 4):
        block, before = slice(start, start + 4), slice(start + 4)
        both = np.bitwise_count(words[before, None] & words[block]).sum(axis=2, dtype=np.uint32)
        counts[before, block], counts[block, before] = both, both.T
    return counts


def _components(
    sums: NDArray[np.float64], across: Any, within: Any, n: int
) -> tuple[NDArray[np.float64], ...]:
    """Mean, and its variances: plain, of images, of seeds (see :class:`Spread`).

    From sums over n images (…, seeds) and sums of products (…,), see :class:`Moments`.
    """
    seeds = sums.shape[-1]
    mean = sums.sum(axis=-1) / (seeds * n)
    # Of means over seeds.
    squares_image = np.maximum(across / seeds**2 - n * mean**2, 0.0)
    plain = squares_image / (n - 1) / n
    if seeds < LEAST_SEEDS:
        return mean, plain, plain, np.zeros_like(plain)
    squares_seed = np.maximum(((sums / n) ** 2).sum(axis=-1) - seeds * mean**2, 0.0)
    total = np.maximum(within - seeds * n * mean**2, 0.0)
    rest = np.maximum(total - seeds * squares_image - n * squares_seed, 0.0) / ((seeds - 1) * (n - 1))
    return mean, plain, np.maximum(plain - rest / (n * seeds), 0.0), squares_seed / (seeds - 1) / seeds


def _p_values(
    mean: NDArray[np.float64], error_images: NDArray[np.float64], error_seeds: NDArray[np.float64],
    n_images: int, n_seeds: int,
) -> NDArray[np.float64]:  # fmt: skip
    """The levels at which intervals around each `mean`, with these standard errors, just reach zero.

    With seeds, interpolated between 500 levels (to about 1e-3 of its value), and no smaller than 1e-12.
    """
    from scipy.special import stdtr

    p: NDArray[np.float64] = (mean == 0).astype(float)
    if (of_images := (error_images > 0) & (error_seeds == 0)).any():
        p[of_images] = 2 * stdtr(n_images - 1, -np.abs(mean[of_images]) / error_images[of_images])
    if len(both := np.flatnonzero(error_seeds)):
        levels, by_image, by_seed = _reach(n_images - 1, n_seeds - 1)
        distance, of_image, of_seed = (x[both, None] for x in (np.abs(mean), error_images, error_seeds))

        def reach(at: Any) -> NDArray[np.float64]:  # it rises as the level falls
            reaches: NDArray[np.float64] = np.hypot(of_image * by_image[at], of_seed * by_seed[at])
            return reaches

        # The last level that does not reach further: among every twentieth, then among those after it.
        low = STEP * (reach(slice(STEP, None, STEP)) <= distance).sum(axis=1, keepdims=True)
        low += (reach(low + np.arange(1, STEP)) <= distance).sum(axis=1, keepdims=True)
        ends = np.minimum(low, len(levels) - 2) + np.arange(2)
        x, y = reach(ends).T, levels[ends].T
        logarithm = (y[1] - y[0]) / (x[1] - x[0]) * (distance[:, 0] - x[0]) + y[0]
        logarithm = np.maximum(logarithm, levels[-1])
        p[both] = [*map(math.exp, logarithm.tolist())]
    return p


@lru_cache(maxsize=64)
def _student(freedom: int, confidence: float) -> float:
    """How many standard errors an interval of Student's t reaches to each side."""
    from scipy.special import stdtrit

    return -float(stdtrit(freedom, 0.5 - _checked(confidence) / 2))


@lru_cache(maxsize=8)
def _reach(images: int, seeds: int) -> tuple[NDArray[np.float64], ...]:
    """Logarithms of levels from 1 to 1e-12, and how many standard errors Student's t reaches there."""
    from scipy.special import stdtrit

    levels = np.linspace(0.0, math.log(1e-12), 500)
    return levels, -stdtrit(images, np.exp(levels) / 2), -stdtrit(seeds, np.exp(levels) / 2)


def _checked(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; expected a value between 0 and 1, e.g. 0.95")
    return confidence
