"""The draws of the published generator scripts: NumPy's legacy stream, consumed image by image.

With a generator seeded as in the golden files, `apply` then returns the pixels of the published functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import RandomState

from ttabench.corruptions import constants
from ttabench.corruptions.by_name import DETERMINISTIC
from ttabench.corruptions.constants import at
from ttabench.corruptions.elastic import Bends
from ttabench.corruptions.frost import Crops
from ttabench.corruptions.frost_textures import FrostTextures
from ttabench.corruptions.layout import UNIT, Images
from ttabench.corruptions.noise import Impulses
from ttabench.corruptions.weather import Flakes


def official_draws(
    name: str, images: Images, severity: int, state: RandomState, textures: FrostTextures | None = None
) -> Any:
    """The draws for images (N, n, n, 3) in order, as `apply` of `name` takes them; None for no draws.

    For shot noise these are the Poisson counts themselves.
    """
    if name in DETERMINISTIC:
        return None
    if name == "frost":
        if textures is None:
            raise ValueError("frost needs textures")
        return _frost(len(images), images.shape[1], state, textures)
    return _DRAWS[name](images, severity, state)


def _normal(images: Images, severity: int, state: RandomState) -> Any:
    return state.standard_normal(images.shape)


def _shot(images: Images, severity: int, state: RandomState) -> Any:
    return state.poisson(UNIT[images] * at(constants.SHOT_NOISE, images.shape[1], severity))


def _impulse(images: Images, severity: int, state: RandomState) -> Impulses:
    uniform = state.random_sample((len(images), 2, *images.shape[1:]))
    amount = at(constants.IMPULSE_NOISE, images.shape[1], severity)
    return Impulses(replaced=uniform[:, 0] < amount, white=uniform[:, 1] < 0.5)


def _glass(images: Images, severity: int, state: RandomState) -> Any:
    n = images.shape[1]
    _, d, passes = at(constants.GLASS_BLUR, n, severity)
    return state.randint(-d, d, (len(images), passes, n - 2 * d, n - 2 * d, 2))


def _motion(images: Images, severity: int, state: RandomState) -> Any:
    return state.uniform(-45, 45, len(images))


def _snow(images: Images, severity: int, state: RandomState) -> Flakes:
    n = images.shape[1]
    c = at(constants.SNOW, n, severity)
    fields, angles = [], []
    for _ in images:
        fields.append(state.normal(c.loc, c.scale, (n, n)))
        angles.append(state.uniform(-135, -45))
    return Flakes(np.stack(fields), np.array(angles))


def _frost(count: int, n: int, state: RandomState, textures: FrostTextures) -> Crops:
    sheet = textures.sheet(constants.FROST_SCALE[n])
    crops = []
    for _ in range(count):
        picture = state.randint(len(sheet.heights))
        row = state.randint(sheet.heights[picture] - n)
        crops.append((picture, row, state.randint(sheet.widths[picture] - n)))
    return Crops(*np.array(crops).T)


def _fog(images: Images, severity: int, state: RandomState) -> Any:
    return state.uniform(-1, 1, (len(images), images.shape[1] ** 2 - 1))


def _elastic(images: Images, severity: int, state: RandomState) -> Bends:
    n = images.shape[1]
    uniform = state.uniform(-1, 1, (len(images), 6 + 2 * n * n))
    corners = uniform[:, :6] * at(constants.ELASTIC, n, severity).jitter
    return Bends(corners.reshape(-1, 3, 2), uniform[:, 6:].reshape(-1, 2, n, n))


def _spatter(images: Images, severity: int, state: RandomState) -> Any:
    c = at(constants.SPATTER, images.shape[1], severity)
    return state.normal(c.loc, c.scale, images.shape[:3])


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
