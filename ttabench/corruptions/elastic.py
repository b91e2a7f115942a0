"""Elastic transform: a random affine map, then random smooth displacements."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ttabench.corruptions import constants
from ttabench.corruptions.constants import at
from ttabench.corruptions.filters import gaussian_weights
from ttabench.corruptions.layout import Float, Images, to_grey_levels

Mirror = Literal["scipy1.5", "scipy1.6"]


class Bends(NamedTuple):
    """The draws of one elastic transform.

    corners (N, 3, 2)    shifts of the three anchors, (x, y), in pixels
    fields (N, 2, n, n)  displacements before smoothing, along columns and along rows, in −1 … 1
    """

    corners: Float
    fields: Float


def draw_bends(rng: Generator, count: int, size: int, severity: int) -> Bends:
    """Uniform shifts of the anchors, within the severity's jitter, and uniform fields."""
    c = at(constants.ELASTIC, size, severity)
    corners = rng.uniform(-c.jitter, c.jitter, (count, 3, 2))
    fields = rng.random((count, 2, size, size), dtype=np.float32) * 2 - 1
    return Bends(corners, fields)


def elastic_transform(images: Images, bends: Bends, severity: int, mirror: Mirror = "scipy1.5") -> Images:
    """Affine map, then displacement by smoothed fields, both bilinear, in float32.

    `mirror` selects how the second step reads beyond the border: as SciPy before 1.6, most probably used for
    the published files, or as SciPy since 1.6. About 4 % of the values differ.
    """
    n = images.shape[1]
    c = at(constants.ELASTIC, n, severity)
    planes = _warp_affine(images, _inverse_affine(bends.corners, n))
    if c.amplitude:
        fields = (_smooth(bends.fields, c.sigma) * c.amplitude).astype(np.float32)
        grid = np.arange(n, dtype=np.float64)
        planes = _displace(planes, grid[:, None] + fields[:, 1], grid + fields[:, 0], mirror)
    return np.ascontiguousarray(np.moveaxis(to_grey_levels(planes), 0, -1))


def _inverse_affine(shifts: Float, n: int) -> NDArray[np.float64]:
    """(N, 2, 3): maps (x, y, 1) of the result to (x, y) of the original."""
    near, far = n // 2 - n // 3, n // 2 + n // 3
    anchors = np.array([[far, far], [far, near], [near, near]], dtype=np.float32)
    moved = (anchors + shifts.astype(np.float32)).astype(np.float64)
    homogeneous = np.concatenate([anchors.astype(np.float64), np.ones((3, 1))], axis=1)
    forward = np.linalg.solve(homogeneous, moved).transpose(0, 2, 1)
    (a, b, e), (c, d, f) = forward[:, 0].T, forward[:, 1].T
    scale = 1 / (a * d - b * c)
    a, b, c, d = d * scale, -b * scale, -c * scale, a * scale
    rows = np.stack([a, b, -a * e - b * f]), np.stack([c, d, -c * e - d * f])
    return np.stack(rows).transpose(2, 0, 1)


def _warp_affine(images: Images, inverse: NDArray[np.float64]) -> Float:
    """Bilinear samples at positions quantised to 1/32 pixel; border mirrored about the edge pixel.

    images (N, n, n, 3) uint8 → one plane per channel, (3, N, n, n) float32 in [0, 1].
    """
    n = images.shape[1]
    grid = np.arange(n)
    fixed = inverse * 1024

    def thirtyseconds(axis: int) -> NDArray[np.int64]:
        down = np.rint(fixed[:, axis, 1, None] * grid + fixed[:, axis, 2, None]).astype(np.int64) + 16
        right = np.rint(fixed[:, axis, 0, None] * grid).astype(np.int64)
        return (down[:, :, None] + right[:, None, :]) >> 5

    columns, rows = thirtyseconds(0), thirtyseconds(1)
    i, j = rows >> 5, columns >> 5
    margin = max(0, -i.min(), -j.min(), i.max() + 2 - n, j.max() + 2 - n)
    mirrored = np.pad(images, ((0, 0), (margin, margin), (margin, margin), (0, 0)), mode="reflect")
    planes = np.divide(np.moveaxis(mirrored, -1, 0), 255, dtype=np.float32, order="C")
    down, right = ((position & 31).astype(np.float32) / 32 for position in (rows, columns))
    return _bilinear(planes, i + margin, j + margin, down, right)


def _displace(planes: Float, rows: Float, columns: Float, mirror: Mirror) -> Float:
    """Bilinear samples at (row, column), each (N, n, n), computed in float64."""
    n = planes.shape[-1]
    if mirror == "scipy1.5":  # positions are mirrored with the edge repeated, pixels without
        rows, columns = _fold(rows, n), _fold(columns, n)
    top, left = np.floor(rows), np.floor(columns)
    i, j = top.astype(np.intp), left.astype(np.intp)
    margin = max(1, -i.min(), -j.min(), i.max() + 2 - n, j.max() + 2 - n)
    mode: Literal["reflect", "symmetric"] = "reflect" if mirror == "scipy1.5" else "symmetric"
    mirrored = np.pad(planes, ((0, 0), (0, 0), (margin, margin), (margin, margin)), mode=mode)
    return _bilinear(mirrored, i + margin, j + margin, rows - top, columns - left)


def _fold(position: Float, n: int) -> Float:
    """Mirror positions once; the edge pixel is repeated."""
    return np.where(position < 0, -position - 1, np.where(position >= n, 2 * n - 1 - position, position))


def _bilinear(planes: Float, i: NDArray[np.intp], j: NDArray[np.intp], down: Float, right: Float) -> Float:
    """Blend pixels (i, j), (i, j + 1), (i + 1, j), (i + 1, j + 1) of planes (3, N, h, w) → (3, N, n, n)."""
    _, count, height, width = planes.shape
    flat = planes.reshape(3, -1)
    index = (np.arange(count)[:, None, None] * height + i) * width + j
    up, left = 1 - down, 1 - right
    corners = ((0, up * left), (1, up * right), (width, down * left), (width + 1, down * right))
    result = np.empty((3, *i.shape), dtype=np.float32)
    for channel in range(3):
        total = np.zeros(i.shape, dtype=down.dtype)
        for offset, weight in corners:
            total += flat[channel, offset:].take(index) * weight
        result[channel] = total
    return result


def _smooth(fields: Float, sigma: float) -> Float:
    matrix = _smoothing(fields.shape[-1], sigma).astype(fields.dtype)
    return np.asarray(matrix @ fields @ matrix.T)


@lru_cache(maxsize=16)
def _smoothing(n: int, sigma: float) -> NDArray[np.float64]:
    """(n, n): Gaussian filter of radius int(3 sigma + 0.5), border mirrored with repetition of the edge."""
    radius = int(3 * sigma + 0.5)
    weights = gaussian_weights(sigma, radius)
    mirrored = np.pad(np.arange(n), radius, mode="symmetric")
    matrix = np.zeros((n, n))
    for shift in range(-radius, radius + 1):
        matrix[np.arange(n), mirrored[radius + shift : radius + shift + n]] += weights[abs(shift)]
    return matrix
