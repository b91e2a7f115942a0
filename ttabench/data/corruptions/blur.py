"""Gaussian, defocus, zoom and glass blur; motion blur has its own file."""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import sparse

from ttabench.data.corruptions import constants
from ttabench.data.corruptions.arrays import (
    Images,
    batch_first,
    batch_last,
    to_grey_levels,
    to_images,
    unit_images,
)
from ttabench.data.corruptions.constants import at
from ttabench.data.corruptions.filters import gaussian_filter, zoom_matrix


def gaussian_blur(images: Images, draws: None, severity: int) -> Images:
    """Gaussian filter with edge pixels replicated."""
    sigma = at(constants.GAUSSIAN_BLUR, images.shape[1], severity)
    return to_images(gaussian_filter(unit_images(images), sigma))


def defocus_blur(images: Images, draws: None, severity: int) -> Images:
    """Correlation with a disc whose edge is smoothed; border mirrored about the edge pixel."""
    n = images.shape[1]
    rings = _rings(at(constants.DEFOCUS_BLUR, n, severity))
    reach = max(abs(shift) for _, shifts in rings for pair in shifts for shift in pair)
    mirrored = np.pad(np.arange(n), reach, mode="reflect")
    padded = batch_last(images)[mirrored][:, mirrored].astype(np.uint16)
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
    """The kernel as (weight, shifts of that weight): sums of equal weights stay exact integers."""
    grid = np.arange(-8, 9)
    kernel = (grid[:, None] ** 2 + grid**2 <= disc.radius**2).astype(np.float32)
    kernel /= kernel.sum()
    kernel = np.asarray(cv2.GaussianBlur(kernel, (3, 3), disc.edge_sigma), dtype=np.float32)
    rings: dict[float, list[tuple[int, int]]] = {}
    for row, column in np.argwhere(kernel > 1e-12):
        rings.setdefault(float(kernel[row, column]), []).append((int(row) - 8, int(column) - 8))
    return tuple((weight, tuple(shifts)) for weight, shifts in sorted(rings.items()))


def zoom_blur(images: Images, draws: None, severity: int) -> Images:
    """Mean of the image and its central zooms by 1, 1.01, … (so it counts twice itself), in float32."""
    n, count = images.shape[1], len(images)
    zooms = _zooms(n, severity)
    x = unit_images(images, np.float32).reshape(n * n, 3 * count)
    exact = x.astype(np.float64)
    total = np.zeros_like(x)
    for zoom in zooms:
        total += x if zoom is None else (zoom @ exact).astype(np.float32)
    total += x
    total /= np.float32(len(zooms) + 1)
    return to_images(total.reshape(n, n, 3, count))


@lru_cache(maxsize=16)
def _zooms(n: int, severity: int) -> tuple[sparse.csr_array | None, ...]:
    """One (n², n²) bilinear resampling per factor; None for the identity."""
    identity = np.eye(n)
    matrices = (
        zoom_matrix(n, factor) for factor in np.arange(1, constants.ZOOM_BLUR_STOP[severity - 1], 0.01)
    )
    return tuple(
        None if np.array_equal(m, identity) else sparse.csr_array(sparse.kron(m, m)) for m in matrices
    )


def draw_shifts(rng: Generator, count: int, size: int, severity: int) -> NDArray[np.int8]:
    """(count, passes, m, m, 2): (dx, dy) in −d … d−1 for each visited pixel, in the order of the visits."""
    _, d, passes = at(constants.GLASS_BLUR, size, severity)
    side = size - 2 * d
    return rng.integers(-d, d, (count, passes, side, side, 2), dtype=np.int8)


def glass_blur(images: Images, shifts: NDArray[np.integer], severity: int) -> Images:
    """Blur, copy every pixel from a random near one, blur again.

    Each pass visits rows n−d … d+1 and, in each, columns n−d … d+1, and overwrites each pixel with the one
    (dx, dy) away, which may have been overwritten before.
    """
    n, count = images.shape[1], len(images)
    sigma, d, passes = at(constants.GLASS_BLUR, n, severity)
    blurred = batch_first(to_grey_levels(gaussian_filter(unit_images(images), sigma)))
    pixels = blurred.reshape(count, n * n, 3)
    for number in range(passes):
        source = _sources(np.asarray(shifts[:, number]), n, d)
        pixels = np.take_along_axis(pixels, source[..., None], axis=1)
    return to_images(gaussian_filter(unit_images(pixels.reshape(images.shape)), sigma))


def _sources(shifts: NDArray[np.integer], n: int, d: int) -> NDArray[np.intp]:
    """(N, n²): for each pixel after a pass, the index of the pixel before the pass that it shows.

    A pixel copied from a later-visited one shows that pixel as it was. A pixel copied from an
    earlier-visited one shows what that one showed; these chains are followed by pointer doubling.
    """
    count = len(shifts)
    steps = shifts[:, ::-1, ::-1].astype(np.intp)  # now in reading order
    step = steps[..., 1] * n + steps[..., 0]
    index = np.arange(n * n).reshape(n, n)
    source = np.broadcast_to(index, (count, n, n)).copy()
    visited = slice(d + 1, n - d + 1)
    source[:, visited, visited] += step
    if d == 1:  # shifts of −1 and 0 never reach an earlier-visited pixel
        return source.reshape(count, n * n)
    # Nodes 0 … n²−1 are pixels after the pass, n² … 2n²−1 the pixels before it.
    inside = np.zeros((n, n), dtype=bool)
    inside[visited, visited] = True
    overwritten = inside.ravel()[source] & (source > index)
    following = np.where(overwritten, source, source + n * n).reshape(count, n * n)
    ends = np.broadcast_to(np.arange(n * n, 2 * n * n), (count, n * n))
    nodes = np.concatenate([following, ends], axis=1)
    while (nodes[:, : n * n] < n * n).any():
        nodes = np.take_along_axis(nodes, nodes, axis=1)
    return nodes[:, : n * n] - n * n
