"""The images of a cell by position, with their labels: any part can be read, and only that is in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttabench.cell.protocol import Protocol
from ttabench.data.dataset import Labelled
from ttabench.measure.contamination import Mixture, foreign_images, interleave
from ttabench.measure.order_and_batches import Images, arrange

FOREIGN = -1
CLASS_BY_CLASS = "dirichlet(0)"
"""The label shift of SAR (Niu et al., ICLR 2023)."""


class Batch(NamedTuple):
    """images (b, n, n, 3) uint8; labels (b,), :data:`FOREIGN` for an image that is not scored."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class Order:
    """The images of a test set, and their order.

    images   the test images at positions 0 … n−1, then foreign images.
    adapted  positions used for adaptation before scoring (offline and held-out protocols).
    scored   positions in the order in which they are scored.
    labels   (n,) of the test images.
    """

    images: Images
    adapted: NDArray[np.int64]
    scored: NDArray[np.int64]
    labels: NDArray[np.int64]


class ImageStream(ABC):
    """A stream of images that is read by position, so that it can be continued anywhere.

    total    images.
    scored   images with a label.
    places   (scored,) which of them, in the order of the stream, comes first, second … in a result.
    order    what is adapted to before scoring; `Part` alone has it, as no long stream is offline or held out.
    """

    total: int
    scored: int
    places: NDArray[np.int64] | slice = slice(None)
    order: Order

    @abstractmethod
    def read(self, start: int, stop: int) -> Batch:
        """The images at positions `start` … `stop` − 1."""


class Part(ImageStream):
    """A test set in the order of a protocol. A single corruption is a stream of one part.

    Results are in the order of the test set.
    """

    def __init__(self, data: Labelled, protocol: Protocol, seed: int) -> None:
        self.order = put_in_order(data, protocol, seed)
        positions = self.order.scored
        self.total = len(positions)
        self.places = np.argsort(positions[positions < len(self.order.labels)])
        self.scored = len(self.places)

    def read(self, start: int, stop: int) -> Batch:
        positions = self.order.scored[start:stop]
        in_test_set = positions < len(self.order.labels)
        labels = np.full(len(positions), FOREIGN)
        labels[in_test_set] = self.order.labels[positions[in_test_set]]
        return Batch(self.order.images[positions], labels)


def put_in_order(data: Labelled, protocol: Protocol, seed: int) -> Order:
    """The images of a test set in the order of a protocol, with foreign ones where it is contaminated."""
    n = min(protocol.limit or len(data), len(data))
    images: Images = data.images[:n]
    labels = data.labels[:n]
    by_class = protocol.order == CLASS_BY_CLASS
    order = class_by_class(labels, seed) if by_class else arrange(protocol.order, labels, seed)
    if protocol.contamination:
        foreign = foreign_images(protocol.contamination, data.images[:n], seed)
        images = Mixture(data.images[:n], foreign)
        order = interleave(order, n, len(foreign), seed)
    if not protocol.held_out:
        return Order(images, order, order, labels)
    cut = len(order) - round(protocol.held_out * n)
    return Order(images, order[:cut], order[cut:], labels)


def class_by_class(labels: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Positions 0 … n−1: all images of a class, then all of another one, both in a seeded order."""
    draw = np.random.Generator(np.random.PCG64(seed))
    classes = draw.permutation(np.unique(labels))
    return np.concatenate([draw.permutation(np.flatnonzero(labels == label)) for label in classes])
