"""Corrupt images of 224 pixels one by one, each with its own random numbers, on threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.random import SFC64, Generator, SeedSequence

from ttabench.corruptions.corruption_names import KNOWN_CORRUPTIONS
from ttabench.corruptions.frost_textures import FrostTextures
from ttabench.corruptions.imagenet import by_name
from ttabench.corruptions.layout import Images
from ttabench.system.cores import available_cores


def corrupt_imagenet(
    images: Images,
    name: str,
    severity: int,
    seed: int,
    *,
    frost_textures: FrostTextures | None = None,
    start: int = 0,
    workers: int | None = None,
) -> Images:
    """Corrupt images (N, 224, 224, 3) uint8 by one of the 19; returns a new array.

    The result for an image depends only on its pixels, its index `start` + i, `name`, `severity` and `seed`.
    The request was checked before.
    """
    corruption = by_name.get(name, frost_textures)
    position = KNOWN_CORRUPTIONS.index(name)
    result = np.empty(images.shape, dtype=np.uint8)

    def corrupt_one(index: int) -> None:
        sequence = SeedSequence((seed, position, severity), spawn_key=(start + index,))
        draws = corruption.draw(Generator(SFC64(sequence)), severity)
        result[index] = corruption.apply(np.ascontiguousarray(images[index]), draws, severity)

    workers = min(workers or available_cores(), len(images))
    if workers <= 1:
        for index in range(len(images)):
            corrupt_one(index)
    else:
        with ThreadPoolExecutor(workers) as pool:
            for _ in pool.map(corrupt_one, range(len(images))):
                pass
    return result
