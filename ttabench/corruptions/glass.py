"""Glass blur: every pixel is a copy of a random near pixel, between two Gaussian filters."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ttabench.corruptions import constants
from ttabench.corruptions.constants import at
from ttabench.corruptions.filters import gaussian_filter
from ttabench.corruptions.layout import Images, batch_first, to_grey_levels, to_images, unit_images


def draw_shifts(rng: Generator, count: int, size: int, severity: int) -> NDArray[np.int8]:
    """(count, passes, m, m, 2): (dx, dy) in −d … d−1 for each visited pixel, in the order of the visits."""
    _, d, passes = at(constants.GLASS_BLUR, size, severity)
    side = size - 2 * d
    return rng.integers(-d, d, (count, passes, side, side, 2), dtype=np.int8)


def glass_blur(images: Images, shifts: NDArray[np.integer], severity: int) -> Images:
    """Blur, copy to every pixel a random near pixel, blur again.

    Each pass visits rows n−d … d+1 and, in each row, columns n−d … d+1. It overwrites each pixel with the
    pixel (dx, dy) away, which an earlier visit may have overwritten.
    """
    n, count = images.shape[1], len(images)
    sigma, d, passes = at(constants.GLASS_BLUR, n, severity)
    blurred = batch_first(to_grey_levels(gaussian_filter(unit_images(images), sigma)))
    # Four bytes per pixel, so that a pixel moves as one word.
    words = cv2.cvtColor(blurred.reshape(count * n, n, 3), cv2.COLOR_RGB2RGBA).view(np.uint32)
    words = words.reshape(count, n * n)
    for number in range(passes):
        words = np.take_along_axis(words, _sources(shifts[:, number], n, d), axis=1)
    moved = cv2.cvtColor(words.view(np.uint8).reshape(count * n, n, 4), cv2.COLOR_RGBA2RGB)
    moved = np.asarray(moved, dtype=np.uint8).reshape(images.shape)
    return to_images(gaussian_filter(unit_images(moved), sigma))


def _sources(shifts: NDArray[np.integer], n: int, d: int) -> NDArray[np.intp]:
    """(N, n²): for each pixel after a pass, the index of the pixel before the pass that it is a copy of.

    Where the source of a pixel is visited later, the pixel gets the source's old value. Where the source was
    visited earlier, the pixel gets its new value: such chains are resolved by pointer doubling.
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
    next_node = np.where(overwritten, source, source + n * n).reshape(count, n * n)
    ends = np.broadcast_to(np.arange(n * n, 2 * n * n), (count, n * n))
    nodes = np.concatenate([next_node, ends], axis=1)
    while (nodes[:, : n * n] < n * n).any():
        nodes = np.take_along_axis(nodes, nodes, axis=1)
    return nodes[:, : n * n] - n * n
