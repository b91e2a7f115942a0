"""Folders of images as arrays: decoded once, in parallel, into a memory-mapped file in the cache."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from ttabench.data.files.fingerprint import file_sha256
from ttabench.env import cache_dir
from ttabench.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

Fit = Literal["exact", "imagenet", "cover"]

BUDGET_GB = 32.0
SUFFIXES = (".jpeg", ".jpg", ".png", ".bmp", ".webp", ".ppm")


def class_folders(folder: Path) -> list[str]:
    """The names of a folder's class folders, sorted: class i is the i-th, as in torchvision's ImageFolder."""
    try:
        return sorted(e.name for e in os.scandir(folder) if e.is_dir() and not e.name.startswith("."))
    except OSError as problem:
        raise UserError(f"{folder} cannot be read ({problem.strerror}).") from None


def image_files(folder: Path) -> list[Path]:
    """The images in a folder, sorted by name; hidden files and other kinds are left out."""
    try:
        names = [e.name for e in os.scandir(folder) if e.is_file()]
    except OSError as problem:
        raise UserError(f"{folder} cannot be read ({problem.strerror}).") from None
    return [folder / n for n in sorted(names) if n.lower().endswith(SUFFIXES) and not n.startswith(".")]


def labelled_files(folder: Path, classes: Sequence[str], below: str = "") -> tuple[list[Path], list[int]]:
    """The images of ``<folder>/<class>/[below]``, class by class, and the class index of each."""
    files: list[Path] = []
    labels: list[int] = []
    for index, name in enumerate(classes):
        own = image_files(folder / name / below)
        files += own
        labels += [index] * len(own)
    return files, labels


def open_size(path: Path) -> tuple[int, int]:
    """Width and height of an image, without decoding it. Raises UserError."""
    import PIL.Image

    try:
        with PIL.Image.open(path) as opened:
            return opened.size
    except (OSError, ValueError, SyntaxError, PIL.Image.DecompressionBombError) as problem:
        raise UserError(f"{path} cannot be decoded ({problem}).") from None


def read_image(path: Path, size: int, fit: Fit = "exact") -> NDArray[np.uint8]:
    """One image as (size, size, 3) RGB; grey and palette images are converted.

    fit   exact: it must have that size.
          imagenet: shorter side to 256/224 of `size` (bilinear), centre crop, the usual test transform.
          cover: the largest centred square, to `size` (bicubic).
    Raises UserError where it cannot be decoded or has another size.
    """
    import PIL.Image
    from PIL import ImageOps

    try:
        with PIL.Image.open(path) as opened:
            image = opened.convert("RGB")
    except (OSError, ValueError, SyntaxError, PIL.Image.DecompressionBombError) as problem:
        raise UserError(f"{path} cannot be decoded ({problem}); fetch it again.") from None
    if fit == "imagenet":
        image = _resize_and_crop(image, size)
    elif fit == "cover" and image.size != (size, size):
        image = ImageOps.fit(image, (size, size), PIL.Image.Resampling.BICUBIC)
    if image.size != (size, size):
        width, height = image.size
        raise UserError(f"{path} is {width}×{height} pixels; expected {size}×{size}.")
    return np.asarray(image)


def _resize_and_crop(image: Image, size: int) -> Image:
    from PIL.Image import Resampling

    short = round(size * 256 / 224)
    width, height = (int(short * side / min(image.size)) for side in image.size)
    left, top = round((width - size) / 2), round((height - size) / 2)
    return image.resize((width, height), Resampling.BILINEAR).crop((left, top, left + size, top + size))


def decode(files: Sequence[Path], out: NDArray[np.uint8], size: int, fit: Fit) -> None:
    """Decode into `out` (n, size, size, 3), in threads (Pillow lets them run side by side)."""

    def one(index: int) -> None:
        out[index] = read_image(files[index], size, fit)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for _ in pool.map(one, range(len(files)), chunksize=32):
            pass


def decoded(files: Sequence[Path], key: str, size: int, fit: Fit = "exact") -> NDArray[np.uint8]:
    """Images of `files` as a read-only memory map (n, size, size, 3) uint8, kept in the cache.

    key   the hash of what the files contain; other content has to come with another key.
    The cache holds at most ``$TTABENCH_DECODED_GB`` (32 GB unless set); the least recently used arrays
    go first. A cached array that is no longer what was written is made again.
    Raises UserError where an image cannot be read or the cache cannot be written.
    """
    path = cache_dir() / "decoded" / f"{key[:40]}-{size}-{fit}.npy"
    shape = (len(files), size, size, 3)
    if not _is_intact(path, shape):
        try:
            _write(path, files, shape, fit)
        except OSError as problem:
            raise UserError(
                f"the cache {path.parent} cannot be written ({problem.strerror}); "
                "set TTABENCH_CACHE to a folder with space."
            ) from None
    with contextlib.suppress(OSError):
        os.utime(path.with_suffix(".json"))
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))


def _is_intact(path: Path, shape: tuple[int, ...]) -> bool:
    try:
        note = json.loads(path.with_suffix(".json").read_text())
        same: bool = note["shape"] == list(shape) and note["sha256"] == file_sha256(path)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return same


def _write(path: Path, files: Sequence[Path], shape: tuple[int, ...], fit: Fit) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    _make_room(path.parent, int(np.prod(shape)))
    part = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        out = np.lib.format.open_memmap(part, mode="w+", dtype=np.uint8, shape=shape)
        decode(files, out, shape[1], fit)
        out.flush()
        del out
        part.replace(path)
        note = path.with_suffix(".json")
        part.write_text(json.dumps({"shape": shape, "sha256": file_sha256(path)}))
        part.replace(note)
    finally:
        part.unlink(missing_ok=True)


def _make_room(folder: Path, wanted: int) -> None:
    """Delete the arrays not used for longest until `wanted` bytes fit in the budget."""
    text = os.environ.get("TTABENCH_DECODED_GB", str(BUDGET_GB))
    try:
        budget = float(text) * 1e9
    except ValueError:
        raise UserError(f"TTABENCH_DECODED_GB is '{text}'; expected a number of gigabytes.") from None
    held = []
    for note in folder.glob("*.json"):
        with contextlib.suppress(OSError):  # another worker may be doing the same
            held.append((note.stat().st_mtime, note.with_suffix(".npy").stat().st_size, note))
    total = sum(size for _, size, _ in held) + wanted
    for _, size, note in sorted(held):
        if total <= budget:
            break
        total -= size
        note.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # in use, on systems that lock open files
            note.with_suffix(".npy").unlink(missing_ok=True)
