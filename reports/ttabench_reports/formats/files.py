"""Writing a report's files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ttabench.store.writer import ANOTHER
from ttabench.system.files import replace_file, replacing, writing


def write_text(path: Path, text: str) -> Path:
    """Write `text` as UTF-8; returns `path`. See :func:`write_bytes`."""
    return write_bytes(path, text.encode())


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    """Write lines as UTF-8, see :func:`write_bytes`; a large file is never in memory as a whole."""
    with (
        writing(path, ANOTHER),
        replacing(path) as part,
        part.open("w", encoding="utf-8", newline="") as file,
    ):
        file.writelines(f"{line}\n" for line in lines)
    return path


def write_bytes(path: Path, data: bytes) -> Path:
    """Write `data`, so that a reader sees the old file or the new one, whole; returns `path`.

    Makes the folder. Raises UserError where it cannot be written.
    """
    with writing(path, ANOTHER):
        replace_file(path, data)
    return path
