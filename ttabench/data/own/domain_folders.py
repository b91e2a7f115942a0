"""Domains in folders, ``root/domain/class/*``, as PACS, Office-Home, VisDA and DomainNet-126 have them.

The folder of one domain is the source; the folders beside it with the same classes are the shifted test sets.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ttabench.corruptions.corruption_names import KNOWN_CORRUPTIONS, NO_SEVERITY
from ttabench.data.dataset import Labelled
from ttabench.data.files.decoded_cache import decoded
from ttabench.data.files.image_folders import class_folders, image_files, labelled_files
from ttabench.data.files.read_image import Fit, image_size, read_image
from ttabench.data.own.manifest import SUFFIX
from ttabench.data.own.own_dataset_base import OwnDataset
from ttabench.errors import UserError, unknown

ENDING = f"-domains{SUFFIX}"
"""The names of these datasets end in it."""
TEST_EVERY = 10  # of the source images of each class, every tenth is a clean test image
STATISTICS_FROM = 200  # images
LARGE = 224
SPLITS = ("train", "test", "val")  # parts of one domain

Files: TypeAlias = tuple[list[Path], list[int]]


def domains_in(root: Path) -> list[str]:
    """The folders in `root` that share their class folders, which hold images, with another one; sorted."""
    try:
        names = class_folders(root)
    except UserError:
        return []
    found = {name: classes for name in names if name not in SPLITS and (classes := _classes(root / name))}
    return [name for name in found if sum(found[name] == classes for classes in found.values()) > 1]


def _classes(folder: Path) -> list[str]:
    """The class folders of a folder, of which the first holds images; [] where there are none.

    [] also for a folder that cannot be read: beside a dataset may stand anything.
    """
    try:
        classes = class_folders(folder)
        return classes if classes and image_files(folder / classes[0]) else []
    except UserError:
        return []


def domains_beside(folder: Path) -> list[str]:
    """The domains beside a folder that have its classes, sorted; [] where it is no domain."""
    folder = folder.resolve()
    domains = domains_in(folder.parent)
    if folder.name not in domains:
        return []
    classes = class_folders(folder)
    same = [name for name in domains if class_folders(folder.parent / name) == classes]
    return [name for name in same if name != folder.name]


class DomainFolders(OwnDataset):
    """The source domain in `folder`, and the domains beside it, which stand where corruptions do elsewhere.

    Of each class of the source, every tenth image by name is a clean test image; the others are for training.
    All images of a target domain are test images. If the first image of every class of every domain has one
    square size, all images must have it; otherwise, they are resized and centre-cropped to 224 pixels, as for
    ImageNet.
    """

    def __init__(self, folder: Path) -> None:
        """Raises UserError where no domain is beside `folder`, or one is called like a corruption."""
        super().__init__(folder)
        self.root = folder.resolve().parent
        self.source = folder.resolve().name
        self.corruptions = tuple(domains_beside(folder))
        if not self.corruptions:
            raise UserError(f"{folder} has no domain beside it with the same class folders.")
        if taken := set(self.corruptions) & set(KNOWN_CORRUPTIONS):
            raise UserError(
                f"the domain {self.root / min(taken)} is called like a corruption; rename its folder."
            )
        self.name = _name(self.root.name, self.source)
        self.classes = tuple(class_folders(folder))
        self._size, self._fit = self._shape()
        files, _ = self._files(train=True)
        sample = files[:: max(1, len(files) // STATISTICS_FROM)]
        self._describe(np.stack([read_image(f, self._size, self._fit) for f in sample]), len(self.classes))

    def pieces(self) -> dict[str, Path]:
        return {name: self.root / name for name in (self.source, *self.corruptions)}

    def severities(self, corruption: str) -> tuple[int, ...]:
        return (NO_SEVERITY,)

    def has_train(self) -> bool:
        return True

    def shifted_count(self) -> int:
        """The images of the smallest domain."""
        return min(len(labelled_files(self.root / name, self.classes)[0]) for name in self.corruptions)

    def test(self) -> Labelled:
        return self._load(self.source, self._files(train=False), "test")

    def train(self) -> Labelled:
        return self._load(self.source, self._files(train=True), "train")

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        """All images of a target domain; severity is 0."""
        if corruption not in self.corruptions:
            raise unknown(f"domain of {self.name}", corruption, self.corruptions)
        if severity != NO_SEVERITY:
            raise UserError(f"{corruption} is a domain and has no severities; severity {severity} was asked.")
        return self._load(corruption, labelled_files(self.root / corruption, self.classes))

    def _shape(self) -> tuple[int, Fit]:
        firsts = [
            image_files(self.root / domain / name)[:1]
            for domain in (self.source, *self.corruptions)
            for name in self.classes
        ]
        sizes = {image_size(file) for files in firsts for file in files}
        if len(sizes) == 1 and len(set(*sizes)) == 1:
            return next(iter(sizes))[0], "exact"
        return LARGE, "imagenet"

    def _files(self, *, train: bool) -> Files:
        """The source images that are for training, or for the clean test."""
        files, labels = labelled_files(self.root / self.source, self.classes)
        position = np.concatenate([np.arange(n) for n in np.bincount(labels, minlength=len(self.classes))])
        chosen = np.flatnonzero((position % TEST_EVERY != TEST_EVERY - 1) == train)
        if not len(chosen):
            raise UserError(
                f"{self.root / self.source} has fewer than {TEST_EVERY} images in every class, so none is "
                "left to test on; add some."
            )
        return [files[i] for i in chosen], [labels[i] for i in chosen]

    def _load(self, domain: str, labelled: Files, part: str = "") -> Labelled:
        files, labels = labelled
        key = part + self.folder_hash(domain)  # the cache reads the beginning of a key
        return Labelled(decoded(files, key, self._size, self._fit), np.asarray(labels, np.int64))


def _name(root: str, source: str) -> str:
    """``PACS``, ``art painting`` → ``pacs-art-painting-domains-local``"""
    return re.sub(r"[^a-z0-9._-]+", "-", f"{root}-{source}".lower()).strip("-") + ENDING
