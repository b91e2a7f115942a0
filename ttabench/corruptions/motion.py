"""Motion blur along a straight line, one angle per image; snow streaks use it too."""

from __future__ import annotations

from math import ceil

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.random import Generator
from numpy.typing import NDArray

from ttabench.corruptions import constants
from ttabench.corruptions.constants import Motion, at
from ttabench.corruptions.layout import Float, Images

NEGLIGIBLE = 1e-8  # of 65535: below what rounding to 16 bits can show


def draw_angles(rng: Generator, count: int, size: int, severity: int) -> Float:
    """(count,) degrees, uniform in −45 … 45."""
    return rng.uniform(-45, 45, count)


def motion_blur(images: Images, angles: Float, severity: int) -> Images:
    """Blur each image along its own angle."""
    return blur_along(images, angles, at(constants.MOTION_BLUR, images.shape[1], severity))


def blur_along(images: Images, angles: Float, motion: Motion) -> Images:
    """One-sided Gaussian blur from each pixel along a line, with whole-pixel steps, as ImageMagick does it.

    images (N, n, n, C) uint8; angles (N,) in degrees. Tap i of 2·ceil(radius) + 1 reads the pixel
    ceil(i·sin − ½) rows down and ceil(i·cos − ½) columns right, edges replicated, with weight
    exp(−i²/2·sigma²). Values are rounded to 16 bits, then truncated to 8.
    """
    count, n, _, channels = images.shape
    weights = _weights(motion)
    taps = np.arange(len(weights))
    radians = np.deg2rad(angles)[:, None]
    down = np.ceil(taps * np.sin(radians) - 0.5).astype(int)
    right = np.ceil(taps * np.cos(radians) - 0.5).astype(int)
    top, bottom = max(-down.min(), 0), max(down.max(), 0)
    left, right_margin = max(-right.min(), 0), max(right.max(), 0)
    padded = np.pad(images, ((0, 0), (top, bottom), (left, right_margin), (0, 0)), mode="edge")
    windows = as_strided(  # windows[i, y, x] is the n × n window of image i whose corner is (y, x)
        padded,
        (count, top + bottom + 1, left + right_margin + 1, n, n, channels),
        (*padded.strides[:3], *padded.strides[1:]),
        writeable=False,
    )
    total = np.zeros(images.shape, dtype=np.float32)
    product = np.empty_like(total)
    image = np.arange(count)
    for tap, weight in enumerate(weights):
        np.multiply(windows[image, top + down[:, tap], left + right[:, tap]], weight, out=product)
        total += product
    total *= 257
    total += np.float32(0.5)
    return (total.astype(np.uint16) // 257).astype(np.uint8)


def _weights(motion: Motion) -> NDArray[np.float32]:
    taps = np.arange(2 * ceil(motion.radius) + 1)
    weights = np.exp(-(taps**2) / (2 * motion.sigma**2))
    weights /= weights.sum()
    return weights[weights > NEGLIGIBLE].astype(np.float32)
