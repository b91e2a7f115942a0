"""Notes on few classes under a --limit, and on few images of each class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from ttabench.cell import Cell
from ttabench.data.dataset import Dataset
from ttabench.data.own.own_dataset_base import OwnDataset
from ttabench.data.own.set_checks import clean_labels
from ttabench.data.published.imagenet import FolderC
from ttabench.data.published.natural_shifts import NaturalImageNet
from ttabench.observe.few_per_class import too_few


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
                f"the first {limit:,} test images of {dataset} have only {there:,} of its {whole:,} classes, "
                "because they come class by class. The accuracy says nothing about the other classes. Add "
                "--classes balanced, or leave out --limit."
            )


def notes_on_few_of_each(
    cells: Iterable[Cell],
    images_of: Callable[[Cell], int],
    classes_of: Callable[[str], int],
    estimated_by: Callable[[str], str],
) -> Iterator[str]:
    """A sentence for each number of images of a dataset that are :func:`too_few` of each class.

    images_of     the number of images of a cell, 0 = unknown.
    classes_of    the number of classes of a dataset.
    estimated_by  what a method of this name estimates for each class, "" = nothing.
    """
    few: dict[tuple[str, int], dict[str, None]] = {}
    for cell in cells:
        images, what = images_of(cell), estimated_by(cell.method)
        if what and too_few(images, classes_of(cell.dataset)):
            few.setdefault((cell.dataset, images), {})[f"{cell.label} ({what})"] = None
    for (dataset, images), labels in few.items():
        classes = classes_of(dataset)
        yield (
            f"{dataset}: {images:,} images of {classes:,} classes are {images / classes:.2g} per class. "
            f"These methods estimate something for each class, from too few images: {', '.join(labels)}."
        )


def labels_in_order(dataset: Dataset) -> NDArray[np.int64] | None:
    """Labels of the test images in their order, where these can come class by class; None otherwise."""
    if isinstance(dataset, NaturalImageNet):
        return np.asarray(dataset.natural_files()[1], np.int64)
    return clean_labels(dataset) if isinstance(dataset, FolderC | OwnDataset) else None
