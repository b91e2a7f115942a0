"""Whether an array file holds all the bytes that its headers promise, and a label for each image.

Arrays are mapped from the archive: one that promises more than it holds would go on with the bytes of
whatever comes behind it, or ask for more memory than there is.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from ttabench.data.files.array_files import MAX_NPZ_RATIO, RATIO_COUNTS_FROM, header_of
from ttabench.errors import UserError

UNREADABLE = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error)
WAYS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""How NumPy packs arrays."""
ENCRYPTED = 1
"""The flag of a member that needs a password."""


def check_whole(path: Path) -> None:
    """Raise UserError where an array of the .npz file `path` is longer in its header than in the file.

    Also where one is packed in a way that NumPy does not pack it, or would fill the memory; and where there
    are more images than labels, or fewer: the array alone could not name the file.
    Nothing is said of a file that is no archive: whoever reads it says so.
    """
    with suppress(*UNREADABLE), zipfile.ZipFile(path) as archive:
        for info, room in _rooms(archive):
            if not info.filename.endswith(".npy"):
                continue
            _check_packing(path, info)
            with archive.open(info) as member:
                promised, held = _promised(member), min(info.file_size, room)
            if promised > held:
                raise UserError(
                    f"{path} was refused: the header of {info.filename} promises {promised:,} bytes, and "
                    f"there are {held:,}; save it again with numpy.savez."
                )
        with archive.open("images.npy") as images, archive.open("labels.npy") as labels:
            _check_counts(images, labels, "it", str(path))


def check_array(path: Path) -> None:
    """Raise UserError where the array of the .npy file `path` is longer in its header than in the file."""
    with suppress(*UNREADABLE), path.open("rb") as file:
        promised, held = _promised(file), path.stat().st_size
        if promised > held:
            raise UserError(
                f"{path} was refused: its header promises {promised:,} bytes, and it has {held:,}; copy or "
                "save it again."
            )


def check_label_count(images: Path, labels: Path) -> None:
    """Raise UserError where one .npy file has more images than another one has labels, or fewer."""
    with suppress(*UNREADABLE), images.open("rb") as of_images, labels.open("rb") as of_labels:
        _check_counts(of_images, of_labels, str(images), str(labels))


def label_type(path: Path) -> np.dtype[Any] | None:
    """The type that labels have in a .npy or .npz file; None where it cannot be read."""
    with suppress(*UNREADABLE):
        if not zipfile.is_zipfile(path):
            with path.open("rb") as file:
                return header_of(file)[2]
        with zipfile.ZipFile(path) as archive, archive.open("labels.npy") as member:
            return header_of(member)[2]
    return None


def _check_packing(path: Path, info: zipfile.ZipInfo) -> None:
    """Raise UserError for a member that NumPy has not packed, and for one that would fill the memory."""
    if info.compress_type not in WAYS or info.flag_bits & ENCRYPTED:
        raise UserError(
            f"{path} was refused: {info.filename} is encrypted, or packed as NumPy packs no array; save it "
            "again with numpy.savez."
        )
    if info.file_size > max(RATIO_COUNTS_FROM, MAX_NPZ_RATIO * info.compress_size):
        raise UserError(
            f"{path} was refused: {info.filename} would unpack from {info.compress_size:,} to "
            f"{info.file_size:,} bytes; save it again with numpy.savez, which does not compress."
        )


def _check_counts(images: IO[bytes], labels: IO[bytes], of_images: str, of_labels: str) -> None:
    """Raise UserError for other numbers and for labels that are times; ValueError where they are no list."""
    (count, *_), ((given,), _, kind) = header_of(images)[0], header_of(labels)
    if kind.kind == "m":  # which NumPy counts as whole numbers
        raise UserError(f"{of_labels}: labels are {kind}; expected whole numbers.")
    if count != given:
        raise UserError(
            f"{of_labels} has {given:,} labels, and {of_images} has {count:,} images; expected one label per "
            "image."
        )


def _promised(file: IO[bytes]) -> int:
    """The bytes of an array file by its header; 0 for Python objects, which whoever reads them refuses."""
    shape, _, dtype = header_of(file)
    return 0 if dtype.hasobject else file.tell() + math.prod(shape) * dtype.itemsize


def _rooms(archive: zipfile.ZipFile) -> Iterator[tuple[zipfile.ZipInfo, int]]:
    """Each member, and how many bytes it can have: up to the next one, where it is not compressed."""
    infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
    ends = [*(info.header_offset for info in infos[1:]), archive.start_dir]
    for info, end in zip(infos, ends, strict=True):
        stored = info.compress_type == zipfile.ZIP_STORED
        yield info, end - info.header_offset if stored else info.file_size
