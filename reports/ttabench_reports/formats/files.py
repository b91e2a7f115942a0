"""Writing a report's files."""

from __future__ import annotations

from pathlib import Path

from ttabench.errors import UserError
from ttabench.system.files import replace_file


def write_text(path: Path, text: str) -> Path:
    """Write `text` as UTF-8; returns `path`. See :func:`write_bytes`."""
    return write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> Path:
    """Write `data`, so that a reader sees the old file or the new one, whole; returns `path`.

    Makes the folder. Raises UserError where it cannot be written.
    """
    try:
        replace_file(Path(path), data)
    except OSError as problem:
        raise UserError(
            f"{path} cannot be written ({problem.strerror}); choose another folder with --out."
        ) from None
    return Path(path)
