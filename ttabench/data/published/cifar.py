"""cifar10-c and cifar100-c in their published layout: one array per corruption, pickled clean batches."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ttabench.corruptions.corruption_names import ALL_CORRUPTIONS, SEVERITIES
from ttabench.data.dataset import Labelled
from ttabench.data.files.array_files import open_array
from ttabench.data.published.clean_cifar import CleanCifar
from ttabench.data.published.description import PublishedDataset
from ttabench.errors import UserError


class CifarC(CleanCifar):
    """Rows (s−1)·n … s·n of ``<corruption>.npy`` (5n, 32, 32, 3) are the n test images at severity s.

    Arrays are memory-mapped: only the current batches are in memory. `labels.npy` must repeat the clean
    test labels five times in the official order; otherwise no corrupted image is read.
    """

    def __init__(self, facts: PublishedDataset, root: Path) -> None:
        """Raises UserError where the clean batches or the labels are not below `root`."""
        super().__init__(facts, root)
        self.check_present(self.corrupted_folder / "labels.npy")
        self.corruptions = tuple(c for c in ALL_CORRUPTIONS if (self.corrupted_folder / f"{c}.npy").is_file())

    def pieces(self) -> dict[str, Path]:
        arrays = ("labels.npy", *(f"{c}.npy" for c in self.corruptions))
        return super().pieces() | {f"corrupted/{name}": self.corrupted_folder / name for name in arrays}

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        self.check_request(corruption, severity)
        path = self.corrupted_folder / f"{corruption}.npy"
        images = open_array(path, (5 * self.facts.test, self.image_size, self.image_size, 3), np.uint8)
        rows = slice((severity - 1) * self.facts.test, severity * self.facts.test)
        return Labelled(images[rows], self._labels[rows])

    @cached_property
    def _labels(self) -> NDArray[np.int64]:
        path = self.corrupted_folder / "labels.npy"
        labels = open_array(path, (5 * self.facts.test,), None).astype(np.int64)
        for severity in SEVERITIES:
            rows = slice((severity - 1) * self.facts.test, severity * self.facts.test)
            wrong = int((labels[rows] != self._test.labels).sum())
            if wrong:
                raise UserError(
                    f"{path} disagrees with the clean test labels on {wrong} of {self.facts.test} images at "
                    f"severity {severity}: one of them is in another order; fetch the dataset again."
                )
        return labels
