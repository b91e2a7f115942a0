"""Corruptions at severities between the published ones: 0 … 5, where 0 leaves the image as it is.

At severity k + f the image is the mean of the image at severities k and k + 1, weighted by 1 − f and f. Both
have the same random numbers: noise at 1.5 is the same noise, half as much stronger. The constants of the
corruptions themselves are not interpolated, since some are whole numbers (passes, radii, sizes).

The engine of corruptions is imported on use: it needs OpenCV and SciPy, and few workers need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.random import SFC64, Generator, SeedSequence

from ttabench.corruptions.corruption_names import KNOWN_CORRUPTIONS

if TYPE_CHECKING:
    from ttabench.corruptions.layout import Images

STEP = 0.25
"""Severities are multiples of it, which bounds the number of different corruptions."""


def corrupt_between(images: Images, name: str, severity: float, seed: int, start: int = 0) -> Images:
    """Images (N, n, n, 3) uint8, n = 32 or 64, at a severity of 0 … 5; a new array.

    The result for an image depends only on its pixels, its index `start` + i, `name`, `severity` and `seed`.
    """
    from ttabench.corruptions.engine import BLOCK

    lower = int(severity)
    share = severity - lower
    result = np.empty_like(images)
    end = start + len(images)
    for block in range(start // BLOCK, -(-end // BLOCK)):
        first, last = max(start, block * BLOCK), min(end, (block + 1) * BLOCK)
        rows = slice(first - block * BLOCK, last - block * BLOCK)
        full = np.zeros((BLOCK, *images.shape[1:]), np.uint8)  # as in `engine`: a block is always full
        full[rows] = images[first - start : last - start]
        corrupted = _at(full, name, lower, seed, block)
        if share:
            upper = _at(full, name, lower + 1, seed, block)
            blend = (1 - share) * corrupted.astype(np.float32) + share * upper.astype(np.float32)
            corrupted = np.rint(blend).astype(np.uint8)
        result[first - start : last - start] = corrupted[rows]
    return result


def _at(images: Images, name: str, severity: int, seed: int, block: int) -> Images:
    from ttabench.corruptions import by_name

    if severity == 0:
        return images
    corruption = by_name.get(name)
    position = KNOWN_CORRUPTIONS.index(name)
    rng = Generator(SFC64(SeedSequence((seed, position), spawn_key=(block,))))  # the same at every severity
    draws = corruption.draw(rng, len(images), images.shape[1], severity)
    return corruption.apply(images, draws, severity)
