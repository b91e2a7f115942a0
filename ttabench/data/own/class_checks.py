"""Checks of the classes of a clean test set, alone and against its training set."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ttabench.data.dataset import Labelled
from ttabench.data.files.image_folders import class_folders
from ttabench.data.files.whole_archive import label_type
from ttabench.errors import UserError

VALUES_OF_8_BITS = 256
LISTED = 10  # classes by their names
NUMBERED = (re.compile(r"(.*?)([0-9]+)()"), re.compile(r"()([0-9]+)([^0-9].*)"))
"""Names that end in a number, and names that begin with one: what is before it, the number, what follows."""


def check_class_folders(test: Path, train: Path) -> None:
    """Two folders of class folders must have the same class names, or one index means two classes.

    Raises UserError with the names that differ. Does nothing where one of the two is a file.
    """
    if not (test.is_dir() and train.is_dir()):
        return
    if different := sorted(set(class_folders(test)) ^ set(class_folders(train))):
        names = ", ".join(different[:5]) + (" …" if len(different) > 5 else "")
        raise UserError(f"{test} and {train} must have the same class folders; they differ in {names}.")


def check_order_of_classes(test: Path, train: Path) -> None:
    """Raise UserError where one set has folders called 0 1 10 11 2 and the other one is an array.

    The folders are counted in the order of their names, and the labels of an array in that of the numbers.
    """
    folders = [path for path in (test, train) if path.is_dir()]
    if len(folders) == 1 and (wrong := _first_misplaced(folders[0])):
        index, name, expected = wrong
        array = train if folders[0] == test else test
        raise UserError(
            f"class {index} has two meanings: in {folders[0]} it is folder {name}, as folders are sorted "
            f"by name, and in {array} it seems to be number {index}. Name the folders with zeros in front, "
            f"{_padded(expected, name)} for {expected}, or give both sets as arrays."
        )


def labels_of_8_bits(labels: NDArray[np.int64], num_classes: int, file: Path) -> str:
    """What is wrong with labels that `file` holds in 8 bits, as a sentence without its end; "".

    A label from 256 on becomes 0, 1, 2 … in 8 bits, and nothing says so.
    """
    kind = label_type(file)
    if kind is None or kind.itemsize > 1:
        return ""
    fix = "save the original labels as int64"
    if num_classes > VALUES_OF_8_BITS:
        return (
            f"the labels in {file.name} are {kind}, which has 256 values, but there are {num_classes:,} "
            f"classes: labels of 256 and more were changed; {fix}"
        )
    if len(np.unique(labels)) == VALUES_OF_8_BITS:
        return (
            f"the labels in {file.name} are {kind} and use all of its 256 values; if there are more than 256 "
            f"classes, labels of 256 and more were changed: {fix}"
        )
    return ""


def check_test_classes(test: Labelled, train: Labelled) -> None:
    """Raise UserError where the test set has classes that the training set does not have."""
    if missing := np.setdiff1d(test.labels, train.labels).tolist():
        raise UserError(
            f"the test set has {_classes(missing)}, the training set does not; both need the same "
            "class indices."
        )


def class_warnings(test: Labelled, train: Labelled | None) -> list[str]:
    """One sentence per set that has no image of some class 0 … C−1, C − 1 being the largest label of both.

    And one where there is a single class.
    """
    sets = {"test set": test} if train is None else {"test set": test, "training set": train}
    num_classes = max(int(data.labels.max()) for data in sets.values()) + 1
    if num_classes == 1:
        return ["all images are of one class, so every prediction is right; expected two classes or more."]
    return [
        f"the {name} has no image of {_classes(missing)}; a classifier gets {num_classes:,} outputs, one for "
        f"each label from 0 to {num_classes - 1:,}."
        for name, data in sets.items()
        if (missing := np.setdiff1d(np.arange(num_classes), data.labels).tolist())
    ]


def order_of_numbers(source: Path) -> list[str]:
    """A sentence where class folders are numbers whose order by name is another one; [] if not.

    Class indices follow the names, as those of torchvision's ImageFolder do.
    """
    if not (wrong := _first_misplaced(source)):
        return []
    index, name, expected = wrong
    by_number = _by_number(class_folders(source))
    return [
        f"class folders are sorted by name, not by number: class {index} is folder {name}, not {expected}. "
        "This is right for a network that was trained with torchvision's ImageFolder, which has the same "
        "order. For the order of the numbers, name the folders with zeros in front: "
        f"{', '.join(_padded(each, by_number[-1]) for each in by_number[:2])} …"
    ]


def classes_in_order(source: Path) -> str:
    """``classes: 0 bird, 1 dog``, the first ten of class folders; "" for a file, which has no names."""
    names = class_folders(source) if source.is_dir() else []
    some = [f"{index} {name}" for index, name in enumerate(names[:LISTED])]
    return f"classes: {', '.join(some)}{', …' if len(names) > LISTED else ''}" if some else ""


def _first_misplaced(source: Path) -> tuple[int, str, str] | None:
    """The first class whose folder would be another one in the order of the numbers: index, name, other name.

    None where there is none, and where folders are not called by numbers.
    """
    names = class_folders(source) if source.is_dir() else []
    if not (by_number := _by_number(names)):
        return None
    pairs = enumerate(zip(names, by_number, strict=True))
    return next(((index, name, other) for index, (name, other) in pairs if name != other), None)


def _by_number(names: list[str]) -> list[str]:
    """Names such as 0 1 10 2, class1 class10, or 1_cat 10_dog in the order of the numbers; [] for others."""
    for form in NUMBERED:
        parts = {name: match for name in names if (match := form.fullmatch(name))}
        if len(parts) == len(names) and len({match[1] for match in parts.values()}) == 1:
            return sorted(names, key=lambda name: int(parts[name][2]))
    return []


def _padded(name: str, longest: str) -> str:
    """``2``, ``10`` → ``02``; ``class2``, ``class10`` → ``class02``; ``2_dog``, ``10_cat`` → ``02_dog``"""
    for form in NUMBERED:
        if (ours := form.fullmatch(name)) and (theirs := form.fullmatch(longest)):
            return f"{ours[1]}{ours[2].zfill(len(theirs[2]))}{ours[3]}"
    return name


def _classes(indices: list[int]) -> str:
    """class 3; classes 1, 2 and 5; classes 1, 2, 3, 4, 5 and 12 more"""
    if len(indices) == 1:
        return f"class {indices[0]}"
    *most, last = map(str, indices[:6])
    if len(indices) > 6:
        return f"classes {', '.join(most)} and {len(indices) - 5:,} more"
    return f"classes {', '.join(most)} and {last}"
