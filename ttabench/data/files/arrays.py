"""Arrays on disk, memory-mapped: .npy files, and images with labels in one .npz."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ttabench.data.dataset import Labelled
from ttabench.errors import UserError


def open_array(path: Path, shape: tuple[int, ...], dtype: DTypeLike | None) -> NDArray[Any]:
    """A .npy file as a read-only memory map of this shape and type (None = any whole-number type).

    Raises UserError where it is missing, is no array, or another one. Pickled arrays are refused.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as problem:
        raise UserError(f"{path} cannot be read ({problem.strerror or problem}).") from None
    except (ValueError, EOFError) as problem:
        raise UserError(f"{path} is not an array file ({problem}); fetch it again.") from None
    if not isinstance(array, np.ndarray):
        raise UserError(f"{path} is an .npz archive under the name of an .npy file.")
    fits = np.issubdtype(array.dtype, np.integer) if dtype is None else array.dtype == dtype
    if array.shape != shape or not fits:
        wanted = "whole numbers" if dtype is None else np.dtype(dtype).name
        raise UserError(
            f"{path} holds {array.dtype} of shape {array.shape}; expected {wanted} of shape {shape}."
        )
    return np.asarray(array)


def open_npz(path: Path) -> Labelled:
    """`images` (N, H, W, 3) uint8 and `labels` (N,) whole numbers 0 … C−1 from an .npz file.

    Images that ``numpy.savez`` stored uncompressed are memory-mapped. Raises UserError with what to
    change where the arrays are missing or of another kind.
    """
    try:
        file = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise UserError(f"{path} is a single array; expected an .npz with 'images' and 'labels'.")
        with file:
            if missing := {"images", "labels"} - set(file.files):
                names = ", ".join(file.files) or "nothing"
                raise UserError(f"{path} has no {' and no '.join(sorted(missing))}; it holds {names}.")
            labels = file["labels"]
            images = _mapped(path, "images.npy")
            images = file["images"] if images is None else images
    except OSError as problem:
        raise UserError(f"{path} cannot be read ({problem.strerror or problem}).") from None
    except (ValueError, EOFError, zipfile.BadZipFile) as problem:
        raise UserError(f"{path} is not an .npz file of plain arrays ({problem}).") from None
    return checked(path, images, labels)


def save_npz(path: Path, data: Labelled) -> None:
    """What :func:`open_npz` reads, uncompressed. Equal arrays give equal files."""
    with path.open("wb") as file:
        np.savez(file, images=data.images, labels=data.labels)


def checked(path: Path, images: NDArray[Any], labels: NDArray[Any]) -> Labelled:
    """Images and labels that were brought from outside, or UserError with what to change."""
    if images.dtype != np.uint8:
        hint = "multiply values in [0, 1] by 255, round, and convert with .astype('uint8')"
        raise UserError(f"{path}: images are {images.dtype}; expected uint8 ({hint}).")
    if images.ndim == 4 and images.shape[-1] != 3 and images.shape[1] == 3:
        raise UserError(f"{path}: images have shape {images.shape}; use .transpose(0, 2, 3, 1) for N×H×W×3.")
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise UserError(
            f"{path}: labels are {labels.dtype} of shape {labels.shape}; expected whole numbers of shape "
            f"({len(images)},)."
        )
    found = Labelled(images, labels.astype(np.int64))
    if not len(found):
        raise UserError(f"{path} holds no images.")
    if found.labels.min() < 0:
        raise UserError(f"{path}: labels go down to {found.labels.min()}; classes count from 0.")
    return found


def _mapped(path: Path, member: str) -> NDArray[Any] | None:
    """An uncompressed array inside a zip file as a memory map; None where it is compressed."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(member)
        if info.compress_type != zipfile.ZIP_STORED:
            return None
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)  # lengths of name and extra field in the local header
        name, extra = (int.from_bytes(file.read(2), "little") for _ in range(2))
        file.seek(info.header_offset + 30 + name + extra)
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read_header = np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read_header(file)
        if dtype.hasobject:
            raise ValueError("pickled arrays are refused")
        start = file.tell()
    mapped: np.memmap[Any, Any] = np.memmap(path, dtype, "r", start, shape, "F" if fortran else "C")
    return np.asarray(mapped)
