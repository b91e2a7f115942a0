"""Elastic transform: a random affine map, then random smooth displacements."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ttabench.data.corruptions import constants
from ttabench.data.corruptions.arrays import Float, Images
from ttabench.data.corruptions.constants import at
from ttabench.data.corruptions.filters import gaussian_weights

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

    `mirror` is how the second step reads beyond the border: as SciPy before 1.6 did (which the published
    files were most probably made with) or as it has done since. About 4 % of the values differ.
    """
    n = images.shape[1]
    c = at(constants.ELASTIC, n, severity)
    x = images.astype(np.float32) / np.float32(255)
    x = _warp_affine(x, _inverse_affine(bends.corners, n))
    if c.amplitude:
        fields = _smooth(np.asarray(bends.fields), c.sigma).astype(np.float64) * c.amplitude
        grid = np.arange(n, dtype=np.float64)
        rows = grid[:, None] + fields[:, 1].astype(np.float32)
        columns = grid + fields[:, 0].astype(np.float32)
        x = _displace(x, rows, columns, mirror)
    np.clip(x, 0, 1, out=x)
    x *= 255
    return x.astype(np.uint8)


def _inverse_affine(shifts: Float, n: int) -> NDArray[np.float64]:
    """(N, 2, 3): maps (x, y, 1) of the result to (x, y) of the original."""
    centre, reach = n // 2, n // 3
    anchors = np.array([[reach, reach], [reach, -reach], [-reach, -reach]], dtype=np.float32) + np.float32(
        centre
    )
    moved = (anchors + shifts).astype(np.float32).astype(np.float64)
    homogeneous = np.concatenate([anchors.astype(np.float64), np.ones((3, 1))], axis=1)
    forward = np.linalg.solve(homogeneous, moved).transpose(0, 2, 1)
    (a, b, e), (c, d, f) = forward[:, 0].T, forward[:, 1].T
    scale = 1 / (a * d - b * c)
    a, b, c, d = d * scale, -b * scale, -c * scale, a * scale
    rows = np.stack([a, b, -a * e - b * f]), np.stack([c, d, -c * e - d * f])
    return np.stack(rows).transpose(2, 0, 1)


def _warp_affine(x: Float, inverse: NDArray[np.float64]) -> Float:
    """Bilinear samples at positions quantised to 1/32 pixel; border mirrored about the edge pixel."""
    n = x.shape[1]
    grid = np.arange(n)
    fixed = inverse * 1024

    def position(axis: int) -> NDArray[np.int64]:
        along_rows = np.rint(fixed[:, axis, 1, None] * grid + fixed[:, axis, 2, None]).astype(np.int64) + 16
        along_columns = np.rint(fixed[:, axis, 0, None] * grid).astype(np.int64)
        return (along_rows[:, :, None] + along_columns[:, None, :]) >> 5

    columns, rows = position(0), position(1)
    return _bilinear(
        x,
        _reflect(rows >> 5, n),
        _reflect((rows >> 5) + 1, n),
        (rows & 31).astype(np.float32) / 32,
        _reflect(columns >> 5, n),
        _reflect((columns >> 5) + 1, n),
        (columns & 31).astype(np.float32) / 32,
    )


def _displace(x: Float, rows: Float, columns: Float, mirror: Mirror) -> Float:
    n = x.shape[1]
    if mirror == "scipy1.6":
        look_up = _symmetric
    else:
        look_up = _reflect
        rows, columns = _fold(rows, n), _fold(columns, n)
    top, left = np.floor(rows), np.floor(columns)
    i, j = top.astype(np.intp), left.astype(np.intp)
    return _bilinear(
        x, look_up(i, n), look_up(i + 1, n), rows - top, look_up(j, n), look_up(j + 1, n), columns - left
    )


def _fold(position: Float, n: int) -> Float:
    """SciPy < 1.6: one mirroring with repetition of the edge, of the position instead of the index."""
    return np.where(position < 0, -position - 1, np.where(position >= n, 2 * n - 1 - position, position))


def _reflect(index: NDArray[np.integer], n: int) -> NDArray[np.intp]:
    """Mirror about the edge pixel: −1 → 1, n → n − 2."""
    period = 2 * n - 2
    index = np.abs(index) % period
    return np.where(index >= n, period - index, index)


def _symmetric(index: NDArray[np.integer], n: int) -> NDArray[np.intp]:
    """Mirror with repetition of the edge pixel: −1 → 0, n → n − 1."""
    index = index % (2 * n)
    return np.where(index >= n, 2 * n - 1 - index, index)


def _bilinear(x: Float, top, bottom, down, left, right, across) -> Float:  # type: ignore[no-untyped-def]
    image = np.arange(len(x))[:, None, None]
    down, across = down[..., None], across[..., None]
    total = x[image, top, left] * ((1 - down) * (1 - across))
    total += x[image, top, right] * ((1 - down) * across)
    total += x[image, bottom, left] * (down * (1 - across))
    total += x[image, bottom, right] * (down * across)
    return np.asarray(total, dtype=np.float32)


def _smooth(fields: Float, sigma: float) -> Float:
    matrix = _smoothing(fields.shape[-1], sigma).astype(fields.dtype)
    return np.asarray(matrix @ fields @ matrix.T)


@lru_cache(maxsize=16)
def _smoothing(n: int, sigma: float) -> NDArray[np.float64]:
    """(n, n): Gaussian filter of radius int(3 sigma + 0.5), border mirrored with repetition of the edge."""
    radius = int(3 * sigma + 0.5)
    weights = gaussian_weights(sigma, radius)
    matrix = np.zeros((n, n))
    for shift in range(-radius, radius + 1):
        np.add.at(matrix, (np.arange(n), _symmetric(np.arange(n) + shift, n)), weights[abs(shift)])
    return matrix
