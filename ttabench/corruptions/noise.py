"""Per-value noise: Gaussian, shot (Poisson), impulse and speckle."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

from ttabench.corruptions import constants
from ttabench.corruptions.constants import at
from ttabench.corruptions.layout import UNIT, Float, Images, select


def draw_normal(rng: Generator, count: int, size: int, severity: int) -> Float:
    """Standard normal, one per value: (count, size, size, 3) float32."""
    return rng.standard_normal((count, size, size, 3), dtype=np.float32)


def draw_normal_field(rng: Generator, count: int, size: int, mean: float, deviation: float) -> Float:
    """(count, size, size) float32, one normal number per pixel; batch last in memory."""
    field = rng.standard_normal((size, size, count), dtype=np.float32)
    field *= np.float32(deviation)
    field += np.float32(mean)
    return np.moveaxis(field, -1, 0)


def gaussian_noise(images: Images, noise: Float, severity: int) -> Images:
    """x/255 + sigma·z with z standard normal, one per value."""
    sigma = at(constants.GAUSSIAN_NOISE, images.shape[1], severity)
    return _to_uint8(images + (255 * sigma) * noise)


def speckle_noise(images: Images, noise: Float, severity: int) -> Images:
    """x/255·(1 + sigma·z) with z standard normal, one per value."""
    sigma = at(constants.SPECKLE_NOISE, images.shape[1], severity)
    return _to_uint8(images * (1 + sigma * noise))


class Impulses(NamedTuple):
    """Which values are replaced, and whether by white (else black): (N, n, n, 3) bool each."""

    replaced: NDArray[np.bool_]
    white: NDArray[np.bool_]


def draw_impulses(rng: Generator, count: int, size: int, severity: int) -> Impulses:
    """One 32-bit number per value: the lowest bit selects black or white, all bits whether to replace."""
    amount = at(constants.IMPULSE_NOISE, size, severity)
    bits = draw_bits(rng, count, size, severity)
    return Impulses(replaced=bits < np.uint32(amount * 2**32), white=(bits & 1).astype(bool))


def impulse_noise(images: Images, impulses: Impulses, severity: int) -> Images:
    """A value becomes 0 or 255 where an impulse hits it; each channel has its own impulses."""
    return select(impulses.replaced, -impulses.white.view(np.uint8), images)


def draw_bits(rng: Generator, count: int, size: int, severity: int) -> NDArray[np.uint32]:
    """32 uniform bits per value: (count, size, size, 3)."""
    return rng.integers(0, 2**32, (count, size, size, 3), dtype=np.uint32)


def shot_noise(images: Images, bits: NDArray[np.uint32], severity: int) -> Images:
    """Poisson(x/255·lambda)/lambda, sampled by Walker's alias method from 32 uniform bits per value.

    Given the pixel, the truncated result has one of 256 grey levels, so its law is one row of a 256 × 256
    table (:func:`shot_noise_law`). The low 8 bits choose a column, the other 24 between its two levels.
    """
    threshold, alias = _alias_tables(at(constants.SHOT_NOISE, images.shape[1], severity))
    column = bits.astype(np.uint8)
    cell = images * np.uint16(256) + column
    keep_column = (bits >> 8) < np.take(threshold, cell)
    return select(keep_column, column, np.take(alias, cell))


def shot_noise_law(rate: float) -> NDArray[np.float64]:
    """(256, 256): probability of each resulting grey level given each original one."""
    tail = int(rate + 12 * np.sqrt(rate) + 30)  # larger counts have a probability below 1e-30
    counts = np.arange(tail + 1)
    level = _level_of_count(rate, tail)
    mean = (UNIT * rate)[:, None]
    pmf = np.exp(xlogy(counts, mean) - mean - gammaln(counts + 1))
    law = np.zeros((256, 256))
    for count, resulting in enumerate(level):
        law[:, resulting] += pmf[:, count]
    return np.asarray(law / law.sum(axis=1, keepdims=True))


def _level_of_count(rate: float, largest: int) -> Images:
    return _to_uint8(np.clip(np.arange(largest + 1) / rate, 0, 1) * 255)


@lru_cache(maxsize=16)
def _alias_tables(rate: float) -> tuple[NDArray[np.uint32], Images]:
    """Walker's two tables, each (256·256,), row after row.

    Column j of a row stands for level j with probability threshold / 2**24, else for the level `alias`.
    """
    mass = shot_noise_law(rate) * 256  # 1 on average, which is what a column holds
    threshold = np.full((256, 256), 2**24, dtype=np.uint32)
    alias = np.tile(np.arange(256, dtype=np.uint8), (256, 1))
    row = np.arange(256)
    for _ in range(
        255
    ):  # in every row, the largest mass fills the column of the smallest, which is then complete
        smallest, largest = mass.argmin(axis=1), mass.argmax(axis=1)
        remaining = mass[row, smallest]
        threshold[row, smallest] = np.rint(remaining * 2**24)
        alias[row, smallest] = largest
        mass[row, largest] -= 1 - remaining
        mass[row, smallest] = 1
    return threshold.ravel(), alias.ravel()


def _to_uint8(levels: Float) -> Images:
    np.clip(levels, 0, 255, out=levels)
    return levels.astype(np.uint8)
