"""Writing a report's files: whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from ttabench.errors import UserError


def write_text(path: Path, text: str) -> Path:
    """Write `text` as UTF-8; returns `path`. See :func:`write_bytes`."""
    return write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> Path:
    """Write through a file beside it, so that a reader or a full disk never leaves half a report.

    Makes the folder. Raises UserError where it cannot be written.
    """
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(data)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as problem:
        raise UserError(
            f"{path} cannot be written ({problem.strerror}); choose another folder with --out."
        ) from None
    return path
