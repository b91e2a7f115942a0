"""An own dataset in arrays: one .npy file per corruption, or per corruption and severity."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np

from ttabench.corruptions.corruption_names import KNOWN_CORRUPTIONS, SEVERITIES
from ttabench.data.dataset import Labelled
from ttabench.data.files.array_files import open_array, open_labels, open_npz
from ttabench.data.files.fingerprint import file_sha256
from ttabench.data.files.image_folders import class_folders, image_files
from ttabench.data.own.own_dataset_base import OwnDataset
from ttabench.errors import UserError


class OwnArrays(OwnDataset):
    """``<corruption>-<severity>.npy`` (n, H, W, 3), or ``<corruption>.npy`` (5n, H, W, 3) with labels.npy.

    The clean test set is ``test.npz`` in the same folder, the training set, if there is one, ``train.npz``.
    """

    def __init__(self, folder: Path) -> None:
        """Raises UserError where the clean test set or the labels are missing."""
        super().__init__(folder)
        if not (folder / "test.npz").is_file():
            if clean := _clean_folder(folder):
                raise UserError(
                    f"{folder} has clean images and no corrupted ones. Run `ttabench data generate {clean} "
                    "--train TRAIN` first, then use the name that it prints. TRAIN is the training set; it "
                    "is needed where classifiers are to be trained here. Photographs for networks of "
                    "ImageNet need --size 224."
                )
            raise UserError(
                f"{folder} has no clean test set: put test.npz with 'images' and 'labels' there "
                "(or, next to folders of images, a folder test/<class>/)."
            )
        self._all_severities = {
            c: folder / f"{c}.npy" for c in KNOWN_CORRUPTIONS if (folder / f"{c}.npy").is_file()
        }
        self._one_severity = {
            (c, s): path
            for c in KNOWN_CORRUPTIONS
            for s in SEVERITIES
            if (path := folder / f"{c}-{s}.npy").is_file()
        }
        if self._all_severities and not (folder / "labels.npy").is_file():
            raise UserError(
                f"{folder / 'labels.npy'} is missing; put the labels of all five severities there."
            )
        self.corruptions = tuple(c for c in KNOWN_CORRUPTIONS if self.severities(c))
        source = self.train() if (folder / "train.npz").is_file() else self.test()
        self._describe(source.images, int(max(source.labels.max(), self.test().labels.max())) + 1)

    def pieces(self) -> dict[str, Path]:
        arrays = (*self._all_severities.values(), *self._one_severity.values())
        names = ["test.npz", *(path.name for path in arrays)]
        names += [n for n in ("train.npz", "labels.npy") if (self.folder / n).is_file()]
        return {name: self.folder / name for name in names}

    def severities(self, corruption: str) -> tuple[int, ...]:
        if corruption in self._all_severities:
            return SEVERITIES
        names = {path.name for path in self._one_severity.values()} | set(self.manifest.get("files", {}))
        return tuple(s for s in SEVERITIES if f"{corruption}-{s}.npy" in names)

    def test(self) -> Labelled:
        return self._test

    @cached_property
    def _test(self) -> Labelled:
        return self._open_npz("test.npz")

    def train(self) -> Labelled:
        if not (self.folder / "train.npz").is_file():
            raise UserError(
                f"{self.name} has no training images. If ttabench generated it: run `ttabench data generate` "
                f"again, with --train. Else: put train.npz with 'images' and 'labels' into {self.folder}."
            )
        return self._open_npz("train.npz")

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        self.check_request(corruption, severity)
        if corruption in self._all_severities:
            return self._rows(corruption, severity)
        path = self._one_severity.get((corruption, severity))
        if path is None:
            raise UserError(f"{self.name} has no {corruption} at severity {severity}; generate it first.")
        self._check_unchanged(path)
        return Labelled(open_array(path, self.test().images.shape, np.uint8), self.test().labels)

    def _rows(self, corruption: str, severity: int) -> Labelled:
        """Rows (s−1)·n … s·n of ``<corruption>.npy`` and of ``labels.npy``."""
        path = self.folder / "labels.npy"
        labels = open_labels(path)
        if len(labels) % 5:
            raise UserError(f"{path} has {len(labels)} labels; expected five equal parts, one per severity.")
        if labels.max(initial=0) >= self.num_classes:
            raise UserError(
                f"{path} has the label {labels.max()}; the clean sets have {self.num_classes} classes, "
                f"so labels are 0 … {self.num_classes - 1}."
            )
        shape = (len(labels), self.image_size, self.image_size, 3)
        images = open_array(self._all_severities[corruption], shape, np.uint8)
        n = len(labels) // 5
        rows = slice((severity - 1) * n, severity * n)
        self._check_order(labels[rows], path)
        return Labelled(images[rows], labels[rows])

    def _open_npz(self, name: str) -> Labelled:
        self._check_unchanged(self.folder / name)
        return open_npz(self.folder / name)

    def _check_unchanged(self, path: Path) -> None:
        """A generated file must still have the checksum of the manifest."""
        expected = self.manifest.get("files", {}).get(path.name)
        if self.manifest and file_sha256(path) != expected:
            raise UserError(
                f"{path} is not what was generated; delete it and run `ttabench data generate` again."
            )


def _clean_folder(folder: Path) -> Path | None:
    """Where class folders of clean images are: here, or in ``test`` or ``val``; None if there are none."""
    for place in (folder / "test", folder / "val", folder):
        if place.is_dir() and any(image_files(place / name) for name in class_folders(place)):
            return place
    return None
