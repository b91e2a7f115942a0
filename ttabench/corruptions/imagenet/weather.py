"""Snow, frost and fog."""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.random import Generator

from ttabench.corruptions.frost_textures import FrostTextures
from ttabench.corruptions.imagenet import constants
from ttabench.corruptions.imagenet.blur import zoomed
from ttabench.corruptions.imagenet.constants import FOG_SIDE, SIZE, at
from ttabench.corruptions.layout import UNIT, Float, Images, to_grey_levels
from ttabench.corruptions.motion import blur_along
from ttabench.corruptions.weather import fractal_field


class Fall(NamedTuple):
    """field (n, n) normal; angle of the fall in degrees."""

    field: Float
    angle: float


def draw_flakes(rng: Generator, severity: int) -> Fall:
    """A normal field with the severity's mean and standard deviation, and an angle in −135 … −45."""
    c = at(constants.SNOW, severity)
    field = rng.standard_normal((SIZE, SIZE), dtype=np.float32)
    return Fall(c.loc + c.scale * field.astype(np.float64), rng.uniform(-135, -45))


def snow(image: Images, fall: Fall, severity: int) -> Images:
    """Whiten the image, then add streaks of snow and the same streaks turned by 180 degrees."""
    c = at(constants.SNOW, severity)
    field = zoomed(fall.field[..., None], c.zoom)
    field[field < c.threshold] = 0
    flakes = np.ascontiguousarray(to_grey_levels(field))
    streaks = UNIT[blur_along(flakes[None], np.array([fall.angle]), c.motion)[0]]

    x = UNIT[image].astype(np.float32)
    grey = np.asarray(cv2.cvtColor(x, cv2.COLOR_RGB2GRAY))[..., None]
    white = np.maximum(x, grey * np.float32(1.5) + np.float32(0.5))
    x = np.float32(c.mix) * x + np.float32(1 - c.mix) * white
    return to_grey_levels(x + streaks + streaks[::-1, ::-1])


class Crop(NamedTuple):
    """Which picture, and the top left corner of the crop in it."""

    picture: int
    row: int
    column: int


def draw_crop(rng: Generator, severity: int, *, textures: FrostTextures) -> Crop:
    """A picture, and a corner that leaves the last row and column of positions unused, as published."""
    picture = int(rng.integers(0, len(textures.pictures)))
    height, width = textures.pictures[picture].shape[:2]
    return Crop(picture, int(rng.integers(0, height - SIZE)), int(rng.integers(0, width - SIZE)))


def frost(image: Images, crop: Crop, severity: int, *, textures: FrostTextures) -> Images:
    """image weight · x + frost weight · crop of a picture in its full size, clipped to [0, 255]."""
    weight = at(constants.FROST, severity)
    picture = textures.pictures[crop.picture]
    ice = picture[crop.row : crop.row + SIZE, crop.column : crop.column + SIZE]
    blend = weight.image * image.astype(np.float64) + weight.frost * ice
    np.clip(blend, 0, 255, out=blend)
    return blend.astype(np.uint8)


def draw_turbulence(rng: Generator, severity: int) -> Float:
    """(256² − 1,) uniform in −1 … 1: displacements of the diamond–square field, coarse to fine."""
    return rng.random(FOG_SIDE * FOG_SIDE - 1) * 2 - 1


def fog(image: Images, turbulence: Float, severity: int) -> Images:
    """(v + strength·F)·M/(M + strength) with F a fractal field in [0, 1] and M the image's largest value.

    F is the corner of a field of 256 pixels, which is scaled to [0, 1] as a whole.
    """
    strength, decay = at(constants.FOG, severity)
    field = fractal_field(turbulence[:, None], FOG_SIDE, decay)[:SIZE, :SIZE]
    x = UNIT[image]
    largest = x.max()
    x += strength * field
    return to_grey_levels(x * largest / (largest + strength))
