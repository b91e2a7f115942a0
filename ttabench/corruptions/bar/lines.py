"""Lines: grey anti-aliased lines across the image."""

from __future__ import annotations

from math import hypot
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from ttabench.corruptions.bar.constants import LEVELS, share
from ttabench.corruptions.layout import Float, Images

GREY = 128


class Strokes(NamedTuple):
    """angle (N,) radians; variation (N,) 0.1 … 1; uniform (N, lines, 3): x, y and angle of each line."""

    angle: Float
    variation: Float
    uniform: Float


def draw_strokes(rng: Generator, count: int, size: int, severity: int) -> Strokes:
    """A main angle, how far the lines' angles vary about it, and three uniform numbers per line."""
    angle, variation = rng.uniform(0, 2 * np.pi, count), rng.uniform(0.1, 1, count)
    most = int(max(LEVELS["lines"]) / 10 * size)
    return Strokes(angle, variation, rng.random((count, most, 3)))


def lines(images: Images, strokes: Strokes, severity: int) -> Images:
    """Draw int(share·side) lines, each two sides long, one after the other."""
    n = images.shape[1]
    result = images.copy()
    number = int(share("lines", severity) * n)
    for image, angle, variation, uniform in zip(result, *strokes, strict=True):
        for x, y, turn in uniform[:number]:
            direction = angle + 2 * np.pi * variation * (turn - 0.5)
            right, down = np.cos(direction) * n, np.sin(direction) * n
            start = int(n * x - right), int(n * y - down)
            end = int(n * x + right), int(n * y + down)
            for (i, j), weight in _line(start, end).items():
                if 0 <= i < n and 0 <= j < n:
                    image[i, j] = (1 - weight) * image[i, j] + weight * GREY
    return result


def _line(start: tuple[int, int], end: tuple[int, int]) -> dict[tuple[int, int], float]:
    """The pixels of an anti-aliased line and their weights in (0, 1].

    Zingl, "A Rasterizing Algorithm for Drawing Curves", 2012, section 1.5. If a pixel comes twice, its
    last weight counts.
    """
    (i, j), (last_i, last_j) = start, end
    height, width = abs(last_i - i), abs(last_j - j)
    step_i, step_j = (1 if i < last_i else -1), (1 if j < last_j else -1)
    length = hypot(height, width) or 1.0
    error = width - height
    weights: dict[tuple[int, int], float] = {}
    while True:
        weights[i, j] = 1 - abs(error - width + height) / length
        previous_error, column = error, j
        if 2 * previous_error >= -width:
            if j == last_j:
                break
            if previous_error + height < length:
                weights[i + step_i, j] = 1 - abs(previous_error + height) / length
            error -= height
            j += step_j
        if 2 * previous_error <= height:
            if i == last_i:
                break
            if width - previous_error < length:
                weights[i, column + step_j] = 1 - abs(width - previous_error) / length
            error += width
            i += step_i
    return weights
