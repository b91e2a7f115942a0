"""Parts of the functions of 32 and 64 pixels that serve 224 pixels too, with constants as arguments.

They are here, and those files stay as they are, because stored results depend on the code of those files.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ttabench.corruptions import constants, elastic, glass, noise, spatter
from ttabench.corruptions.elastic import Bends, Mirror
from ttabench.corruptions.layout import Float, Images, select, to_grey_levels


def sources_of_pass(shifts: NDArray[np.integer], n: int, d: int) -> NDArray[np.intp]:
    """(N, n²): the pixel before a pass of glass blur that each pixel after it is a copy of.

    shifts (N, m, m, 2).
    """
    return glass._sources(shifts, n, d)


def highlights(level: Images) -> Float:
    """(n, n) uint8 → (n, n) float32: the relief of the distance to the edges of drops of water."""
    return spatter._highlights(level)


def sample_counts(images: Images, bits: NDArray[np.uint32], rate: float) -> Images:
    """Shot noise at any rate lambda, by the tables of :func:`ttabench.corruptions.noise.shot_noise`."""
    threshold, alias = noise._alias_tables(rate)
    column = bits.astype(np.uint8)
    cell = images * np.uint16(256) + column
    keep_column = (bits >> 8) < np.take(threshold, cell)
    return select(keep_column, column, np.take(alias, cell))


def bend(images: Images, bends: Bends, c: constants.Elastic, mirror: Mirror) -> Images:
    """Elastic transform of images (N, n, n, 3) with the given constants, whose amplitude is not 0."""
    n = images.shape[1]
    planes = elastic._warp_affine(images, elastic._inverse_affine(bends.corners, n))
    fields = (elastic._smooth(bends.fields, c.sigma) * c.amplitude).astype(np.float32)
    grid = np.arange(n, dtype=np.float64)
    planes = elastic._displace(planes, grid[:, None] + fields[:, 1], grid + fields[:, 0], mirror)
    return np.ascontiguousarray(np.moveaxis(to_grey_levels(planes), 0, -1))
