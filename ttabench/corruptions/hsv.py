"""Brightness and saturation, changed in the hexcone model (hue, saturation, value)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ttabench.corruptions import constants
from ttabench.corruptions.constants import at
from ttabench.corruptions.layout import Float, Images, batch_first, batch_last

# For each sixth of the hue circle, which of (value, low, falling, rising) each channel takes.
SECTORS = np.array([[0, 2, 1, 1, 3, 0], [3, 0, 0, 2, 1, 1], [1, 1, 3, 0, 0, 2]], dtype=np.uint32)


def brightness(images: Images, draws: None, severity: int) -> Images:
    """Value + c, at most 1."""
    hue, saturation, value = rgb_to_hsv(batch_last(images))
    value += at(constants.BRIGHTNESS, images.shape[1], severity)
    np.minimum(value, 1, out=value)
    return batch_first(hsv_to_rgb(hue, saturation, value))


def saturate(images: Images, draws: None, severity: int) -> Images:
    """Saturation·factor + offset, clipped to [0, 1]; an offset turns grey reddish (grey has hue 0)."""
    factor, offset = at(constants.SATURATE, images.shape[1], severity)
    hue, saturation, value = rgb_to_hsv(batch_last(images))
    saturation = np.clip(saturation * factor + offset, 0, 1)
    return batch_first(hsv_to_rgb(hue, saturation, value))


def rgb_to_hsv(images: Images) -> tuple[Float, Float, Float]:
    """(n, n, 3, N) uint8 → hue, saturation and value: (n, n, N) each.

    Hue counts sixths of the circle, [0, 6); the others are in [0, 1]. Hue is measured from the last channel
    that has the largest value; grey has hue 0 and saturation 0.
    """
    red, green, blue = (np.divide(images[:, :, channel], 255) for channel in range(3))
    value = np.maximum(np.maximum(red, green), blue)
    chroma = value - np.minimum(np.minimum(red, green), blue)
    coloured = chroma > 0
    from_blue = (blue == value) & coloured
    from_green = (green == value) & coloured & ~from_blue
    from_red = ~(from_blue | from_green)
    # Each sum has one non-zero term, so it is exact. This is faster than a choice by masks.
    hue = (green - blue) * from_red + (blue - red) * from_green + (red - green) * from_blue
    hue /= chroma + ~coloured
    hue += from_green * 2.0 + from_blue * 4.0
    hue /= 6
    hue += hue < 0
    hue *= 6
    return hue, chroma / (value + (value == 0)), value


def hsv_to_rgb(hue: Float, saturation: Float, value: Float) -> Images:
    """Inverse of :func:`rgb_to_hsv`, truncated to grey levels: (n, n, 3, N) uint8."""
    sector = np.floor(hue)
    fraction = hue - sector
    # Truncate the four values a channel can take, pack them into one word, and let each channel pick.
    levels = (
        value,
        value * (1 - saturation),
        value * (1 - fraction * saturation),
        value * (1 - (1 - fraction) * saturation),
    )
    packed: NDArray[np.uint32] = np.zeros(value.shape, dtype=np.uint32)
    for place, level in enumerate(levels):
        packed |= (level * 255).astype(np.uint32) << np.uint32(8 * place)
    sixth = sector.astype(np.intp)
    result = np.empty((*value.shape[:2], 3, value.shape[2]), dtype=np.uint8)
    for channel, choice in enumerate(SECTORS):
        result[:, :, channel] = packed >> np.take(8 * choice, sixth)
    return result
