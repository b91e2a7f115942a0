"""Sparkles: white stars over the image, or one star-shaped window in white."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ttabench.corruptions.bar.constants import share
from ttabench.corruptions.layout import Float, Images

STARS = 5
MAX_RAYS = 199
JITTER = 0.25  # standard deviation of a ray's length, of the radius


class Stars(NamedTuple):
    """centre (N, s, 2) row and column; rays (N, s) their number; normal (N, s, 199), one number per ray."""

    centre: Float
    rays: NDArray[np.int64]
    normal: Float


def draw_stars(rng: Generator, count: int, size: int, severity: int) -> Stars:
    """Five stars anywhere, with 50 to 199 rays."""
    return _draw(rng, count, STARS, 0, size)


def draw_window(rng: Generator, count: int, size: int, severity: int) -> Stars:
    """One star in the middle half of the image, with 50 to 199 rays."""
    return _draw(rng, count, 1, 0.25 * size, 0.75 * size)


def _draw(rng: Generator, count: int, stars: int, low: float, high: float) -> Stars:
    return Stars(
        rng.uniform(low, high, (count, stars, 2)),
        rng.integers(50, MAX_RAYS + 1, (count, stars)),
        rng.standard_normal((count, stars, MAX_RAYS)),
    )


def sparkles(images: Images, stars: Stars, severity: int) -> Images:
    """x + f·(255 − x), star after star, with f the brightness of the star; radius 0.1·share·side."""
    radius = 0.1 * share("sparkles", severity) * images.shape[1]
    lengths = np.maximum(radius * (1 + JITTER * stars.normal), 1)
    levels = images.astype(np.float64)
    for star in range(stars.rays.shape[1]):
        light = _brightness(images.shape[1], stars, lengths, star, exponent=1)
        levels += light[..., None] * (255 - levels)
        levels = levels.astype(np.float32).astype(np.float64)
    return np.clip(levels, 0, 255).astype(np.uint8)


def inverse_sparkles(images: Images, stars: Stars, severity: int) -> Images:
    """255 + f·(x − 255): the image shows only in the star, whose edge is sharper at higher severities."""
    radius = 0.25 * images.shape[1]
    lengths = radius * (1 + JITTER * stars.normal)
    exponent = 65 * share("inverse_sparkles", severity) / 50
    light = _brightness(images.shape[1], stars, lengths, 0, exponent)[..., None]
    return np.clip(255 + light * (images.astype(np.float64) - 255), 0, 255).astype(np.uint8)


def _brightness(n: int, stars: Stars, lengths: Float, star: int, exponent: float) -> Float:
    """(N, n, n) in [0, 1]: (length² / distance²)^exponent, brightest in the middle of each ray."""
    centre, rays = stars.centre[:, star], stars.rays[:, star, None, None]
    down = np.arange(n)[:, None] - centre[:, 0, None, None]
    right = np.arange(n) - centre[:, 1, None, None]
    position = (np.arctan2(right, down) + np.pi) / (2 * np.pi) * rays
    ray = position.astype(np.intp)
    fraction = position - ray
    image = np.arange(len(centre))[:, None, None]
    ray_length, next_length = lengths[image, star, ray % rays], lengths[image, star, (ray + 1) % rays]
    length = ray_length + fraction * (next_length - ray_length)
    glow = (length**2 / (down**2 + right**2 + 1e-4)) ** exponent
    return np.asarray(np.clip((1 - (fraction - 0.5) ** 2) * glow, 0, 1))
