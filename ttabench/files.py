"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Write a temporary file beside `path`, then rename it; makes the folder.

    Raises OSError where that cannot be done; what `path` held is then untouched and nothing is left over.
    """
    part = path.with_name(f".{os.getpid()}-{secrets.token_hex(4)}-{path.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
