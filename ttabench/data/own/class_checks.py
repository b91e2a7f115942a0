"""Checks of the classes of a clean test set, alone and against its training set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ttabench.data.dataset import Labelled
from ttabench.data.files.image_folders import class_folders
from ttabench.errors import UserError


def check_class_folders(test: Path, train: Path) -> None:
    """Two folders of class folders must have the same class names, or one index means two classes.

    Raises UserError with the names that differ. Does nothing where one of the two is a file.
    """
    if not (test.is_dir() and train.is_dir()):
        return
    if different := sorted(set(class_folders(test)) ^ set(class_folders(train))):
        names = ", ".join(different[:5]) + (" …" if len(different) > 5 else "")
        raise UserError(f"{test} and {train} must have the same class folders; they differ in {names}.")


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
        if (missing := _missing(data.labels, num_classes))
    ]


def order_of_numbers(source: Path) -> list[str]:
    """A sentence where class folders are numbers whose order by name is another one; [] if not.

    Class indices follow the names, as those of torchvision's ImageFolder do.
    """
    names = class_folders(source) if source.is_dir() else []
    if not all(name.isdecimal() and name.isascii() for name in names):
        return []
    by_number = sorted(names, key=int)
    wrong = [
        (index, name)
        for index, (name, other) in enumerate(zip(names, by_number, strict=True))
        if name != other
    ]
    if not wrong:
        return []
    index, name = wrong[0]
    return [
        f"class folders are numbers, and their order by name is not that of the numbers: class {index} is "
        f"folder {name}, not {by_number[index]}. A network that was trained with this order, as "
        "torchvision's ImageFolder has it, is right; for the order of the numbers, name the folders with "
        f"zeros in front: {', '.join(each.zfill(len(by_number[-1])) for each in by_number[:2])} …"
    ]


def _missing(labels: NDArray[np.int64], num_classes: int) -> list[int]:
    present = set(labels.tolist())
    return [index for index in range(num_classes) if index not in present]


def _classes(indices: list[int]) -> str:
    """class 3; classes 1, 2 and 5; classes 1, 2, 3, 4, 5 and 12 more"""
    if len(indices) == 1:
        return f"class {indices[0]}"
    *most, last = map(str, indices[:6])
    if len(indices) > 6:
        return f"classes {', '.join(most)} and {len(indices) - 5:,} more"
    return f"classes {', '.join(most)} and {last}"
