"""What seems wrong in a user's folder, found in seconds: a sweep says it before its first cell.

Of large sets, some images are looked at. `ttabench data verify` looks at more.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from ttabench.corruptions.corruption_names import KNOWN_CORRUPTIONS, SEVERITIES
from ttabench.data.dataset import Dataset
from ttabench.data.files.read_image import read_checked
from ttabench.data.own.ccc_shards import CCCShards
from ttabench.data.own.class_checks import class_warnings, labels_of_8_bits, order_of_numbers
from ttabench.data.own.domain_checks import copies_of_source, other_domains
from ttabench.data.own.domain_folders import DomainFolders
from ttabench.data.own.image_folder_checks import doubts_about
from ttabench.data.own.overlap import overlap, overlap_of_files, shared_images
from ttabench.data.own.own_arrays import OwnArrays
from ttabench.data.own.own_corruption_folders import OwnImageFolders
from ttabench.data.own.own_dataset_base import OwnDataset
from ttabench.data.own.picture_checks import Images, of_corruption, of_pixels, step_of
from ttabench.data.own.set_checks import files_of
from ttabench.errors import counted, unknown


def warn_of_doubts(data: Dataset, corruptions: Collection[str]) -> None:
    """Warn of what :func:`doubts` says of a user's folder; nothing is said of other datasets."""
    if isinstance(data, OwnDataset):
        for text in doubts(data, [name for name in corruptions if name in data.corruptions]):
            warnings.warn(f"{data.name}: {text}", stacklevel=3)


def doubts(data: OwnDataset, corruptions: Collection[str]) -> Iterator[str]:
    """Sentences about the clean sets and about these corruptions.

    Corrupted images that `ttabench data generate` made are not looked at: they have checksums.
    """
    yield from numbered_folders(data)
    yield from not_read(data)
    yield from of_folders(data)
    if isinstance(data, DomainFolders):
        yield from copies_of_source(data)
    if not of_corruptions(data):
        return
    yield from labels_in_8_bits(data)
    yield from _clean(data)
    if not data.manifest:
        reference, count = _some(data, "test")
        counts: dict[tuple[str, int], int] = {}
        for corruption in corruptions:
            found = {level: _some(data, corruption, level) for level in data.severities(corruption)}
            counts |= {(corruption, level): of for level, (_, of) in found.items()}
            images = {level: some for level, (some, of) in found.items() if of == count}
            yield from (f"{corruption}: {text}" for text in of_corruption(reference, images, corruption))
        yield from other_counts(data, counts, count)


def of_corruptions(data: OwnDataset) -> bool:
    """Whether the sets beside the clean ones are its test images, corrupted, and named by the corruption."""
    return not isinstance(data, DomainFolders | CCCShards)


def numbered_folders(data: OwnDataset) -> list[str]:
    """What is to be said of class folders that are numbers."""
    if isinstance(data, DomainFolders):
        return order_of_numbers(data.folder)
    return order_of_numbers(data.pieces()["test"]) if isinstance(data, OwnImageFolders) else []


def labels_in_8_bits(data: OwnDataset) -> Iterator[str]:
    """Sentences about files whose labels are stored in 8 bits, where more classes than that may be meant."""
    if not isinstance(data, OwnArrays):
        return
    sets = {"test.npz": data.test()} | ({"train.npz": data.train()} if data.has_train() else {})
    for name, labelled in sets.items():
        if text := labels_of_8_bits(labelled.labels, data.num_classes, data.folder / name):
            yield f"{text}."
    if "labels.npy" in data.pieces():
        file = data.folder / "labels.npy"
        if text := labels_of_8_bits(np.load(file, allow_pickle=False), data.num_classes, file):
            yield f"{text}."


def of_folders(data: OwnDataset) -> Iterator[str]:
    """Sentences about what is not read in folders of clean images and of domains, and how images lie."""
    if not isinstance(data, OwnImageFolders | DomainFolders):
        return
    clean = ("test", "train") if isinstance(data, OwnImageFolders) else data.pieces()
    for folder in (path for name, path in data.pieces().items() if name in clean):
        yield from doubts_about(folder)


def other_counts(data: OwnDataset, counts: Mapping[tuple[str, int], int], clean: int) -> Iterator[str]:
    """A sentence about corrupted sets that have another number of images than the `clean` test set.

    counts   the number of images of each corruption and severity.
    """
    others = {place: count for place, count in counts.items() if count != clean}
    if not others:
        return
    (corruption, level), count = next(iter(others.items()))
    lacks = ""
    if isinstance(data, OwnImageFolders):
        expected, there = _names(data, "test"), _names(data, f"{corruption}/{level}")
        gone = sorted(expected - there)
        lacks = f" ({gone[0]} is not there)" if gone and there & expected else ""
    has = "has" if len(others) == 1 else "have"
    yield (
        f"{len(others)} of {counted(len(counts), 'corrupted set')} {has} another number of "
        f"images than the clean test set, first {corruption} at severity {level}: {count:,} and not "
        f"{clean:,}{lacks}."
    )


def _names(data: OwnImageFolders, piece: str) -> set[str]:
    """``class/name`` of its images, without what comes after the last dot."""
    return {f"{file.parent.name}/{file.stem}" for file in files_of(data, piece)[0]}


def not_read(data: OwnDataset) -> Iterator[str]:
    """Sentences about arrays, or folders of images, that are not read because of their names or classes."""
    if isinstance(data, DomainFolders):
        yield from other_domains(data)
    if not of_corruptions(data):
        return
    folders = isinstance(data, OwnImageFolders)
    used = {path.relative_to(data.folder).parts[0] for path in data.pieces().values()}
    if folders and (arrays := sorted(path.name for path in data.folder.glob("*.np[yz]"))):
        yield f"{data.folder / arrays[0]} is not read: {data.folder} has folders of images."
    for path in sorted(data.folder.iterdir()):
        if path.name.startswith(".") or not (path.is_dir() if folders else path.suffix == ".npy"):
            continue
        name = path.name if folders else re.sub(r"-\d+$", "", path.stem)
        whole = path.with_name(f"{name}.npy")
        if name in data.corruptions and path != whole and whole.is_file():
            yield f"{path} is not read: {whole.name} has all severities."
        elif path.name not in used:
            why = str(unknown("corruption", name, KNOWN_CORRUPTIONS, "`ttabench list corruptions`"))
            known = f"severities are {SEVERITIES[0]} to {SEVERITIES[-1]}."
            yield f"{path} is not read: {known if name in KNOWN_CORRUPTIONS else why}"


def _clean(data: OwnDataset) -> Iterator[str]:
    """Sentences about the clean sets."""
    yield from of_pixels(_some(data, "test")[0])
    if isinstance(data, OwnArrays):
        train = data.train() if data.has_train() else None
        yield from class_warnings(data.test(), train)
        shared = shared_images(data.test().images, train.images) if train else 0
        if text := overlap(shared, len(data.test())):
            yield f"{text}."
    elif isinstance(data, OwnImageFolders) and data.has_train():
        test, train_files = (files_of(data, name)[0] for name in ("test", "train"))
        if text := overlap_of_files(test, train_files):
            yield f"{text}."


def _some(data: OwnDataset, name: str, severity: int = 0) -> tuple[Images, int]:
    """Some of the clean ``test`` images, or of those of a corruption, from everywhere; how many there are."""
    if isinstance(data, OwnImageFolders):
        files = files_of(data, f"{name}/{severity}" if severity else name)[0]
        return np.stack(
            [read_checked(f, data.image_size) for f in files[:: step_of(len(files), data.image_size)]]
        ), len(files)
    images = (data.corrupted(name, severity) if severity else data.test()).images
    return np.asarray(images[:: step_of(len(images), data.image_size)]), len(images)
