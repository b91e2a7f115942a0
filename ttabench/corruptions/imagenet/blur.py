"""Gaussian, defocus, zoom and motion blur; glass blur has its own file."""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import sparse

from ttabench.corruptions.constants import Disc
from ttabench.corruptions.filters import gaussian_filter, zoom_matrix
from ttabench.corruptions.imagenet import constants
from ttabench.corruptions.imagenet.constants import SIZE, at
from ttabench.corruptions.layout import UNIT, Float, Images, to_grey_levels


def gaussian_blur(image: Images, draws: None, severity: int) -> Images:
    """Gaussian filter with edge pixels replicated."""
    return to_grey_levels(gaussian_filter(UNIT[image], at(constants.GAUSSIAN_BLUR, severity)))


def defocus_blur(image: Images, draws: None, severity: int) -> Images:
    """Correlation with a disc with a smoothed edge; the border is mirrored about the edge pixel."""
    kernel = disc_kernel(at(constants.DEFOCUS_BLUR, severity))
    return to_grey_levels(np.asarray(cv2.filter2D(UNIT[image], -1, kernel)))


@lru_cache(maxsize=8)
def disc_kernel(disc: Disc) -> NDArray[np.float32]:
    """(2r + 1, 2r + 1) with r the radius, 8 at least; its edge is smoothed over 3 pixels, or else over 5."""
    reach, edge = (8, 3) if disc.radius <= 8 else (int(disc.radius), 5)
    grid = np.arange(-reach, reach + 1)
    kernel = (grid[:, None] ** 2 + grid**2 <= disc.radius**2).astype(np.float32)
    kernel /= kernel.sum()
    return np.asarray(cv2.GaussianBlur(kernel, (edge, edge), disc.edge_sigma), dtype=np.float32)


def zoom_blur(image: Images, draws: None, severity: int) -> Images:
    """Mean, in float32, of the image and its central zooms by 1, 1.01, …: the image counts twice."""
    zooms = at(constants.ZOOM_BLUR, severity)
    factors = np.arange(1, zooms.stop, zooms.step)
    x = UNIT[image].astype(np.float32)
    exact = x.astype(np.float64)
    total = np.zeros_like(x)
    for factor in factors:
        total += zoomed(exact, factor).astype(np.float32)
    total += x
    total /= np.float32(len(factors) + 1)
    return to_grey_levels(total)


def zoomed(x: Float, factor: float) -> Float:
    """Bilinear zoom of x (n, n, C) by `factor` around the centre."""
    along = _zoom(x.shape[0], factor)
    rows = (along @ x.reshape(len(x), -1)).reshape(x.shape)
    columns = along @ np.ascontiguousarray(rows.transpose(1, 0, 2)).reshape(len(x), -1)
    back: Float = columns.reshape(x.shape).transpose(1, 0, 2)
    return back


@lru_cache(maxsize=256)
def _zoom(n: int, factor: float) -> sparse.csr_array:
    return sparse.csr_array(zoom_matrix(n, factor))


def draw_angle(rng: Generator, severity: int) -> float:
    """Degrees, uniform in −45 … 45."""
    return rng.uniform(-45, 45)


def motion_blur(image: Images, angle: float, severity: int) -> Images:
    """One-sided Gaussian blur from each pixel along a line, in whole-pixel steps, in float64.

    :func:`ttabench.corruptions.motion.blur_along` sums in float32. At this size and these radii, that would
    change one value in fifty thousand.
    """
    motion = at(constants.MOTION_BLUR, severity)
    taps = np.arange(2 * motion.radius + 1)
    weights = np.exp(-(taps**2) / (2 * motion.sigma**2))
    weights /= weights.sum()
    down = np.ceil(taps * np.sin(np.deg2rad(angle)) - 0.5).astype(int)
    right = np.ceil(taps * np.cos(np.deg2rad(angle)) - 0.5).astype(int)
    rows, columns = (
        np.clip(np.arange(min(s.min(), 0), SIZE + max(s.max(), 0)), 0, SIZE - 1) for s in (down, right)
    )
    padded = image[rows][:, columns] * np.float64(257)
    down, right = down - min(down.min(), 0), right - min(right.min(), 0)
    total = np.zeros(image.shape)
    product = np.empty_like(total)
    for weight, y, x in zip(weights, down, right, strict=True):
        total += np.multiply(padded[y : y + SIZE, x : x + SIZE], weight, out=product)
    total += 0.5
    return (total.astype(np.uint16) // 257).astype(np.uint8)
