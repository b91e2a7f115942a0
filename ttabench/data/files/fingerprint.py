"""SHA-256 of files and folders, computed once and remembered until a file changes on disk.

A file counts as unchanged while its size, its inode, and its times of modification and of inode change
stay the same. Only then is the remembered hash used. Remembered hashes are in the cache, one small file
per path, so that the data itself may be read-only. No hash is remembered of a file that changed less than a
minute ago: a second change can leave the same times, because clocks of file systems are coarse.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ttabench.system.environment import cache_dir
from ttabench.system.files import replace_file

THREADS = 16
SETTLED = 60.0  # seconds


def combine(parts: dict[str, str]) -> str:
    """SHA-256 (hex) over names and their hashes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(parts):
        digest.update(f"{name}\0{parts[name]}\n".encode(errors="surrogateescape"))  # any name of a file
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes; remembered."""
    state = _stamp(path.stat())
    return _remembered(path, state) or _remember(path, state, _hash_file(path))


def folder_sha256(path: Path, *, quick: bool = False) -> str:
    """SHA-256 (hex) over the relative name and the bytes of every file below a folder; remembered.

    Hidden files do not count. The remembered hash is used where no file has changed: the state of every
    file is compared (0.1 s for 10,000 files). `quick` compares the state of the folders alone. This
    notices files that were added, deleted or renamed, but not a file that was overwritten in place.
    """
    entries = dict(_walk(path))
    below = {name: _stamp(entry.stat()) for name, entry in entries.items() if entry.is_dir()}
    folders = combine({"": _stamp(path.stat()), **below})
    if quick and (remembered := _remembered(path, folders, "quick")):
        return remembered
    files = {name: _stamp(entry.stat()) for name, entry in entries.items() if not entry.is_dir()}
    state = combine(files)
    return _remembered(path, state) or _remember(path, state, _hash_files(path, files), folders)


def files_sha256(path: Path, names: Sequence[str]) -> str:
    """SHA-256 (hex) over the names and bytes of some of the files below a folder; remembered."""
    state = combine({name: _stamp((path / name).stat()) for name in names})
    return _remembered(path, state) or _remember(path, state, _hash_files(path, names))


def _walk(top: Path, below: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Every file and folder below a folder, with its relative name; hidden ones are left out."""
    with os.scandir(top / below) as entries:
        for entry in entries:
            name = f"{below}/{entry.name}" if below else entry.name
            if entry.name.startswith("."):
                continue
            yield name, entry
            if entry.is_dir():
                yield from _walk(top, name)


def _stamp(stat: os.stat_result) -> str:
    """The state of a file or folder: it differs once the content has changed."""
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino}"


def _hash_files(path: Path, names: Iterable[str]) -> str:
    names = list(names)
    with ThreadPoolExecutor(THREADS) as pool:
        hashes = pool.map(lambda name: _hash_file(path / name), names, chunksize=64)
        return combine(dict(zip(names, hashes, strict=True)))


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _note(path: Path) -> Path:
    """Where the hash of `path` is stored."""
    path_hash = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()
    return cache_dir() / "fingerprints" / f"{path_hash[:32]}.json"


def _remembered(path: Path, state: str, key: str = "state") -> str:
    """The hash that was stored for this state of the file or folder, or "" where there is none."""
    try:
        note = json.loads(_note(path).read_text())
        return str(note["sha256"]) if note[key] == state else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _remember(path: Path, state: str, sha256: str, quick: str = "") -> str:
    if not _is_settled(path):
        with contextlib.suppress(OSError):  # a quick look would still take the hash that was remembered
            _note(path).unlink(missing_ok=True)
        return sha256
    note = {"path": str(path.resolve()), "state": state, "quick": quick, "sha256": sha256}
    with contextlib.suppress(OSError):  # without the note, the next call computes the hash again
        replace_file(_note(path), json.dumps(note).encode())
    return sha256


def _is_settled(path: Path) -> bool:
    """Whether a file, or all below a folder, last changed more than `SETTLED` seconds ago."""
    limit = time.time() - SETTLED
    try:
        stats = [path.stat(), *((entry.stat() for _, entry in _walk(path)) if path.is_dir() else ())]
    except OSError:  # gone meanwhile
        return False
    return all(max(stat.st_mtime, stat.st_ctime) < limit for stat in stats)
