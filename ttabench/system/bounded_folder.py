"""Folders of the cache with a largest size: of what they hold, the least recently used is deleted first."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ttabench.errors import UserError


def largest_size(variable: str, usual: float) -> float:
    """Bytes, from a variable of the environment in gigabytes, which are `usual` where it is not set.

    Raises UserError where it is no number.
    """
    text = os.environ.get(variable, str(usual))
    try:
        return max(0.0, float(text)) * 1e9
    except ValueError:
        raise UserError(f"{variable} is '{text}'; expected a number of gigabytes.") from None


def make_room(entries: Iterable[tuple[Path, ...]], most: float) -> None:
    """Delete entries until the others have at most `most` bytes.

    entries   files that belong together: the first was written to when it was used, the last has the bytes.
    """
    by_age = []
    for files in entries:
        with suppress(OSError):  # another worker may be deleting it
            by_age.append((files[0].stat().st_mtime, files[-1].stat().st_size, files))
    total = sum(size for _, size, _ in by_age)
    for _, size, files in sorted(by_age):
        if total <= most:
            break
        total -= size
        for file in files:
            with suppress(OSError):  # some systems lock files that are open
                file.unlink(missing_ok=True)
