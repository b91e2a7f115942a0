"""Snow and fog; frost has its own file."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from ttabench.corruptions import constants
from ttabench.corruptions.constants import at
from ttabench.corruptions.filters import central_zoom
from ttabench.corruptions.layout import (
    Float,
    Images,
    batch_first,
    batch_last,
    to_grey_levels,
    to_images,
    unit_images,
)
from ttabench.corruptions.motion import blur_along
from ttabench.corruptions.noise import draw_normal_field


class Flakes(NamedTuple):
    """field (N, n, n) normal; angles (N,) degrees of the fall."""

    field: Float
    angles: Float


def draw_flakes(rng: Generator, count: int, size: int, severity: int) -> Flakes:
    """A normal field with the severity's mean and standard deviation, and an angle in −135 … −45."""
    c = at(constants.SNOW, size, severity)
    field = draw_normal_field(rng, count, size, c.loc, c.scale)
    return Flakes(field, rng.uniform(-135, -45, count))


def snow(images: Images, flakes: Flakes, severity: int) -> Images:
    """Whiten the image, then add streaks of snow and the same streaks turned by 180 degrees."""
    n, count = images.shape[1], len(images)
    c = at(constants.SNOW, n, severity)
    zoom = central_zoom(n, c.zoom).astype(flakes.field.dtype)
    field = zoom @ batch_last(flakes.field).reshape(n * n, count)
    field[field < c.threshold] = 0
    blurred = blur_along(batch_first(to_grey_levels(field)).reshape(count, n, n, 1), flakes.angles, c.motion)
    streaks = unit_images(blurred)

    x = unit_images(images, np.float32)
    grey = np.float32(0.299) * x[:, :, 0] + np.float32(0.587) * x[:, :, 1] + np.float32(0.114) * x[:, :, 2]
    veil = grey * np.float32(1.5) + np.float32(0.5)
    white = np.maximum(x, veil[:, :, None])
    white *= np.float32(1 - c.mix)
    x *= np.float32(c.mix)
    x += white
    return to_images(x + streaks + streaks[::-1, ::-1])


def draw_turbulence(rng: Generator, count: int, size: int, severity: int) -> Float:
    """(count, size² − 1) uniform in −1 … 1: displacements of the diamond–square field, coarse to fine."""
    uniform = rng.random((size * size - 1, count), dtype=np.float32)
    uniform *= 2
    uniform -= 1
    return np.moveaxis(uniform, -1, 0)


def fog(images: Images, turbulence: Float, severity: int) -> Images:
    """(v + strength·F)·M/(M + strength) with F a fractal field in [0, 1] and M the image's largest value."""
    n = images.shape[1]
    strength, decay = at(constants.FOG, n, severity)
    field = fractal_field(batch_last(turbulence), n, decay)
    x = unit_images(images, field.dtype.type)
    largest = x.max(axis=(0, 1, 2))
    x += (strength * field)[:, :, None]
    x *= largest
    x /= largest + strength
    return to_images(x)


def fractal_field(turbulence: Float, n: int, decay: float) -> Float:
    """Diamond–square field on an n × n torus, scaled to [0, 1].

    turbulence (n² − 1, N) in [−1, 1] → (n, n, N). Displacements have amplitude w², where w starts at 100 and
    is divided by `decay` from level to level.
    """
    count = turbulence.shape[-1]
    field = np.zeros((n, n, count), dtype=turbulence.dtype)
    offset, amplitude = 0, 100.0
    for step in _halvings(n):
        k = n // step
        size = k * k
        squares, across, down = (
            turbulence[offset + i * size : offset + (i + 1) * size].reshape(k, k, count) * amplitude**2
            for i in range(3)
        )
        offset += 3 * size
        amplitude /= decay
        half = step // 2
        corners = field[::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=1)
        centres = (pairs + np.roll(pairs, -1, axis=0)) / 4 + squares
        field[half::step, half::step] = centres
        field[::step, half::step] = (pairs + centres + np.roll(centres, 1, axis=0)) / 4 + across
        pairs = corners + np.roll(corners, -1, axis=0)
        field[half::step, ::step] = (pairs + centres + np.roll(centres, 1, axis=1)) / 4 + down
    field -= field.min(axis=(0, 1))
    field /= field.max(axis=(0, 1))
    return field


@lru_cache(maxsize=4)
def _halvings(n: int) -> tuple[int, ...]:
    """n, n/2, … 2."""
    return tuple(n >> k for k in range(n.bit_length() - 1))
