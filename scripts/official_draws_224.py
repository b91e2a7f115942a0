"""The draws of the published generator at 224 pixels: NumPy's legacy stream, consumed image by image.

After ``numpy.random.seed``, `apply` then returns the pixels of the published functions.
"""

from __future__ import annotations

from typing import Any

from numpy.random import RandomState

from ttabench.corruptions.elastic import Bends
from ttabench.corruptions.frost_textures import FrostTextures
from ttabench.corruptions.imagenet import constants
from ttabench.corruptions.imagenet.by_name import DETERMINISTIC
from ttabench.corruptions.imagenet.constants import FOG_SIDE, SIZE, at
from ttabench.corruptions.imagenet.weather import Crop, Fall
from ttabench.corruptions.layout import UNIT, Images
from ttabench.corruptions.noise import Impulses


def official_draw(
    name: str, image: Images, severity: int, state: RandomState, textures: FrostTextures | None = None
) -> Any:
    """The draws for one image (n, n, 3), as `apply` of `name` takes them; None for no draws.

    For shot noise these are the Poisson counts themselves.
    """
    if name in DETERMINISTIC:
        return None
    if name == "frost":
        if textures is None:
            raise ValueError("frost needs textures")
        return _frost(state, textures)
    return _DRAWS[name](image, severity, state)


def _normal(image: Images, severity: int, state: RandomState) -> Any:
    return state.standard_normal(image.shape)


def _shot(image: Images, severity: int, state: RandomState) -> Any:
    return state.poisson(UNIT[image] * at(constants.SHOT_NOISE, severity))


def _impulse(image: Images, severity: int, state: RandomState) -> Impulses:
    hit, white = state.random_sample((2, *image.shape))
    return Impulses(replaced=hit < at(constants.IMPULSE_NOISE, severity), white=white < 0.5)


def _glass(image: Images, severity: int, state: RandomState) -> Any:
    _, d, passes = at(constants.GLASS_BLUR, severity)
    return state.randint(-d, d, (passes, SIZE - 2 * d, SIZE - 2 * d, 2))


def _motion(image: Images, severity: int, state: RandomState) -> Any:
    return state.uniform(-45, 45)


def _snow(image: Images, severity: int, state: RandomState) -> Fall:
    c = at(constants.SNOW, severity)
    field = state.normal(c.loc, c.scale, (SIZE, SIZE))
    return Fall(field, state.uniform(-135, -45))


def _frost(state: RandomState, textures: FrostTextures) -> Crop:
    picture = state.randint(len(textures.pictures))
    height, width = textures.pictures[picture].shape[:2]
    row = state.randint(height - SIZE)
    return Crop(picture, row, state.randint(width - SIZE))


def _fog(image: Images, severity: int, state: RandomState) -> Any:
    return state.uniform(-1, 1, FOG_SIDE * FOG_SIDE - 1)


def _elastic(image: Images, severity: int, state: RandomState) -> Bends:
    jitter = at(constants.ELASTIC, severity).jitter
    corners = state.uniform(-jitter, jitter, (1, 3, 2))
    return Bends(corners, state.uniform(-1, 1, (1, 2, SIZE, SIZE)))


def _spatter(image: Images, severity: int, state: RandomState) -> Any:
    c = at(constants.SPATTER, severity)
    return state.normal(c.loc, c.scale, (SIZE, SIZE))


_DRAWS = {
    "gaussian_noise": _normal,
    "shot_noise": _shot,
    "impulse_noise": _impulse,
    "glass_blur": _glass,
    "motion_blur": _motion,
    "snow": _snow,
    "fog": _fog,
    "elastic_transform": _elastic,
    "speckle_noise": _normal,
    "spatter": _spatter,
}
