"""Open a user's -C folder: one made by `ttabench data generate`, or an existing one."""

from __future__ import annotations

from pathlib import Path

from ttabench.data.files.image_folders import find_corruptions
from ttabench.data.own.own_arrays import OwnArrays
from ttabench.data.own.own_dataset import OwnDataset
from ttabench.data.own.own_image_folders import OwnImageFolders


def open_own(folder: Path) -> OwnDataset:
    """The dataset in a folder of arrays or of images. Raises UserError where files are missing or wrong."""
    return OwnImageFolders(folder) if find_corruptions(folder) else OwnArrays(folder)
