"""tinyimagenet-c and imagenet-c in their published layout: folders of JPEG files per class."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ttabench.corruptions.corruption_names import SEVERITIES
from ttabench.data.dataset import Labelled
from ttabench.data.files.decoded_cache import decoded
from ttabench.data.files.image_folders import class_folders, find_corruptions, image_files, labelled_files
from ttabench.data.files.read_image import Fit, already_cropped
from ttabench.data.published.description import PublishedDataset
from ttabench.data.published.imagenet_facts import TINY_FIXED_RECORD
from ttabench.data.published.published_on_disk import PublishedOnDisk
from ttabench.errors import UserError

Files: TypeAlias = tuple[list[Path], list[int]]


class FolderC(PublishedOnDisk):
    """``<corruption>/<severity>/<class>/*``; class i is the i-th class folder by name.

    Images come class by class, by file name within a class. Each severity is decoded once into a
    memory-mapped array in the cache (see `ttabench.data.files.decoded_cache`).
    """

    def __init__(self, facts: PublishedDataset, root: Path) -> None:
        """Raises UserError where the corrupted images or the clean test set are not below `root`."""
        super().__init__(facts, root)
        self._corruption_folders = find_corruptions(self.corrupted_folder)
        self.corruptions = tuple(self._corruption_folders)
        if not self.corruptions:
            raise self._missing(self.corrupted_folder)
        if not (self.clean_folder / "val").is_dir():
            raise self._missing(self.clean_folder / "val")

    def _missing(self, folder: Path) -> UserError:
        by_hand = f" ({self.facts.by_hand})" if self.facts.by_hand else ""
        return UserError(
            f"{self.name} is not here: {folder} is missing or empty; run `ttabench data fetch "
            f"{self.name}`{by_hand}, or set TTABENCH_DATA to the folder that holds it."
        )

    def pieces(self) -> dict[str, Path]:
        folders = {f"clean/{split}": self.clean_folder / split for split in ("train", "val")}
        for corruption, folder in self._corruption_folders.items():
            folders |= {f"corrupted/{corruption}/{s}": folder / str(s) for s in SEVERITIES}
        return {name: path for name, path in folders.items() if path.is_dir()}

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """WordNet ids, sorted."""
        names = self._class_names()
        if len(names) != self.num_classes:
            raise UserError(
                f"{self.clean_folder} has {len(names)} classes; expected {self.num_classes}: a folder for "
                "each, also where none of its images is used."
            )
        return tuple(names)

    def _class_names(self) -> list[str]:
        return class_folders(self.clean_folder / "val")

    @abstractmethod
    def test_files(self) -> Files:
        """The clean test images, class by class, and their labels."""

    @abstractmethod
    def train_files(self) -> Files:
        """The clean training images, class by class, and their labels."""

    def shifted_count(self) -> int:
        return len(self.test_files()[0])

    def fit_of(self, files: Sequence[Path]) -> Fit:
        """How clean images are brought to their size."""
        return "exact"

    def test(self) -> Labelled:
        files = self.test_files()
        return self._load("clean/val", files, self.facts.test, self.fit_of(files[0]))

    def train(self) -> Labelled:
        if not (self.clean_folder / "train").is_dir():
            hint = self.facts.by_hand or f"run `ttabench data fetch {self.name}`"
            raise UserError(f"{self.clean_folder / 'train'} is missing; {hint}.")
        files = self.train_files()
        return self._load("clean/train", files, self.train_count(), self.fit_of(files[0]))

    def train_count(self) -> int:
        return self.facts.train

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        self.check_request(corruption, severity)
        folder = self._corruption_folders[corruption] / str(severity)
        names = class_folders(folder)
        if set(names) != set(self.classes):
            hint = "fetch it again"
            if len(names) > self.num_classes:
                hint = f"the first release has 1,000 under frost; the fixed one is at {TINY_FIXED_RECORD}"
            raise UserError(
                f"{folder} has {len(names)} class folders; expected the {self.num_classes} of {self.name}; "
                f"{hint}."
            )
        files = labelled_files(folder, self.classes)
        return self._load(f"corrupted/{corruption}/{severity}", files, self.facts.test, "exact")

    def _load(self, piece: str, labelled: Files, count: int, fit: Fit) -> Labelled:
        files, labels = labelled
        if len(files) != count:
            sample = " A sample is opened by the path of its -C folder, with the clean images in test/ there."
            raise UserError(
                f"{self.pieces()[piece]} holds {len(files)} images; expected {count}; fetch it again."
                + ("" if self.facts.shifted else sample)
            )
        key = self.folder_hash(piece)
        return Labelled(decoded(files, key, self.image_size, fit), np.asarray(labels, np.int64))


class TinyImageNetC(FolderC):
    """Tiny ImageNet-C with Tiny ImageNet's validation set as the clean test set.

    The corrupted images come from ImageNet's validation set, not from Tiny ImageNet's. Both have 50 images
    per class: the labels agree row by row, the images do not.
    """

    def train_files(self) -> Files:
        return labelled_files(self.clean_folder / "train", self.classes, "images")

    def test_files(self) -> Files:
        """``val`` as published (images and a list of annotations), or sorted into class folders."""
        folder = self.clean_folder / "val"
        if not (folder / "images").is_dir():
            return labelled_files(folder, self.classes)
        index = {name: i for i, name in enumerate(self.classes)}
        class_of = self._annotations(folder / "val_annotations.txt")
        try:
            rows = sorted((index[class_of[f.name]], f) for f in image_files(folder / "images"))
        except KeyError as missing:
            raise UserError(
                f"{folder / 'val_annotations.txt'} does not list {missing}; fetch it again."
            ) from None
        return [file for _, file in rows], [label for label, _ in rows]

    def _class_names(self) -> list[str]:
        names = self.clean_folder / "wnids.txt"
        return sorted(names.read_text().split()) if names.is_file() else super()._class_names()

    @staticmethod
    def _annotations(path: Path) -> dict[str, str]:
        """File name → WordNet id, from tab-separated lines."""
        try:
            lines = path.read_text().splitlines()
        except OSError as problem:
            raise UserError(f"{path} cannot be read ({problem.strerror}); fetch it again.") from None
        return dict(line.split("\t")[:2] for line in lines if line.count("\t"))


class ImageNetC(FolderC):
    """ImageNet-C with ImageNet's validation set, resized and centre-cropped to 224 pixels.

    The corrupted images have 224 pixels as published. The whole training set would take 190 GB decoded:
    :meth:`train` gives `train_per_class` images of each class, evenly spaced by name.
    """

    train_per_class = 20

    def fit_of(self, files: Sequence[Path]) -> Fit:
        """As they are where someone has cropped the files to 224 pixels: they are not cropped once more."""
        return "exact" if already_cropped(files, self.image_size) else "imagenet"

    def test_files(self) -> Files:
        return labelled_files(self.clean_folder / "val", self.classes)

    def train_files(self) -> Files:
        index = {wnid: i for i, wnid in enumerate(self.classes)}
        labels = [index[name.split("/")[0]] for name in self._train_names]
        return [self.clean_folder / "train" / name for name in self._train_names], labels

    def train_count(self) -> int:
        return len(self._train_names)

    def selection(self, piece: str) -> Sequence[str]:
        return self._train_names if piece == "clean/train" else ()

    @cached_property
    def _train_names(self) -> list[str]:
        names = []
        for wnid in self.classes:
            files = image_files(self.clean_folder / "train" / wnid)
            chosen = np.linspace(0, len(files) - 1, min(self.train_per_class, len(files))).astype(int)
            names += [f"{wnid}/{files[i].name}" for i in chosen]
        return names
