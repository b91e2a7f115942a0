"""The interface of a dataset: clean images, their corrupted versions, and a fingerprint."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ttabench.errors import UserError


@dataclass(frozen=True)
class Labelled:
    """images (N, H, W, 3) uint8, perhaps memory-mapped; labels (N,) int64 in 0 … C−1."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.shape[-1] != 3 or self.images.dtype != np.uint8:
            raise UserError(
                f"images have shape {self.images.shape} and type {self.images.dtype}; "
                f"expected (N, H, W, 3) and uint8{_advice(self.images.shape)}."
            )
        if self.labels.shape != self.images.shape[:1]:
            raise UserError(
                f"{len(self.images)} images but labels of shape {self.labels.shape}; expected one label per "
                "image."
            )

    def __len__(self) -> int:
        return len(self.images)


def _advice(shape: tuple[int, ...]) -> str:
    if len(shape) == 3:
        return ". Gray images: numpy.stack([images] * 3, axis=-1)"
    return ". Channels first: images.transpose(0, 2, 3, 1)" if len(shape) == 4 and shape[1] == 3 else ""


class Dataset(ABC):
    """A clean train and test set, and the test set under each corruption × severity.

    name           of the dataset.
    num_classes    the number of its classes.
    image_size     the side of its images in pixels.
    mean, std      per channel, of pixels in [0, 1]: what classifiers trained here normalise with.
    corruptions    the names :meth:`corrupted` knows; ``("natural",)`` where the images are photographs that
                   come from elsewhere. Such a set has no severities: severity is 0.
    scored_classes the classes that the corrupted sets have; () = all. Logits of other classes do not count.
    """

    name: str
    num_classes: int
    image_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    corruptions: tuple[str, ...]
    scored_classes: tuple[int, ...] = ()

    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 (hex) over everything the images and labels are made from."""

    @abstractmethod
    def train(self) -> Labelled:
        """The clean training set."""

    @abstractmethod
    def test(self) -> Labelled:
        """The clean test set."""

    def shifted_count(self) -> int:
        """The images of each corrupted set."""
        return len(self.test())

    @abstractmethod
    def corrupted(self, corruption: str, severity: int) -> Labelled:
        """The test set under one corruption at severity 1 … 5, in the order of :meth:`test`.

        A natural shift has its own images, and severity 0.
        """
