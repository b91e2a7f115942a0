"""What each archive was unpacked to, so that a later fetch can tell whether all of it is still there.

A receipt names the top-level entries of an archive: a file with its size, a folder with the number of files
below it. So it is small, and listings of folders are enough to compare it. The archives of ImageNet-C have
millions of images. Asking a network file system for the size of each takes many minutes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ttabench.data.published.description import Archive
from ttabench.system.files import replace_file

FOLDER = ".fetched"  # below the data root

# By the name of a top-level entry: {"bytes": its size}, or {"files": how many files are below it}.
Contents = dict[str, dict[str, int]]


def contents(folder: Path) -> Contents:
    """What was unpacked into `folder`. Raises OSError."""
    return {entry.name: _entry(entry) for entry in sorted(folder.iterdir())}


def write_receipt(
    root: Path, archive: Archive, *, files: int, size: int, unpacked: Contents, sums: Mapping[str, str]
) -> None:
    """Store that the archive, of `size` bytes and with these checksums, was unpacked. Raises OSError."""
    receipt = {"file": archive.file, "files": files, "size": size, **sums, "unpacked": unpacked}
    replace_file(_path(root, archive), json.dumps(receipt, indent=1).encode())


def files_here(root: Path, archive: Archive) -> int:
    """How many files the archive was unpacked to; 0 if it was not, or if they are not all there as they were.

    0 also where the receipt was written by an earlier version; see :func:`files_by_earlier_receipt`.
    """
    receipt = _read(root, archive)
    files, unpacked = receipt.get("files"), receipt.get("unpacked")
    if not isinstance(files, int) or not isinstance(unpacked, dict):
        return 0
    folder = root / archive.folder
    return files if all(_is_there(folder / name, stored) for name, stored in unpacked.items()) else 0


def files_by_earlier_receipt(root: Path, archive: Archive, shares_folder: bool) -> int:
    """:func:`files_here` for a receipt of an earlier version, which has nothing but the number of files.

    shares_folder   other archives have the same folder. Then the files in it cannot be counted for one
                    archive, and the folder only has to exist.
    """
    receipt = _read(root, archive)
    folder = root / archive.folder
    files = receipt.get("files")
    if not isinstance(files, int) or "unpacked" in receipt or not folder.is_dir():
        return 0
    return files if shares_folder or _count(folder) == files else 0


def _is_there(path: Path, stored: object) -> bool:
    try:
        return _entry(path) == stored
    except OSError:
        return False


def _entry(path: Path) -> dict[str, int]:
    return {"files": _count(path)} if path.is_dir() else {"bytes": path.stat().st_size}


def _count(folder: Path) -> int:
    """The files below a folder; without hidden ones, which are not unpacked and which file managers make."""
    return sum(not name.startswith(".") for _, _, names in os.walk(folder) for name in names)


def _read(root: Path, archive: Archive) -> dict[str, Any]:
    """The receipt; {} if there is none, or if it is of another release."""
    try:
        receipt = dict(json.loads(_path(root, archive).read_text()))
        same = all(receipt[k] == v for k, v in (("md5", archive.md5), ("sha256", archive.sha256)) if v)
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return receipt if same else {}


def _path(root: Path, archive: Archive) -> Path:
    return root / FOLDER / f"{archive.file}.json"
