"""Gaussian, defocus and zoom blur; glass and motion blur have their own files."""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np

from ttabench.corruptions import constants
from ttabench.corruptions.constants import at
from ttabench.corruptions.filters import central_zoom, gaussian_filter
from ttabench.corruptions.layout import (
    Images,
    batch_first,
    batch_last,
    to_images,
    unit_images,
)


def gaussian_blur(images: Images, draws: None, severity: int) -> Images:
    """Gaussian filter with edge pixels replicated."""
    sigma = at(constants.GAUSSIAN_BLUR, images.shape[1], severity)
    return to_images(gaussian_filter(unit_images(images), sigma))


def defocus_blur(images: Images, draws: None, severity: int) -> Images:
    """Correlation with a disc with a smoothed edge; the border is mirrored about the edge pixel."""
    n = images.shape[1]
    rings = _rings(at(constants.DEFOCUS_BLUR, n, severity))
    reach = max(abs(shift) for _, shifts in rings for pair in shifts for shift in pair)
    mirrored = np.pad(np.arange(n), reach, mode="reflect")
    padded = np.take(batch_last(images), mirrored, axis=0).take(mirrored, axis=1).astype(np.uint16)
    result = np.zeros((n, n, 3, len(images)))
    for weight, shifts in rings:
        ring = np.zeros(result.shape, dtype=np.uint16)
        for down, right in shifts:
            ring += padded[reach + down : reach + down + n, reach + right : reach + right + n]
        result += ring * weight
    np.clip(result, 0, 255, out=result)
    return batch_first(result.astype(np.uint8))


@lru_cache(maxsize=16)
def _rings(disc: constants.Disc) -> tuple[tuple[float, tuple[tuple[int, int], ...]], ...]:
    """The kernel as (weight, shifts with this weight): sums of equally weighted pixels are exact integers."""
    grid = np.arange(-8, 9)
    kernel = (grid[:, None] ** 2 + grid**2 <= disc.radius**2).astype(np.float32)
    kernel /= kernel.sum()
    kernel = np.asarray(cv2.GaussianBlur(kernel, (3, 3), disc.edge_sigma), dtype=np.float32)
    rings: dict[float, list[tuple[int, int]]] = {}
    for row, column in np.argwhere(kernel > 1e-12):
        rings.setdefault(float(kernel[row, column]), []).append((int(row) - 8, int(column) - 8))
    return tuple((weight, tuple(shifts)) for weight, shifts in sorted(rings.items()))


def zoom_blur(images: Images, draws: None, severity: int) -> Images:
    """Mean, in float32, of the image and its central zooms by 1, 1.01, …: the image counts twice."""
    n, count = images.shape[1], len(images)
    factors = np.arange(1, constants.ZOOM_BLUR_STOP[severity - 1], 0.01)
    x = unit_images(images, np.float32).reshape(n * n, 3 * count)
    exact = x.astype(np.float64)
    total = np.zeros_like(x)
    for factor in factors:
        total += (central_zoom(n, factor) @ exact).astype(np.float32)
    total += x
    total /= np.float32(len(factors) + 1)
    return to_images(total.reshape(n, n, 3, count))
