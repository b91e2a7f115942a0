"""Folders of images: which class folders, image files and corruptions a folder has."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ttabench.corruptions.corruption_names import KNOWN_CORRUPTIONS
from ttabench.errors import UserError

SUFFIXES = (".jpeg", ".jpg", ".png", ".bmp", ".webp", ".ppm")


def class_folders(folder: Path) -> list[str]:
    """The names of the class folders, sorted; class i is the i-th, as in torchvision's ImageFolder."""
    try:
        return sorted(e.name for e in os.scandir(folder) if e.is_dir() and not e.name.startswith("."))
    except OSError as problem:
        raise UserError(f"{folder} cannot be read ({problem.strerror}).") from None


def image_files(folder: Path) -> list[Path]:
    """The image files directly in a folder, sorted by name; hidden files are left out."""
    try:
        names = [e.name for e in os.scandir(folder) if e.is_file()]
    except OSError as problem:
        raise UserError(f"{folder} cannot be read ({problem.strerror}).") from None
    return [folder / n for n in sorted(names) if n.lower().endswith(SUFFIXES) and not n.startswith(".")]


def files_in_classes(folder: Path) -> list[Path]:
    """The images of all class folders in a folder, class by class; a class may have none."""
    return [file for name in class_folders(folder) for file in image_files(folder / name)]


def labelled_files(folder: Path, classes: Sequence[str], subfolder: str = "") -> tuple[list[Path], list[int]]:
    """The images of ``<folder>/<class>/[subfolder]``, class by class, and the class index of each.

    Raises UserError where a class folder has no image: in a copy of the data without this empty folder, every
    later class would have another index.
    """
    files: list[Path] = []
    labels: list[int] = []
    for index, name in enumerate(classes):
        class_files = image_files(folder / name / subfolder)
        if not class_files:
            raise UserError(
                f"the class folder {folder / name / subfolder} holds no images; add some, or delete it."
            )
        files += class_files
        labels += [index] * len(class_files)
    return files, labels


def find_corruptions(folder: Path) -> dict[str, Path]:
    """The folder of each corruption in a -C folder, in canonical order.

    A corruption's folder lies directly in the -C folder, or one level deeper (``blur/defocus_blur``).
    """
    folders = {}
    for name in KNOWN_CORRUPTIONS:
        for path in (folder / name, *folder.glob(f"*/{name}")):
            if path.is_dir():
                folders[name] = path
                break
    return folders
