"""What datasets in a user's own folders share, in every layout."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ttabench.data.on_disk import OnDisk
from ttabench.data.own.manifest import SUFFIX, read_manifest
from ttabench.errors import UserError

STATISTICS_FROM = 2_000  # images


def own_name(folder: Path) -> str:
    """The name of a folder's dataset. It always ends in ``-local``; no published name does."""
    name = re.sub(r"[^a-z0-9._-]+", "-", folder.resolve().name.lower()).strip("-") or "data"
    return name if name.endswith(SUFFIX) else name + SUFFIX


class OwnDataset(OnDisk):
    """A folder with clean and corrupted images; one subclass per layout."""

    kind: ClassVar[str] = "local"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.manifest = read_manifest(folder)
        self.name = self.manifest.get("name", own_name(folder))

    def has_train(self) -> bool:
        """Whether there is a clean training set."""
        return any(name in self.pieces() for name in ("train.npz", "train"))

    def _describe(self, images: NDArray[np.uint8], num_classes: int) -> None:
        """Set the number of classes, the image size and the statistics of the pixels."""
        self.num_classes = num_classes
        if images.shape[1] != images.shape[2]:
            raise UserError(
                f"{self.folder} has images of {images.shape[2]}×{images.shape[1]} pixels; expected square "
                "ones."
            )
        self.image_size = images.shape[1]
        self.mean, self.std = statistics(images)

    def _check_order(self, labels: NDArray[np.int64], source: Path) -> None:
        """Where a corrupted set has as many rows as the clean test set, their labels must be the same."""
        clean = self.test().labels
        if len(labels) == len(clean) and (mismatches := int((labels != clean).sum())):
            raise UserError(
                f"{source} disagrees with the clean test labels on {mismatches} of {len(clean)} images: "
                "one of them is in another order; store both in the same order."
            )


def statistics(images: NDArray[np.uint8]) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Mean and standard deviation per channel of pixels in [0, 1], from at most 2,000 images."""
    sample = images[:: max(1, len(images) // STATISTICS_FROM)].reshape(-1, 3) / 255.0
    mean, std = np.round(sample.mean(axis=0), 4), np.round(sample.std(axis=0), 4)
    return (float(mean[0]), float(mean[1]), float(mean[2])), (float(std[0]), float(std[1]), float(std[2]))
