"""Writing a report's files."""

from __future__ import annotations

from pathlib import Path

from ttabench.store.writer import ANOTHER
from ttabench.system.files import replace_file, writing


def write_text(path: Path, text: str) -> Path:
    """Write `text` as UTF-8; returns `path`. See :func:`write_bytes`."""
    return write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> Path:
    """Write `data`, so that a reader sees the old file or the new one, whole; returns `path`.

    Makes the folder. Raises UserError where it cannot be written.
    """
    with writing(path, ANOTHER):
        replace_file(path, data)
    return path
