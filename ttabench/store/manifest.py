"""The file ``sweep.json`` of a results folder: the options of its sweeps, with a checksum."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ttabench.cell import canonical
from ttabench.errors import UserError, plain
from ttabench.store.sweep_options import are_options
from ttabench.system.files import read_plain, replace_file

FORMAT = "ttabench-results"
VERSION = 3
SUMMED = 3
"""The first version whose manifest has a checksum."""


def write_manifest(path: Path, sweep: dict[str, Any]) -> None:
    """Replace the file. Raises OSError."""
    manifest = {"format": FORMAT, "version": VERSION, "sweep": sweep, "sum": checksum(sweep)}
    replace_file(path, (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode())


def read_manifest(path: Path) -> dict[str, Any]:
    """The options in the file. Raises FileNotFoundError, NotADirectoryError, OSError.

    Raises UserError where it is not what ttabench wrote, or is that of a newer ttabench.
    """
    content = read_plain(path)
    try:
        manifest = json.loads(content)
        sweep, version = manifest["sweep"], int(manifest["version"])
        whole = manifest["format"] == FORMAT and isinstance(sweep, dict) and are_options(sweep)
        unchanged = version < SUMMED or manifest.get("sum") == checksum(sweep)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        whole = False
    if not whole:
        raise UserError(f"{path} is not what ttabench wrote; restore it, or choose another folder.")
    if version > VERSION:
        raise UserError(f"{path.parent} was made by a newer ttabench; please upgrade.")
    if not unchanged:
        raise UserError(f"{path} was changed after ttabench wrote it; restore it, or choose another folder.")
    shown: dict[str, Any] = plain(sweep)
    return shown


def checksum(sweep: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(sweep).encode()).hexdigest()[:16]
