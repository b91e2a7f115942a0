"""Folders of images as arrays: decoded once, in parallel, into memory-mapped files in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ttabench.data.files.array_files import save_images
from ttabench.data.files.fingerprint import file_sha256
from ttabench.data.files.generated_cache import is_anew
from ttabench.data.files.read_image import Fit, decode
from ttabench.provenance import code_from
from ttabench.system.bounded_folder import largest_size, make_room
from ttabench.system.environment import cache_dir
from ttabench.system.files import replace_file, writing

LIMIT = "TTABENCH_DECODED_GB"
BUDGET_GB = 32.0


def decoded(files: Sequence[Path], key: str, size: int, fit: Fit = "exact") -> NDArray[np.uint8]:
    """The images as a read-only memory map (n, size, size, 3) uint8, kept in the cache.

    key   the hash of the files' content; other content must have another key.

    The cache holds at most ``$TTABENCH_DECODED_GB`` (32 GB unless set); the least recently used arrays are
    deleted first. A cached array that was changed on disk is made again.
    Raises UserError where an image cannot be read or the cache cannot be written.
    """
    path = cache_dir() / "decoded" / f"{key[:40]}-{size}-{fit}-{_made_with()}.npy"
    shape = (len(files), size, size, 3)
    while True:
        if is_anew() or not _is_unchanged(path, shape):
            with writing(f"the cache {path.parent}", "set TTABENCH_CACHE to a folder with space"):
                _write(path, files, shape, fit)
        with contextlib.suppress(OSError):
            os.utime(path.with_suffix(".json"))
        with contextlib.suppress(FileNotFoundError):  # another process has just made room
            return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))


def _made_with() -> str:
    """8 hex digits for the code that decodes and for the library that it calls."""
    made = f"{code_from('ttabench.data.files.read_image', 'decode')} {version('pillow')}"
    return hashlib.sha256(made.encode()).hexdigest()[:8]


def _is_unchanged(path: Path, shape: tuple[int, ...]) -> bool:
    try:
        note = json.loads(path.with_suffix(".json").read_text())
        unchanged: bool = note["shape"] == list(shape) and note["sha256"] == file_sha256(path)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return unchanged


def _write(path: Path, files: Sequence[Path], shape: tuple[int, ...], fit: Fit) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    held = ((note, note.with_suffix(".npy")) for note in path.parent.glob("*.json"))
    make_room(held, largest_size(LIMIT, BUDGET_GB) - int(np.prod(shape)))

    def some(part: slice) -> NDArray[np.uint8]:
        images = np.empty((part.stop - part.start, *shape[1:]), np.uint8)
        decode(files[part], images, shape[1], fit)
        return images

    save_images(path, shape, some)
    note = {"shape": shape, "sha256": file_sha256(path)}
    replace_file(path.with_suffix(".json"), json.dumps(note).encode())
