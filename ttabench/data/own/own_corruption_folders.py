"""An own dataset in folders of images, one per corruption and severity."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from ttabench.corruptions.corruption_names import SEVERITIES
from ttabench.data.dataset import Labelled
from ttabench.data.files.decoded_cache import decoded
from ttabench.data.files.image_folders import class_folders, find_corruptions, labelled_files
from ttabench.data.files.read_image import image_size, read_image
from ttabench.data.own.own_dataset_base import OwnDataset
from ttabench.errors import UserError

STATISTICS_FROM = 200  # images


class OwnImageFolders(OwnDataset):
    """``<corruption>/<severity>/<class>/*``, with the clean ``test/<class>/*``, perhaps ``train/<class>/*``.

    The classes are the sorted class folders of ``test`` (or ``val``). All images have one size.
    """

    version: ClassVar[int] = 2

    def __init__(self, folder: Path) -> None:
        """Raises UserError where there is no clean test set."""
        super().__init__(folder)
        self._corruption_folders = find_corruptions(folder)
        self.corruptions = tuple(self._corruption_folders)
        clean = [folder / n for n in ("test", "val") if (folder / n).is_dir()]
        if not clean:
            raise UserError(f"{folder} has no clean test set: put its images at test/<class>/ there.")
        self._test_folder = clean[0]
        self.classes = tuple(class_folders(self._test_folder))
        files, _ = labelled_files(self._test_folder, self.classes)
        if not files:
            raise UserError(
                f"{self._test_folder} has no images in class folders; put them into <class>/ there."
            )
        self.image_size = image_size(files[0])[0]
        sample = files[:: max(1, len(files) // STATISTICS_FROM)]
        self._describe(np.stack([read_image(f, self.image_size) for f in sample]), len(self.classes))

    def pieces(self) -> dict[str, Path]:
        folders = {"test": self._test_folder, "train": self.folder / "train"}
        for corruption, folder in self._corruption_folders.items():
            folders |= {f"{corruption}/{s}": folder / str(s) for s in SEVERITIES}
        return {name: path for name, path in folders.items() if path.is_dir()}

    def severities(self, corruption: str) -> tuple[int, ...]:
        return tuple(s for s in SEVERITIES if (self._corruption_folders[corruption] / str(s)).is_dir())

    def test(self) -> Labelled:
        return self._load("test")

    def train(self) -> Labelled:
        if "train" not in self.pieces():
            raise UserError(f"{self.name} has no training images; put them at {self.folder}/train/<class>/.")
        return self._load("train")

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        self.check_request(corruption, severity)
        piece = f"{corruption}/{severity}"
        if piece not in self.pieces():
            raise UserError(
                f"{self.name} has no {corruption} at severity {severity}; put its images at "
                f"{self.folder}/{piece}/<class>/."
            )
        return self._load(piece)

    def _load(self, piece: str) -> Labelled:
        folder = self.pieces()[piece]
        names = class_folders(folder)
        if different := sorted(set(names) ^ set(self.classes)):
            raise UserError(
                f"{folder} has {len(names)} class folders and {self._test_folder} has {len(self.classes)}; "
                f"they differ in {', '.join(different[:3])}{' …' if len(different) > 3 else ''}. Both need "
                "the same class folders."
            )
        files, labels = labelled_files(folder, self.classes)
        images = decoded(files, self.folder_hash(piece), self.image_size)
        return Labelled(images, np.asarray(labels, np.int64))
