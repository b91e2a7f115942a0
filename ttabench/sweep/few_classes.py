"""Notes on a --limit that leaves out classes, because the test images come class by class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from ttabench.cell import Cell
from ttabench.data.dataset import Dataset
from ttabench.data.own.own_dataset import OwnDataset
from ttabench.data.published.imagenet import FolderC
from ttabench.data.published.natural_shifts import NaturalImageNet


def notes_on_few_classes(
    cells: Iterable[Cell], labels_of: Callable[[str], NDArray[np.int64] | None]
) -> Iterator[str]:
    """A sentence for each dataset and limit whose first images have some of the classes only.

    Images in any other order than class by class give no note, also if some classes are not among them.

    labels_of   the labels of a dataset's test images in their order, None = unknown.
    """
    limits = {(cell.dataset, cell.protocol.limit): None for cell in cells if cell.protocol.limit}
    for dataset, limit in limits:
        labels = labels_of(dataset)
        if labels is None or (np.diff(labels[:limit]) < 0).any():
            continue
        there, whole = len(np.unique(labels[:limit])), len(np.unique(labels))
        if there < whole:
            yield (
                f"the first {limit:,} test images of {dataset} are of {there:,} of its {whole:,} classes: "
                "they come class by class. Such an accuracy says nothing of the other classes. Leave out "
                "--limit, or use a test set with fewer images of each class."
            )


def labels_in_order(dataset: Dataset) -> NDArray[np.int64] | None:
    """Labels of the test images in their order, where these can come class by class; None otherwise."""
    if isinstance(dataset, NaturalImageNet):
        return np.asarray(dataset.natural_files()[1], np.int64)
    if isinstance(dataset, FolderC):
        return np.asarray(dataset.test_files()[1], np.int64)
    return dataset.test().labels if isinstance(dataset, OwnDataset) else None
