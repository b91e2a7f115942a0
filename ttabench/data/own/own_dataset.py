"""Datasets brought by the user: what `ttabench data generate` made, and existing -C folders."""

from __future__ import annotations

import json
import re
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ttabench.corruptions.names import ALL_CORRUPTIONS, SEVERITIES
from ttabench.data.catalog import MANIFEST
from ttabench.data.dataset import Labelled
from ttabench.data.files.arrays import open_array, open_npz
from ttabench.data.files.fingerprint import file_sha256
from ttabench.data.files.image_files import class_folders, decoded, labelled_files, open_size, read_image
from ttabench.data.on_disk import OnDisk
from ttabench.data.published.imagenet import find_corruptions
from ttabench.errors import UserError

SUFFIX = "-local"
STATISTICS_FROM = 2_000  # images


def local_name(folder: Path) -> str:
    """What a folder's dataset is called: always ``…-local``, so never like a published one."""
    name = re.sub(r"[^a-z0-9._-]+", "-", folder.resolve().name.lower()).strip("-") or "data"
    return name if name.endswith(SUFFIX) else name + SUFFIX


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `ttabench data generate` noted; {} where it did not make this folder. Raises UserError."""
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    try:
        manifest = json.loads(path.read_text())
        name, files = manifest["name"], manifest["files"]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise UserError(
            f"{path} cannot be read ({problem}); delete the folder and generate it again."
        ) from None
    if not isinstance(files, dict) or not str(name).endswith(SUFFIX):
        raise UserError(f"{path} names its data '{name}'; local data is always called …{SUFFIX}.")
    return dict(manifest)


def open_local(folder: Path) -> OnDisk:
    """The dataset in a folder, by its layout: arrays, or folders of images. Raises UserError."""
    if find_corruptions(folder):
        return LocalFolders(folder)
    return LocalArrays(folder)


def statistics(images: NDArray[np.uint8]) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Mean and standard deviation per channel of pixels in [0, 1], from at most 2,000 images."""
    some = images[:: max(1, len(images) // STATISTICS_FROM)].reshape(-1, 3) / 255.0
    mean, std = np.round(some.mean(axis=0), 4), np.round(some.std(axis=0), 4)
    return (float(mean[0]), float(mean[1]), float(mean[2])), (float(std[0]), float(std[1]), float(std[2]))


class Local(OnDisk):
    """A -C folder with its clean test set beside the corruptions; subclasses know the layouts."""

    kind: ClassVar[str] = "local"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.manifest = read_manifest(folder)
        self.name = self.manifest.get("name", local_name(folder))

    def _describe(self, images: NDArray[np.uint8], num_classes: int) -> None:
        self.num_classes = num_classes
        if images.shape[1] != images.shape[2]:
            raise UserError(
                f"{self.folder} has images of {images.shape[2]}×{images.shape[1]} pixels; expected squares."
            )
        self.image_size = images.shape[1]
        self.mean, self.std = statistics(images)

    def _same_labels(self, labels: NDArray[np.int64], source: Path) -> None:
        """The rows of a corrupted set must be those of the clean test set, if there are as many."""
        own = self.test().labels
        if len(labels) == len(own) and (wrong := int((labels != own).sum())):
            raise UserError(
                f"{source} disagrees with the clean test labels on {wrong} of {len(own)} images: one of them "
                "is in another order."
            )


class LocalArrays(Local):
    """``<corruption>-<severity>.npy`` (n, H, W, 3), or ``<corruption>.npy`` (5n, H, W, 3) with labels.npy.

    The clean test set is ``test.npz`` beside them, the training set, where there is one, ``train.npz``.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        if not (folder / "test.npz").is_file():
            raise UserError(
                f"{folder} has no clean test set: put test.npz with 'images' and 'labels' there "
                "(or, beside folders of images, a folder test/<class>/)."
            )
        self._stacked = {c: folder / f"{c}.npy" for c in ALL_CORRUPTIONS if (folder / f"{c}.npy").is_file()}
        self._single = {
            (c, s): path
            for c in ALL_CORRUPTIONS
            for s in SEVERITIES
            if (path := folder / f"{c}-{s}.npy").is_file()
        }
        if self._stacked and not (folder / "labels.npy").is_file():
            raise UserError(
                f"{folder / 'labels.npy'} is missing: it holds the labels of all five severities."
            )
        self.corruptions = tuple(c for c in ALL_CORRUPTIONS if self.severities(c))
        seen = self.train() if (folder / "train.npz").is_file() else self.test()
        self._describe(seen.images, int(max(seen.labels.max(), self.test().labels.max())) + 1)

    def pieces(self) -> dict[str, Path]:
        names = ["test.npz", *(p.name for p in (*self._stacked.values(), *self._single.values()))]
        names += [n for n in ("train.npz", "labels.npy") if (self.folder / n).is_file()]
        return {name: self.folder / name for name in names}

    def severities(self, corruption: str) -> tuple[int, ...]:
        if corruption in self._stacked:
            return SEVERITIES
        known = {path.name for path in self._single.values()} | set(self.manifest.get("files", {}))
        return tuple(s for s in SEVERITIES if f"{corruption}-{s}.npy" in known)

    def test(self) -> Labelled:
        return self._test

    @cached_property
    def _test(self) -> Labelled:
        return self._open_npz("test.npz")

    def train(self) -> Labelled:
        if not (self.folder / "train.npz").is_file():
            raise UserError(
                f"{self.name} has no training images; put train.npz with 'images' and 'labels' into "
                f"{self.folder}."
            )
        return self._open_npz("train.npz")

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        self.check_asked(corruption, severity)
        if corruption in self._stacked:
            return self._rows(corruption, severity)
        path = self._single.get((corruption, severity))
        if path is None:
            raise UserError(f"{self.name} has no {corruption} at severity {severity}; generate it first.")
        self._as_generated(path)
        return Labelled(open_array(path, self.test().images.shape, np.uint8), self.test().labels)

    def _rows(self, corruption: str, severity: int) -> Labelled:
        labels = np.load(self.folder / "labels.npy", mmap_mode="r", allow_pickle=False)
        if labels.ndim != 1 or len(labels) % 5:
            raise UserError(
                f"{self.folder / 'labels.npy'} has shape {labels.shape}; expected five equal parts."
            )
        shape = (len(labels), self.image_size, self.image_size, 3)
        images = open_array(self._stacked[corruption], shape, np.uint8)
        n = len(labels) // 5
        rows = slice((severity - 1) * n, severity * n)
        own = labels[rows].astype(np.int64)
        self._same_labels(own, self.folder / "labels.npy")
        return Labelled(images[rows], own)

    def _open_npz(self, name: str) -> Labelled:
        self._as_generated(self.folder / name)
        return open_npz(self.folder / name)

    def _as_generated(self, path: Path) -> None:
        """Where the manifest knows a file, it must still be that file."""
        promised = self.manifest.get("files", {}).get(path.name)
        if self.manifest and file_sha256(path) != promised:
            raise UserError(
                f"{path} is not what was generated; delete it and run `ttabench data generate` again."
            )


class LocalFolders(Local):
    """``<corruption>/<severity>/<class>/*``, with the clean ``test/<class>/*``, perhaps ``train/<class>/*``.

    The classes are the sorted class folders of ``test`` (or ``val``); all images have one size.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._by_corruption = find_corruptions(folder)
        self.corruptions = tuple(self._by_corruption)
        clean = [folder / n for n in ("test", "val") if (folder / n).is_dir()]
        if not clean:
            raise UserError(f"{folder} has no clean test set: put its images at test/<class>/ there.")
        self._clean = clean[0]
        self.classes = tuple(class_folders(self._clean))
        files, _ = labelled_files(self._clean, self.classes)
        if not files:
            raise UserError(f"{self._clean} has no images in class folders.")
        self.image_size = open_size(files[0])[0]
        some = files[:: max(1, len(files) // 200)]
        self._describe(np.stack([read_image(f, self.image_size) for f in some]), len(self.classes))

    def pieces(self) -> dict[str, Path]:
        found = {"test": self._clean, "train": self.folder / "train"}
        for corruption, folder in self._by_corruption.items():
            found |= {f"{corruption}/{s}": folder / str(s) for s in SEVERITIES}
        return {name: path for name, path in found.items() if path.is_dir()}

    def severities(self, corruption: str) -> tuple[int, ...]:
        return tuple(s for s in SEVERITIES if (self._by_corruption[corruption] / str(s)).is_dir())

    def test(self) -> Labelled:
        return self._load("test")

    def train(self) -> Labelled:
        if "train" not in self.pieces():
            raise UserError(f"{self.name} has no training images; put them at {self.folder}/train/<class>/.")
        return self._load("train")

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        self.check_asked(corruption, severity)
        piece = f"{corruption}/{severity}"
        if piece not in self.pieces():
            raise UserError(f"{self.name} has no {corruption} at severity {severity}.")
        return self._load(piece)

    def _load(self, piece: str) -> Labelled:
        folder = self.pieces()[piece]
        names = class_folders(folder)
        if odd := sorted(set(names) ^ set(self.classes)):
            raise UserError(
                f"{folder} has {len(names)} class folders and {self._clean} {len(self.classes)}; "
                f"they differ in {', '.join(odd[:3])}{' …' if len(odd) > 3 else ''}."
            )
        files, labels = labelled_files(folder, self.classes)
        images = decoded(files, self.folder_hash(piece), self.image_size)
        return Labelled(images, np.asarray(labels, np.int64))
