"""Warps: pinch and twirl in nine squares, and ripples. Both sample bilinearly; outside the image is black."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ttabench.corruptions.bar.constants import share
from ttabench.corruptions.layout import Float, Images

SQUARES = 3  # per axis


def draw_directions(rng: Generator, count: int, size: int, severity: int) -> NDArray[np.int64]:
    """(count, 3, 3): the direction of each twirl, −1 or 1."""
    return 2 * rng.integers(0, 2, (count, SQUARES, SQUARES)) - 1


def pinch_and_twirl(images: Images, directions: NDArray[np.int64], severity: int) -> Images:
    """In each square, a point at d radii from the centre reads at d·sin(πd/2)^(−a), turned by t·(1 − d)².

    directions[:, i, j] belongs to the i-th square from the left and the j-th from the top.
    """
    n = images.shape[1]
    angle = directions * (np.pi / 2 * share("pinch_and_twirl", severity))
    amount = 0.4 * share("pinch_and_twirl", severity) + 0.1
    square = n // SQUARES
    radius = square / 2
    offset = np.arange(square) - radius
    down, right = np.meshgrid(offset, offset, indexing="ij")
    distance = np.hypot(down, right)
    moves = (distance <= radius) & (distance.round(3) > 0)
    d = np.where(moves, distance / radius, 1)
    pinch = np.sin(np.pi / 2 * d) ** -amount
    rows, columns = (np.broadcast_to(a, images.shape[:3]).astype(float) for a in np.ogrid[:n, :n])
    for i in range(SQUARES):
        for j in range(SQUARES):
            turn = angle[:, i, j, None, None] * (1 - d) ** 2
            top, left = j * square, i * square
            place = (slice(None), slice(top, top + square), slice(left, left + square))
            rows[place] = top + radius + pinch * (down * np.cos(turn) - right * np.sin(turn))
            columns[place] = left + radius + pinch * (down * np.sin(turn) + right * np.cos(turn))
    return _bilinear(images, rows, columns)


class Waves(NamedTuple):
    """wavelength (N, 2) in pixels, and phase (N, 2), of the waves along rows and along columns."""

    wavelength: Float
    phase: Float


def draw_waves(rng: Generator, count: int, size: int, severity: int) -> Waves:
    """Wavelengths of 0.1 … 0.3 of the image's side, and any phase."""
    return Waves(rng.uniform(0.1, 0.3, (count, 2)) * size, rng.uniform(0, 2 * np.pi, (count, 2)))


def ripple(images: Images, waves: Waves, severity: int) -> Images:
    """Row and column r read at r + A·sin(2πr / wavelength + phase), A = 0.025·share·side."""
    n = images.shape[1]
    amplitude = 0.025 * share("ripple", severity) * n
    position = np.arange(n)[:, None, None]
    source = position + amplitude * np.sin(2 * np.pi * position / waves.wavelength + waves.phase)
    rows, columns = source[:, :, 0].T[:, :, None], source[:, :, 1].T[:, None, :]
    shape = images.shape[:3]
    return _bilinear(images, np.broadcast_to(rows, shape), np.broadcast_to(columns, shape))


def _bilinear(images: Images, rows: Float, columns: Float) -> Images:
    """Samples at (row, column), each (N, n, n), truncated to grey levels."""
    n = images.shape[1]
    top, left = np.floor(rows).astype(np.intp), np.floor(columns).astype(np.intp)
    down, right = (rows - top)[..., None], (columns - left)[..., None]
    image = np.arange(len(images))[:, None, None]

    def pixel(i: NDArray[np.intp], j: NDArray[np.intp]) -> Float:
        inside = (i >= 0) & (i < n) & (j >= 0) & (j < n)
        return np.where(inside[..., None], images[image, i.clip(0, n - 1), j.clip(0, n - 1)], 0)

    above = pixel(top, left) * (1 - right) + pixel(top, left + 1) * right
    below = pixel(top + 1, left) * (1 - right) + pixel(top + 1, left + 1) * right
    return np.clip(above * (1 - down) + below * down, 0, 255).astype(np.uint8)
