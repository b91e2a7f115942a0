"""Foreign images in a stream: the method adapts to them, but they are never scored."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ttabench.cell.protocol import parse_call
from ttabench.errors import UnknownName, UserError, unknown


class Mixture:
    """Two arrays of images with one index: 0 … n−1 are the test images, n … n+m−1 the foreign ones."""

    def __init__(self, images: NDArray[np.uint8], foreign: NDArray[np.uint8]) -> None:
        self._images = images
        self._foreign = foreign

    def __getitem__(self, positions: NDArray[np.int64]) -> NDArray[np.uint8]:
        in_images = positions < len(self._images)
        taken = np.empty((len(positions), *self._images.shape[1:]), np.uint8)
        taken[in_images] = self._images[positions[in_images]]
        taken[~in_images] = self._foreign[positions[~in_images] - len(self._images)]
        return taken


def foreign_images(contamination: str, like: NDArray[np.uint8], seed: int) -> NDArray[np.uint8]:
    """Foreign images for a stream of len(`like`) test images: they are a fraction ε of the whole stream.

    ``noise(ε)`` is uniform noise; ``DATASET(ε)`` draws from that dataset's clean test images, which
    must have the size of `like`. Raises UserError.
    """
    kind, fraction = parse_call(contamination) or ("", 0.0)
    count = round(len(like) * fraction / (1 - fraction))
    draw = np.random.Generator(np.random.PCG64(seed))
    if kind == "noise":
        return draw.integers(0, 256, (count, *like.shape[1:]), np.uint8)
    from ttabench.data.catalog import NAMES, dataset, local_names

    try:
        images = dataset(kind).test().images
    except UnknownName:
        raise unknown("contamination", kind, ("noise", *NAMES, *local_names())) from None
    if images.shape[1:] != like.shape[1:]:
        raise UserError(
            f"images of {kind} are {images.shape[1]} pixels wide, those of the stream {like.shape[1]}; "
            "contaminate with a dataset of the same size, or with noise."
        )
    return images[draw.choice(len(images), count, replace=count > len(images))]


def interleave(order: NDArray[np.int64], first_foreign: int, foreign: int, seed: int) -> NDArray[np.int64]:
    """`order` with the positions `first_foreign` … of `foreign` images inserted at random places."""
    draw = np.random.Generator(np.random.PCG64(seed))
    total = len(order) + foreign
    mixed = np.empty(total, np.int64)
    places = np.zeros(total, bool)
    places[draw.choice(total, foreign, replace=False)] = True
    mixed[places] = first_foreign + np.arange(foreign)
    mixed[~places] = order
    return mixed
