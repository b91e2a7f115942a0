"""Circular motion blur and transverse chromatic aberration: cubic-spline rotations and zooms.

Both are linear in the pixels; their matrices are computed once. The splines are those of scipy.ndimage.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import ndimage

from ttabench.corruptions.bar.constants import share
from ttabench.corruptions.layout import Float, Images

STEPS = 21  # rotations between the two outermost angles
ROUNDING = 1e-4
"""Added before grey levels are truncated: in a flat area, the weights sum to 1 only up to rounding."""

TIES = 1e-9
"""Added before grey levels are rounded: halves are rounded up. SciPy rounds them either way."""


def circular_motion_blur(images: Images, draws: None, severity: int) -> Images:
    """Mean of 21 rotations by t·15·share degrees, t from −1 to 1, with weights exp(−2t²)."""
    count, n = images.shape[:2]
    matrix = _circular_blur(n, 15 * share("circular_motion_blur", severity))
    pixels = images.reshape(count, n * n, 3).astype(np.float32)
    levels = np.matmul(matrix, pixels).reshape(images.shape)
    result: Images = np.clip(levels + ROUNDING, 0, 255).astype(np.uint8)
    return result


@lru_cache(maxsize=8)
def _circular_blur(n: int, degrees: float) -> NDArray[np.float32]:
    """(n², n²): the pixels of the result from those of the image."""
    pixels = np.stack(np.meshgrid(np.arange(n), np.arange(n), indexing="ij")).reshape(2, n * n)
    centre = (n - 1) / 2
    position = np.linspace(-1, 1, STEPS)
    weights = np.exp(-2 * position**2)
    total = np.zeros((n * n, n * n))
    for t, weight in zip(position, weights / weights.sum(), strict=True):
        cos, sin = np.cos(np.deg2rad(t * degrees)), np.sin(np.deg2rad(t * degrees))
        source = np.array([[cos, sin], [-sin, cos]]) @ (pixels - centre) + centre
        inside = ((source >= 0) & (source <= n - 1)).all(axis=0)
        rows, columns = (_spline_weights(along, n) for along in source)
        total += weight * ((inside[:, None] * rows)[:, :, None] * columns[:, None]).reshape(total.shape)
    prefilter = ndimage.spline_filter1d(np.eye(n), order=3, axis=0)
    return np.asarray(total @ np.kron(prefilter, prefilter), np.float32)


def _spline_weights(source: Float, n: int) -> Float:
    """(m, n): the weights of n coefficients at positions (m,); indices are mirrored about the edges."""
    first = np.floor(source).astype(np.intp)
    f = source - first
    values = ((1 - f) ** 3, 3 * f**3 - 6 * f**2 + 4, -3 * f**3 + 3 * f**2 + 3 * f + 1, f**3)
    weights = np.zeros((len(source), n))
    for offset, value in zip((-1, 0, 1, 2), values, strict=True):
        mirrored = np.abs(first + offset)
        mirrored = np.where(mirrored >= n, 2 * (n - 1) - mirrored, mirrored).clip(0, n - 1)
        weights[np.arange(len(source)), mirrored] += value / 6
    return weights


def draw_orders(rng: Generator, count: int, size: int, severity: int) -> NDArray[np.int64]:
    """(count, 3): which of the three zooms each channel gets."""
    return rng.permuted(np.tile(np.arange(3), (count, 1)), axis=1)


def transverse_chromatic_aberration(images: Images, orders: NDArray[np.int64], severity: int) -> Images:
    """Zoom the channels by 1, 1 + z/2 and 1 + z in a random order, z = 0.5·share; rounded to grey levels."""
    z = 0.5 * share("transverse_chromatic_aberration", severity)
    matrices = np.stack([_zoom(images.shape[1], scale) for scale in (1, 1 + z / 2, 1 + z)])[orders]
    channels = images.transpose(0, 3, 1, 2).astype(np.float64)
    zoomed: Float = matrices @ channels @ matrices.transpose(0, 1, 3, 2)
    return np.clip(zoomed + 0.5 + TIES, 0, 255).astype(np.uint8).transpose(0, 2, 3, 1)


@lru_cache(maxsize=16)
def _zoom(n: int, scale: float) -> Float:
    """(n, n): zoom along one axis by a cubic B-spline without prefilter, central n of the result."""
    columns = [ndimage.zoom(row, scale, prefilter=False) for row in np.eye(n)]
    edge = (len(columns[0]) - n) // 2
    return np.stack(columns, axis=1)[edge : edge + n]
