"""Per-value noise: Gaussian, shot (Poisson), impulse and speckle."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ttabench.corruptions.imagenet import constants
from ttabench.corruptions.imagenet.constants import SIZE, at
from ttabench.corruptions.imagenet.shared import sample_counts
from ttabench.corruptions.layout import Float, Images, select
from ttabench.corruptions.noise import Impulses

SHAPE = (SIZE, SIZE, 3)


def draw_normal(rng: Generator, severity: int) -> Float:
    """Standard normal, one per value: (n, n, 3) float32."""
    return rng.standard_normal(SHAPE, dtype=np.float32)


def draw_bits(rng: Generator, severity: int) -> NDArray[np.uint32]:
    """32 uniform bits per value: (n, n, 3)."""
    return rng.integers(0, 2**32, SHAPE, dtype=np.uint32)


def draw_impulses(rng: Generator, severity: int) -> Impulses:
    """One 32-bit number per value: the lowest bit selects black or white, all bits whether to replace."""
    bits = draw_bits(rng, severity)
    replaced = bits < np.uint32(at(constants.IMPULSE_NOISE, severity) * 2**32)
    return Impulses(replaced=replaced, white=(bits & 1).astype(bool))


def gaussian_noise(image: Images, noise: Float, severity: int) -> Images:
    """x/255 + sigma·z with z standard normal, one per value."""
    return _levels(image + (255 * at(constants.GAUSSIAN_NOISE, severity)) * noise)


def speckle_noise(image: Images, noise: Float, severity: int) -> Images:
    """x/255·(1 + sigma·z) with z standard normal, one per value."""
    return _levels(image * (1 + at(constants.SPECKLE_NOISE, severity) * noise))


def impulse_noise(image: Images, impulses: Impulses, severity: int) -> Images:
    """A value becomes 0 or 255 where an impulse hits it; each channel has its own impulses."""
    return select(impulses.replaced, -impulses.white.view(np.uint8), image)


def shot_noise(image: Images, bits: NDArray[np.uint32], severity: int) -> Images:
    """Poisson(x/255·lambda)/lambda, sampled from 32 uniform bits per value."""
    return sample_counts(image, bits, at(constants.SHOT_NOISE, severity))


def _levels(values: Float) -> Images:
    np.clip(values, 0, 255, out=values)
    return values.astype(np.uint8)
