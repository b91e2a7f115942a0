"""Arrays on disk, memory-mapped: .npy files, and images with labels in one .npz file.

Pickled content is refused everywhere: reading a pickle can run any program.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ttabench.data.dataset import Labelled
from ttabench.errors import UserError
from ttabench.system.files import replacing

MAX_CLASSES = 100_000
"""A larger class index is a mistake: a classifier gets one output for every index up to the largest."""

CHUNK = 1024
"""Images in memory at a time while a file is made."""

MAX_NPZ_RATIO, RATIO_COUNTS_FROM = 200, 1 << 30
"""A member of an .npz file may unpack to 1 GiB, or to this many times its packed size."""


def open_array(path: Path, shape: tuple[int, ...], dtype: DTypeLike | None) -> NDArray[Any]:
    """A .npy file as a read-only memory map of this shape and type (None = any whole-number type).

    Raises UserError where the file is missing, is not an array, or holds another shape or type.
    """
    array = _map_array(path)
    type_matches = np.issubdtype(array.dtype, np.integer) if dtype is None else array.dtype == dtype
    if array.shape != shape or not type_matches:
        expected = "whole numbers" if dtype is None else np.dtype(dtype).name
        raise UserError(
            f"{path} holds {array.dtype} of shape {array.shape}; expected {expected} of shape {shape}."
        )
    return array


def open_labels(path: Path) -> NDArray[np.int64]:
    """The labels in a .npy file: (N,) whole numbers 0 … C−1. Raises UserError as :func:`check_labels`."""
    array = _map_array(path)
    return check_labels(path, array, len(array) if array.ndim else 0)


def open_npz(path: Path) -> Labelled:
    """`images` (N, H, W, 3) uint8 and `labels` (N,) whole numbers 0 … C−1 from an .npz file.

    Images that ``numpy.savez`` stored uncompressed are memory-mapped. Raises UserError with what to
    change where the arrays are missing or of another kind.
    """
    try:
        file = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise UserError(
                f"{path} is a single array; expected an .npz with 'images' and 'labels': "
                "numpy.savez(path, images=…, labels=…)."
            )
        with file:
            if missing := {"images", "labels"} - set(file.files):
                names = ", ".join(file.files) or "nothing"
                raise UserError(
                    f"{path} has no {' and no '.join(sorted(missing))}; it holds {names}. Save it again with "
                    "numpy.savez(path, images=…, labels=…)."
                )
            _check_unpacked_size(path)
            labels = _member(path, file, "labels")
            images = _map_member(path, "images.npy")
            images = _member(path, file, "images") if images is None else images
    except OSError as problem:
        raise UserError(f"{path} cannot be read ({problem.strerror or problem}).") from None
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        raise UserError(
            f"{path} is not an .npz file, or it is damaged; save it again with numpy.savez."
        ) from None
    return check_images_and_labels(path, images, labels)


def save_images(path: Path, shape: tuple[int, ...], some: Callable[[slice], NDArray[np.uint8]]) -> None:
    """Write images of this shape as `numpy.save` does, a part at a time; `some` gives those of a slice.

    It is no memory map: whoever writes into a map on a full disk is killed.
    """
    with replacing(path) as part, part.open("wb") as out:
        np.lib.format.write_array_header_1_0(out, {"descr": "|u1", "fortran_order": False, "shape": shape})
        for start in range(0, shape[0], CHUNK):
            out.write(some(slice(start, min(start + CHUNK, shape[0]))).tobytes())


def save_npz(path: Path, data: Labelled) -> None:
    """What :func:`open_npz` reads, uncompressed. Equal arrays give equal files."""
    with path.open("wb") as file:
        np.savez(file, images=data.images, labels=data.labels)


def check_images_and_labels(path: Path, images: NDArray[Any], labels: NDArray[Any]) -> Labelled:
    """Images and labels from a user's file, or a UserError that says what to change."""
    if images.dtype != np.uint8:
        hint = "multiply values in [0, 1] by 255, round, and convert with .astype('uint8')"
        raise UserError(f"{path}: images are {images.dtype}; expected uint8 ({hint}).")
    if images.ndim == 4 and images.shape[-1] != 3 and images.shape[1] == 3:
        raise UserError(f"{path}: images have shape {images.shape}; use .transpose(0, 2, 3, 1) for N×H×W×3.")
    if not images.size:
        raise UserError(f"{path} holds no images; expected at least one.")
    return Labelled(images, check_labels(path, labels, len(images)))


def check_labels(path: Path, labels: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Labels (count,) as whole numbers 0 … C−1, or a UserError that says what to change."""
    if labels.dtype.hasobject:
        raise _holds_objects(path, "labels")
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise UserError(
            f"{path}: labels are {labels.dtype} of shape {labels.shape}; expected whole numbers of shape "
            f"({count},)."
        )
    if len(labels) and int(labels.min()) < 0:
        raise UserError(
            f"{path}: the smallest label is {labels.min()}; classes count from 0: number them 0 … C−1."
        )
    if len(labels) and int(labels.max()) >= MAX_CLASSES:
        raise UserError(
            f"{path}: the largest label is {labels.max()}; labels are class indices 0 … C−1, and C may be "
            f"{MAX_CLASSES:,} at most."
        )
    return labels.astype(np.int64)


def _map_array(path: Path) -> NDArray[Any]:
    """A .npy file as a read-only memory map. Raises UserError."""
    try:
        with path.open("rb") as file:
            is_zip = file.read(4) == b"PK\x03\x04"
            file.seek(0)
            if not is_zip and header_of(file)[2].hasobject:
                raise _holds_objects(path, "it")
        if is_zip:
            raise UserError(
                f"{path} is an .npz archive, but its name ends in .npy; save one array in it with numpy.save."
            )
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except OSError as problem:
        raise UserError(f"{path} cannot be read ({problem.strerror or problem}).") from None
    except (ValueError, EOFError):
        raise UserError(f"{path} is not an array file, or it is damaged; fetch or save it again.") from None


def header_of(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether in Fortran order, and type, from the header of an .npy file. Raises ValueError."""
    if np.lib.format.read_magic(file) == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)


def _holds_objects(path: Path, what: str) -> UserError:
    return UserError(
        f"{path}: {what} holds Python objects, which are never read: they may contain a program; save plain "
        "numbers instead, for example numpy.asarray(labels, dtype=numpy.int64)."
    )


def _check_unpacked_size(path: Path) -> None:
    """Refuse an .npz file whose arrays would fill the memory. Raises UserError."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.file_size > max(RATIO_COUNTS_FROM, MAX_NPZ_RATIO * info.compress_size):
                raise UserError(
                    f"{path} was refused: {info.filename} would unpack from {info.compress_size:,} to "
                    f"{info.file_size:,} bytes; save it again with numpy.savez, which does not compress."
                )


def _member(path: Path, file: Any, name: str) -> NDArray[Any]:
    """One array of an opened .npz file."""
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as header:
        if header_of(header)[2].hasobject:
            raise _holds_objects(path, f"'{name}'")
    return np.asarray(file[name])


def _map_member(path: Path, member: str) -> NDArray[Any] | None:
    """An uncompressed array inside a zip file as a memory map; None where it is compressed."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(member)
        if info.compress_type != zipfile.ZIP_STORED:
            return None
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)  # lengths of name and extra field in the local header
        name_length, extra_length = (int.from_bytes(file.read(2), "little") for _ in range(2))
        file.seek(info.header_offset + 30 + name_length + extra_length)
        shape, fortran, dtype = header_of(file)
        if dtype.hasobject:
            raise _holds_objects(path, "'images'")
        start = file.tell()
    mapped: np.memmap[Any, Any] = np.memmap(path, dtype, "r", start, shape, "F" if fortran else "C")
    return np.asarray(mapped)
