"""Weights files from the web: fetched once, checked before use, and held to what first came."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ttabench.data.fetch.download import download
from ttabench.data.published.facts import Archive
from ttabench.env import cache_dir
from ttabench.errors import UserError
from ttabench.files import replace_file
from ttabench.progress import OnProgress, silent

__all__ = ["PublishedWeights", "WeightsFile", "obtain"]

WeightsFile = Archive
"""File name, addresses and, where the authors publish them, size and checksums."""


@dataclass(frozen=True, kw_only=True)
class PublishedWeights:
    """A weights file that somebody published, and what it is said to reach.

    source   who published it; the name of a folder in the cache.
    claimed  clean accuracy in percent, None where nobody states it.
    """

    file: WeightsFile
    source: str
    claimed: float | None


def obtain(file: WeightsFile, source: str, progress: OnProgress = silent) -> tuple[Path, str]:
    """`file` in ``<cache>/downloads/<source>/``, downloaded unless it is there, and its SHA-256.

    It is held to its published checksums. Where the authors publish none, the SHA-256 of the first
    download is pinned in ``<file>.sha256`` beside it (the format of the command ``sha256sum``), and
    every later use of the file, downloaded again or not, must agree with that.

    Raises UserError where it cannot be had, with the place to put it by hand, or is another file.
    """
    folder = cache_dir() / "downloads" / source
    pin = folder / f"{file.file}.sha256"
    try:
        path, found = download(file, folder, progress)
        pinned = _pinned(pin)
        if not pinned:
            replace_file(pin, f"{found['sha256']}  {path.name}\n".encode())
    except OSError as problem:
        raise UserError(
            f"{file.file} could not be stored in {folder} ({problem.strerror}); free space there, or set "
            "TTABENCH_CACHE to another folder."
        ) from None
    if pinned and found["sha256"] != pinned:
        raise UserError(
            f"{path} is not the file that was first downloaded (SHA-256 {found['sha256'][:12]}… instead of "
            f"{pinned[:12]}…); delete it to download it again or, if this is the right one, delete {pin}."
        )
    return path, found["sha256"]


def _pinned(pin: Path) -> str:
    """The pinned SHA-256, "" where there is none. Raises UserError where the pin is damaged."""
    if not pin.is_file():
        return ""
    digest = pin.read_text(errors="replace").split(" ")[0]
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise UserError(f"{pin} is damaged: it holds no SHA-256; delete it and run the same command again.")
    return digest
