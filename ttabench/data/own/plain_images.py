"""A folder that holds images alone, in any folders below it: a foreign set, for networks of other classes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

from ttabench.data.dataset import Labelled
from ttabench.data.files.decoded_cache import decoded
from ttabench.data.files.image_folders import image_files
from ttabench.data.files.read_image import image_size, read_image
from ttabench.data.own.domain_checks import test_domains
from ttabench.data.own.manifest import MANIFEST, SUFFIX
from ttabench.data.own.open_own import corruptions_in
from ttabench.data.own.own_dataset_base import OwnDataset
from ttabench.errors import UserError

ENDING = f"-images{SUFFIX}"
"""The names of these datasets end in it."""
STATISTICS_FROM = 200  # images


def is_plain(folder: Path) -> bool:
    """Whether a folder is no dataset of another layout: it has no arrays, corruptions or domains."""
    if not folder.is_dir() or any((folder / name).exists() for name in (MANIFEST, "test.npz")):
        return False
    return not corruptions_in(folder) and not test_domains(folder)


class PlainImages(OwnDataset):
    """All images in a folder and below it, by name; hidden files and folders are left out.

    They have one square size, and one class, which nothing looks at.
    """

    def __init__(self, folder: Path) -> None:
        """Raises UserError where there is no image, or the first one is not square."""
        super().__init__(folder)
        self.corruptions = ()
        stem = re.sub(r"[^a-z0-9._-]+", "-", folder.resolve().name.lower()).strip("-") or "data"
        self.name = stem if stem.endswith(ENDING) else f"{stem}{ENDING}"
        files = self._files()
        if not files:
            raise UserError(f"{folder} holds no images; expected image files there or in folders below it.")
        self.image_size = image_size(files[0])[0]
        sample = files[:: max(1, len(files) // STATISTICS_FROM)]
        self._describe(np.stack([read_image(file, self.image_size) for file in sample]), 1)

    def pieces(self) -> dict[str, Path]:
        return {"test": self.folder}

    def train(self) -> Labelled:
        raise UserError(f"{self.name} has only images, without classes; use it as a foreign set.")

    def test(self) -> Labelled:
        images = decoded(self._files(), f"plain{self.folder_hash('test')}", self.image_size)
        return Labelled(images, np.zeros(len(images), np.int64))

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        return self.train()

    def _files(self) -> list[Path]:
        found: list[Path] = []
        for place, folders, _ in os.walk(self.folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            found += image_files(Path(place))
        return found
