"""Spatter: splashes of water or mud on the lens."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.random import Generator

from ttabench.corruptions import constants
from ttabench.corruptions.constants import at
from ttabench.corruptions.filters import gaussian_filter
from ttabench.corruptions.layout import Float, Images, batch_first, batch_last, to_images, unit_images
from ttabench.corruptions.noise import draw_normal_field

MUD = np.array([63, 42, 20], dtype=np.float32) / np.float32(255)
WATER = np.array([175, 238, 238], dtype=np.float32) / np.float32(255)
RELIEF = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])


def draw_liquid(rng: Generator, count: int, size: int, severity: int) -> Float:
    """A normal field with the severity's mean and standard deviation: (count, size, size) float32."""
    c = at(constants.SPATTER, size, severity)
    return draw_normal_field(rng, count, size, c.loc, c.scale)


def spatter(images: Images, field: Float, severity: int) -> Images:
    """Blend in mud (severities 4, 5) or add highlights of water (1 … 3) where the smoothed field is high."""
    c = at(constants.SPATTER, images.shape[1], severity)
    liquid = gaussian_filter(batch_last(field), c.sigma)
    liquid[liquid < c.threshold] = 0
    x = unit_images(images, np.float32)
    if c.mud:
        mask = gaussian_filter((liquid > c.threshold).astype(np.float32), c.strength)
        mask[mask < 0.8] = 0
        x *= (1 - mask)[:, :, None]
        x += mask[:, :, None] * MUD[:, None]
        return to_images(x)
    # The cast to uint8 overflows as in C: 256 becomes 0.
    levels = batch_first((liquid * 255).astype(np.int32).astype(np.uint8))
    mask = batch_last(levels * np.stack([_highlights(level) for level in levels]))
    peak = mask.max(axis=(0, 1))
    mask /= np.where(peak == 0, 1, peak)
    mask *= np.float32(c.strength)
    mask[:, :, peak == 0] = 0
    x += mask[:, :, None] * WATER[:, None]
    return to_images(x)


def _highlights(level: Images) -> Float:
    """(n, n) uint8 → (n, n) float32: the relief of the distance to the edges of the drops."""
    distance = cv2.distanceTransform(255 - cv2.Canny(level, 50, 150), cv2.DIST_L2, 5)
    np.minimum(distance, 20, out=distance)
    smooth = cv2.blur(distance, (3, 3)).astype(np.uint8)
    relief = cv2.filter2D(cv2.equalizeHist(smooth), cv2.CV_8U, RELIEF)
    return np.asarray(cv2.blur(relief, (3, 3)), dtype=np.float32)
