"""Spatter: splashes of water or mud on the lens."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from ttabench.corruptions.filters import gaussian_filter
from ttabench.corruptions.imagenet import constants
from ttabench.corruptions.imagenet.constants import SIZE, at
from ttabench.corruptions.imagenet.shared import highlights
from ttabench.corruptions.layout import UNIT, Float, Images, to_grey_levels
from ttabench.corruptions.spatter import MUD, WATER


def draw_liquid(rng: Generator, severity: int) -> Float:
    """A normal field with the severity's mean and standard deviation: (n, n)."""
    c = at(constants.SPATTER, severity)
    return c.loc + c.scale * rng.standard_normal((SIZE, SIZE))


def spatter(image: Images, field: Float, severity: int) -> Images:
    """Blend in mud (severities 4, 5) or add highlights of water (1 … 3) where the smoothed field is high."""
    c = at(constants.SPATTER, severity)
    liquid = gaussian_filter(field, c.sigma)
    liquid[liquid < c.threshold] = 0
    x = UNIT[image].astype(np.float32)
    if c.mud:
        mask = gaussian_filter((liquid > c.threshold).astype(np.float32), c.strength)
        mask[mask < 0.8] = 0
        return to_grey_levels(x * (1 - mask)[..., None] + mask[..., None] * MUD)
    # The cast to uint8 overflows as in C: 256 becomes 0.
    level = (liquid * 255).astype(np.int32).astype(np.uint8)
    drops = (level * highlights(level)).astype(np.float32)
    if peak := drops.max():
        drops /= peak
        drops *= np.float32(c.strength)
    return to_grey_levels(x + drops[..., None] * WATER)
