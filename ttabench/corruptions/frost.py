"""Frost: a random crop of a picture of ice, blended over the image."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ttabench.corruptions import constants
from ttabench.corruptions.constants import at
from ttabench.corruptions.frost_textures import FrostTextures
from ttabench.corruptions.layout import Images


class Crops(NamedTuple):
    """Which picture, and the top left corner of the crop in the shrunk picture: (N,) integers each."""

    picture: NDArray[np.integer]
    row: NDArray[np.integer]
    column: NDArray[np.integer]


def draw_crops(rng: Generator, count: int, size: int, severity: int, *, textures: FrostTextures) -> Crops:
    """A picture, and a corner that leaves the last row and column of positions unused, as published."""
    sheet = textures.sheet(constants.FROST_SCALE[size])
    picture = rng.integers(0, len(sheet.heights), count)
    row = (rng.random(count) * (sheet.heights[picture] - size)).astype(np.intp)
    column = (rng.random(count) * (sheet.widths[picture] - size)).astype(np.intp)
    return Crops(picture, row, column)


def frost(images: Images, crops: Crops, severity: int, *, textures: FrostTextures) -> Images:
    """image weight · x + frost weight · crop, clipped to [0, 255]."""
    n = images.shape[1]
    weight = at(constants.FROST, n, severity)
    sheet = textures.sheet(constants.FROST_SCALE[n])
    windows = np.lib.stride_tricks.sliding_window_view(sheet.pixels, (n, n), axis=(0, 1))
    ice = windows[sheet.tops[crops.picture] + crops.row, crops.column].transpose(0, 2, 3, 1)
    blend = weight.image * images.astype(np.float64)
    blend += weight.frost * ice
    np.clip(blend, 0, 255, out=blend)
    return blend.astype(np.uint8)
