"""Clean CIFAR-10 and CIFAR-100 in pickled batches, which all datasets made from CIFAR share."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ttabench.data.dataset import Labelled
from ttabench.data.files.unpickle import load_batch
from ttabench.data.published.description import PublishedDataset
from ttabench.data.published.published_on_disk import PublishedOnDisk
from ttabench.errors import UserError

# The files of each clean set, as published: (train, test).
FILES = {
    "cifar-10-batches-py": (tuple(f"data_batch_{i}" for i in range(1, 6)), ("test_batch",)),
    "cifar-100-python": (("train",), ("test",)),
}
SIDE = 32


class CleanCifar(PublishedOnDisk):
    """The pickled batches of CIFAR-10 or CIFAR-100."""

    def __init__(self, facts: PublishedDataset, root: Path) -> None:
        """Raises UserError where the clean test set is not below `root`."""
        super().__init__(facts, root)
        self._train_files, self._test_files = FILES[facts.clean_folder]
        self.check_present(*(self.clean_folder / file for file in self._test_files))

    def pieces(self) -> dict[str, Path]:
        files = (self.clean_folder / name for name in (*self._train_files, *self._test_files))
        return {f"clean/{path.name}": path for path in files if path.is_file()}

    def train(self) -> Labelled:
        return read_exactly(self.clean_folder, self._train_files, self.num_classes, self.facts.train)

    def test(self) -> Labelled:
        return self._test

    @cached_property
    def _test(self) -> Labelled:
        return read_exactly(self.clean_folder, self._test_files, self.num_classes, self.facts.test)


def read_batches(folder: Path, files: tuple[str, ...], num_classes: int) -> Labelled:
    """The images of some batches in file order, with the fine labels where there are fine and coarse ones.

    A row of `data` is 1,024 red, then 1,024 green, then 1,024 blue values, each row-major.
    Raises UserError on a file that is missing or of another shape.
    """
    images, labels = [], []
    for name in files:
        path = folder / name
        if not path.is_file():
            raise UserError(f"{path} is missing; fetch the dataset again.")
        batch = load_batch(path)
        data = batch.get("data")
        file_labels = batch.get("fine_labels", batch.get("labels"))
        if not isinstance(file_labels, list) or not all(isinstance(label, int) for label in file_labels):
            raise UserError(f"{path} has no list of labels; it is not a CIFAR batch.")
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2:
            raise UserError(f"{path} has no uint8 'data'; it is not a CIFAR batch.")
        if data.shape != (len(file_labels), 3 * SIDE * SIDE):
            raise UserError(
                f"{path}: data of shape {data.shape} for {len(file_labels)} labels of 32×32 images."
            )
        red, green, blue = data.reshape(-1, 3, SIDE, SIDE).swapaxes(0, 1)
        images.append(np.stack((red, green, blue), axis=-1))
        labels.append(np.asarray(file_labels, np.int64))
    return Labelled(np.concatenate(images), _class_indices(folder, np.concatenate(labels), num_classes))


def read_exactly(folder: Path, files: tuple[str, ...], num_classes: int, count: int) -> Labelled:
    """:func:`read_batches`; raises UserError also where there are more or fewer images than `count`."""
    data = read_batches(folder, files, num_classes)
    if len(data) != count:
        raise UserError(f"{folder} holds {len(data)} images in {', '.join(files)}; expected {count}.")
    return data


def _class_indices(folder: Path, labels: NDArray[np.int64], num_classes: int) -> NDArray[np.int64]:
    if len(labels) and not 0 <= labels.min() <= labels.max() < num_classes:
        raise UserError(
            f"{folder} has labels from {labels.min()} to {labels.max()}; expected {num_classes} classes."
        )
    return labels
