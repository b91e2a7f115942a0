"""Whether the sets of a dataset go together: labels row by row, classes of files, numbers of images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ttabench.cell.stream_spec import ALL_STREAMS
from ttabench.corruptions.corruption_names import NATURAL, OF_TABLES
from ttabench.data.dataset import Dataset
from ttabench.data.files.image_folders import class_folders, labelled_files
from ttabench.data.mixed import MIXED
from ttabench.data.own.class_checks import check_class_folders
from ttabench.data.own.domain_folders import DomainFolders
from ttabench.data.own.own_arrays import OwnArrays
from ttabench.data.own.own_corruption_folders import OwnImageFolders
from ttabench.data.own.own_dataset_base import OwnDataset
from ttabench.data.published.imagenet import Files, FolderC
from ttabench.data.published.imagenet_subset import ImageNetSubset
from ttabench.errors import UserError

TAKEN = {MIXED, NATURAL, *ALL_STREAMS, *OF_TABLES}
"""Names that no domain can have."""


def check_sizes(data: OwnDataset) -> None:
    """Raise UserError where the images of test.npz have another size than the training images."""
    if not isinstance(data, OwnArrays):  # files of images are read at one size, and refused at another
        return
    height, width = data.test().images.shape[1:3]
    if (height, width) != (data.image_size, data.image_size):
        raise UserError(
            f"{data.folder / 'test.npz'} has images of {width}×{height} pixels, and train.npz of "
            f"{data.image_size}×{data.image_size}; expected square ones of one size in all sets."
        )


def check_domain_names(data: OwnDataset) -> None:
    """Raise UserError where a domain is called like what means something else in sweeps or tables."""
    if isinstance(data, DomainFolders) and (taken := TAKEN & set(data.corruptions)):
        raise UserError(
            f"{data.root / min(taken)} cannot be a domain, as {min(taken)} has a meaning in sweeps or "
            "tables; rename the folder."
        )


def check_rows(data: Dataset, corruption: str, severity: int) -> None:
    """Raise UserError unless a corrupted set has the labels of the clean test set in every row."""
    clean, labels = clean_labels(data), _labels(data, corruption, severity)
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


def check_classes(data: Dataset, corruption: str, severity: int) -> None:
    """Raise UserError where a corrupted set in folders has as many images as the clean one, and other labels.

    Labels are also other ones where an image of the same name stands in another class.
    """
    if not isinstance(data, OwnImageFolders):
        return
    clean, shifted = files_of(data, "test")[0], files_of(data, f"{corruption}/{severity}")[0]
    if len(shifted) == len(clean) and (wrong := _misplaced(clean, shifted)):
        file, why = wrong[0]
        raise UserError(
            f"{file} {why}: {corruption} at severity {severity} has as many images as the clean test set, "
            f"and {len(wrong):,} of {len(clean):,} have another class there; put each into its class in both."
        )


def _misplaced(clean: Sequence[Path], shifted: Sequence[Path]) -> list[tuple[Path, str]]:
    """The images whose class is another one than in the clean set, and what shows it.

    By their names where no two classes share one; by the numbers of images of each class elsewhere.
    """
    place_of, own = {file.stem: file for file in clean}, {file.stem for file in shifted}
    moved = []
    if len(place_of) == len(own) == len(clean):
        moved = [
            (file, f"is {there} in the clean test set")
            for file in shifted
            if (there := place_of.get(file.stem)) and there.parent.name != file.parent.name
        ]
    return moved or _surplus(clean, shifted)


def _surplus(clean: Sequence[Path], shifted: Sequence[Path]) -> list[tuple[Path, str]]:
    """The images that a class has beyond those of the clean set: first those whose names it has not there."""
    known = {(file.parent.name, file.stem) for file in clean}
    of, found = Counter(file.parent.name for file in clean), []
    for name, count in Counter(file.parent.name for file in shifted).items():
        here = sorted((f for f in shifted if f.parent.name == name), key=lambda f: (name, f.stem) in known)
        why = f"is one of {count:,} images of {name}, of which the clean test set has {of[name]:,}"
        found += [(file, why) for file in here[: max(0, count - of[name])]]
    return found


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


def clean_labels(data: Dataset) -> NDArray[np.int64]:
    """The labels of the clean test set. No image is decoded for them."""
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
    return clean_labels(data)
