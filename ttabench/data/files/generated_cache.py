"""Arrays that are computed on first use and kept in the cache with their SHA-256."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import numpy as np
from numpy.typing import NDArray

from ttabench.system.files import replace_file, replacing, writing

_unchanged: dict[Path, tuple[int, ...]] = {}  # file → its size and times when this process checked its hash

_anew = Event()


@contextmanager
def made_anew() -> Iterator[None]:
    """In the block, arrays are computed even where the cache has them: the code that makes them runs."""
    _anew.set()
    try:
        yield
    finally:
        _anew.clear()


def is_anew() -> bool:
    """Whether a block of :func:`made_anew` runs."""
    return _anew.is_set()


def cached_array(file: Path, compute: Callable[[], NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """The array in `file`; computed and stored where the file is missing or was changed.

    Two processes may compute and store the same array at the same time. Raises UserError where the cache
    cannot be written.
    """
    array = None if is_anew() else _read(file)
    if array is None:
        array = compute()
        _write(file, array)
    return array


def _read(file: Path) -> NDArray[np.uint8] | None:
    try:
        stat = file.stat()
        now = stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
        array = np.load(file, allow_pickle=False)
        if _unchanged.get(file) == now:
            return np.asarray(array)
        expected = json.loads(file.with_suffix(".json").read_text())["sha256"]
    except (OSError, ValueError, EOFError, KeyError, TypeError):
        return None
    if _sha256(array) != expected:
        return None
    _unchanged[file] = now
    return np.asarray(array)


def _write(file: Path, array: NDArray[np.uint8]) -> None:
    with writing(f"the cache {file.parent}", "set TTABENCH_CACHE to a folder with space"):
        with replacing(file) as part, part.open("wb") as opened:
            np.save(opened, array, allow_pickle=False)
        replace_file(file.with_suffix(".json"), json.dumps({"sha256": _sha256(array)}).encode())


def _sha256(array: NDArray[np.uint8]) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()
