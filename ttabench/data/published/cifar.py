"""cifar10-c and cifar100-c in their published layout: one array per corruption, pickled clean batches."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ttabench.corruptions.names import ALL_CORRUPTIONS, SEVERITIES
from ttabench.data.dataset import Labelled
from ttabench.data.files.array_files import open_array
from ttabench.data.published.cifar_batches import FILES, read_exactly
from ttabench.data.published.facts import PublishedDataset
from ttabench.data.published.published_on_disk import PublishedOnDisk
from ttabench.errors import UserError


class CifarC(PublishedOnDisk):
    """Rows (s−1)·n … s·n of ``<corruption>.npy`` (5n, 32, 32, 3) are the n test images at severity s.

    Arrays are memory-mapped: only the current batches are in memory. `labels.npy` must repeat the clean
    test labels five times in the official order; otherwise no corrupted image is read.
    """

    def __init__(self, facts: PublishedDataset, root: Path) -> None:
        """Raises UserError where the clean batches or the labels are not below `root`."""
        super().__init__(facts, root)
        self._train_files, self._test_files = FILES[facts.clean_folder]
        self.check_present(
            self.corrupted_folder / "labels.npy", *(self.clean_folder / file for file in self._test_files)
        )
        self.corruptions = tuple(c for c in ALL_CORRUPTIONS if (self.corrupted_folder / f"{c}.npy").is_file())

    def pieces(self) -> dict[str, Path]:
        batches = (*self._train_files, *self._test_files)
        arrays = ("labels.npy", *(f"{c}.npy" for c in self.corruptions))
        clean = {f"clean/{f}": self.clean_folder / f for f in batches if (self.clean_folder / f).is_file()}
        return clean | {f"corrupted/{f}": self.corrupted_folder / f for f in arrays}

    def train(self) -> Labelled:
        return read_exactly(self.clean_folder, self._train_files, self.num_classes, self.facts.train)

    def test(self) -> Labelled:
        return self._test

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        self.check_request(corruption, severity)
        path = self.corrupted_folder / f"{corruption}.npy"
        images = open_array(path, (5 * self.facts.test, self.image_size, self.image_size, 3), np.uint8)
        rows = slice((severity - 1) * self.facts.test, severity * self.facts.test)
        return Labelled(images[rows], self._labels[rows])

    @cached_property
    def _test(self) -> Labelled:
        return read_exactly(self.clean_folder, self._test_files, self.num_classes, self.facts.test)

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
