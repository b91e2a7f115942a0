"""The clean test set of the user and, where there is one, its training set: read, and checked together."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from ttabench.data.dataset import Labelled
from ttabench.data.own.class_checks import (
    VALUES_OF_8_BITS,
    check_class_folders,
    check_order_of_classes,
    check_test_classes,
    class_warnings,
    labels_of_8_bits,
    order_of_numbers,
)
from ttabench.data.own.clean_images import read_clean
from ttabench.data.own.image_folder_checks import doubts_about
from ttabench.data.own.overlap import overlap, shared_images
from ttabench.data.own.picture_checks import of_pixels
from ttabench.errors import UserError, printable


def read_clean_sets(source: Path, train: Path | None, size: int) -> dict[str, Labelled]:
    """The clean sets by the names of their files; warns of what is unusual in them."""
    test = read_clean(source, size)
    clean_sets = {"test.npz": test}
    if train is not None:
        clean_sets["train.npz"] = _read_train(train, size, source, test)
    for text in _doubts(clean_sets, source, train):
        warnings.warn(printable(text), UserWarning, stacklevel=3)
    return clean_sets


def _doubts(clean_sets: Mapping[str, Labelled], source: Path, train: Path | None) -> Iterator[str]:
    """What is unusual in clean sets, in sentences."""
    test, other = clean_sets["test.npz"], clean_sets.get("train.npz")
    for text in (*class_warnings(test, other), *order_of_numbers(source), *of_pixels(test.images)):
        yield f"{source}: {text}"
    shared = shared_images(test.images, other.images) if other else 0
    if text := overlap(shared, len(test)):
        yield f"{source}: {text}."
    for place, data in ((source, test), (train, other)):
        if place is None or data is None:
            continue
        if place.is_dir():
            yield from doubts_about(place)
        if text := labels_of_8_bits(data.labels, 0, place):
            yield f"{place}: {text}."


def _read_train(train: Path, size: int, source: Path, test: Labelled) -> Labelled:
    """The training set, checked against the test set that was read from `source`."""
    check_class_folders(source, train)
    check_order_of_classes(source, train)
    data = read_clean(train, size)
    if data.images.shape[1:] != test.images.shape[1:]:
        raise UserError(f"{train} has images of another size than {source}.")
    _check_label_types({source: test, train: data})
    check_test_classes(test, data)
    if (shared := shared_images(test.images, data.images)) == len(test):
        raise UserError(
            f"all {shared:,} images of {source} are in {train} too, and accuracy on training images says "
            "nothing about new ones; give another --train, or leave it out."
        )
    return data


def _check_label_types(sets: Mapping[Path, Labelled]) -> None:
    """Raise UserError for labels of 8 bits beside those of more classes."""
    num_classes = max(int(data.labels.max()) for data in sets.values()) + 1
    for place, data in sets.items():
        if num_classes > VALUES_OF_8_BITS and (text := labels_of_8_bits(data.labels, num_classes, place)):
            raise UserError(f"{place}: {text}.")
