"""Which images of a contaminated stream are foreign, without the images themselves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ttabench.cell.protocol import Protocol
from ttabench.measure.contamination import interleave
from ttabench.measure.image_stream import ImageStream, Part
from ttabench.measure.streams.images import Parts, part_seed


def foreign_positions(protocol: Protocol, images: int, seed: int) -> NDArray[np.bool_]:
    """Which images of the stream of a part are foreign: (n + m,), with `images` = n test images.

    It is what :func:`ttabench.measure.image_stream.put_in_order` does with the same seed, without the images.
    """
    share = float(protocol.contamination.rpartition("(")[2].rstrip(")"))
    count = round(images * share / (1 - share))
    return interleave(np.zeros(images, np.int64), 1, count, seed) > 0


def foreign_of(images: ImageStream, protocol: Protocol, seed: int) -> NDArray[np.bool_]:
    """Which images are foreign in the stream of a cell: a long one, or that of one corruption."""
    if isinstance(images, Part):
        return images.order.scored >= len(images.order.labels)
    assert isinstance(images, Parts), "a ccc stream has no foreign images"
    parts = images.total // images.part_length
    seeds = [part_seed(seed, part) for part in range(parts)]
    return np.concatenate([foreign_positions(protocol, images.scored // parts, seed) for seed in seeds])
