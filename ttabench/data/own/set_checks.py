"""Whether the sets of a dataset go together: labels row by row, classes of files, numbers of images."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ttabench.data.dataset import Dataset
from ttabench.data.files.image_folders import class_folders, labelled_files
from ttabench.data.own.class_checks import check_class_folders
from ttabench.data.own.domain_folders import DomainFolders
from ttabench.data.own.own_arrays import OwnArrays
from ttabench.data.own.own_image_folders import OwnImageFolders
from ttabench.data.published.imagenet import Files, FolderC
from ttabench.data.published.imagenet_subset import ImageNetSubset
from ttabench.errors import UserError

__all__ = ["check_count", "check_rows", "files_of", "largest_set"]


def check_rows(data: Dataset, corruption: str, severity: int) -> None:
    """Raise UserError unless a corrupted set has the labels of the clean test set in every row."""
    clean, labels = _clean_labels(data), _labels(data, corruption, severity)
    if len(labels) != len(clean):
        differs = f"{len(labels):,} images, and the clean test set has {len(clean):,}"
    elif wrong := int((labels != clean).sum()):
        differs = f"other labels than the clean test set in {wrong:,} of {len(clean):,} rows"
    else:
        return
    raise UserError(
        f"mixed takes each clean test image under one corruption, and {corruption} at severity {severity} of "
        f"{data.name} has {differs}; leave out mixed, or the dataset."
    )


def check_count(data: Dataset, corruption: str, severity: int, stream: str) -> None:
    """Raise UserError unless a corrupted set has as many images as each part of a long stream."""
    if (count := len(_labels(data, corruption, severity))) != (expected := data.shifted_count()):
        raise UserError(
            f"--stream {stream} needs equally many images of each corruption, and {corruption} at severity "
            f"{severity} of {data.name} has {count:,}, not the {expected:,} of the clean test set; leave out "
            "--stream, or this corruption."
        )


def largest_set(data: Dataset) -> int:
    """The images of the largest corrupted set: a limit below it leaves out some."""
    if isinstance(data, DomainFolders):
        folders = (data.root / name for name in data.corruptions)
        return max(len(labelled_files(folder, data.classes)[0]) for folder in folders)
    if not isinstance(data, OwnArrays | OwnImageFolders):
        return data.shifted_count()
    counts = (len(_labels(data, name, level)) for name in data.corruptions for level in data.severities(name))
    return max(counts, default=data.shifted_count())


def files_of(data: OwnImageFolders, piece: str) -> Files:
    """The files of a piece, class by class, and their labels. Raises UserError where it lacks a class."""
    folder = data.pieces()[piece]
    if not set(data.classes) <= set(class_folders(folder)):  # more are refused where the piece is read
        check_class_folders(data.pieces()["test"], folder)
    return labelled_files(folder, data.classes)


def _clean_labels(data: Dataset) -> NDArray[np.int64]:
    if isinstance(data, OwnImageFolders):
        return np.asarray(files_of(data, "test")[1])
    return np.asarray(data.test_files()[1]) if isinstance(data, FolderC) else data.test().labels


def _labels(data: Dataset, corruption: str, severity: int) -> NDArray[np.int64]:
    """The labels of a corrupted set. No image is decoded or made for them."""
    if isinstance(data, OwnImageFolders):
        return np.asarray(files_of(data, f"{corruption}/{severity}")[1])
    if isinstance(data, FolderC) and not isinstance(data, ImageNetSubset):
        folder = data.pieces()[f"corrupted/{corruption}/{severity}"]
        return np.asarray(labelled_files(folder, data.classes)[1])
    if isinstance(data, OwnArrays) and f"{corruption}.npy" in data.pieces():  # with labels of its own
        return data.corrupted(corruption, severity).labels
    return _clean_labels(data)
