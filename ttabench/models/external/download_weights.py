"""Weights files from the web: downloaded once, and compared with their first checksum before each use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ttabench.data.fetch.download import alone, download
from ttabench.data.published.description import Archive
from ttabench.errors import UserError
from ttabench.system.environment import cache_dir
from ttabench.system.files import replace_file
from ttabench.system.progress import OnProgress, silent

WeightsFile = Archive
"""File name, addresses, and size and checksums if the authors publish them."""


@dataclass(frozen=True, kw_only=True)
class PublishedWeights:
    """A published weights file, and its stated accuracy.

    source   who published it; the name of a folder in the cache.
    claimed  clean accuracy in percent that its authors state; None if they state none.
    """

    file: WeightsFile
    source: str
    claimed: float | None


def is_here(weights: PublishedWeights) -> bool:
    """Whether :func:`obtain` has the file already. Nothing is downloaded."""
    return (cache_dir() / "downloads" / weights.source / weights.file.file).is_file()


def obtain(file: WeightsFile, source: str, progress: OnProgress = silent) -> tuple[Path, str]:
    """`file` in ``<cache>/downloads/<source>/``, downloaded unless it is there, and its SHA-256.

    The file must match its published checksums. If the authors publish none, the SHA-256 of the first
    download is stored in ``<file>.sha256`` beside it (the format of the command ``sha256sum``), and every
    later use must match it. While another process downloads the same file, also on another machine, the call
    waits.

    Raises UserError if the file cannot be downloaded, with the folder to put it in by hand, or if it does
    not match.
    """
    folder = cache_dir() / "downloads" / source
    pin = folder / f"{file.file}.sha256"
    try:
        path, checksums = _downloaded(file, folder, progress)
        pinned = _pinned(pin)
        if not pinned:
            replace_file(pin, f"{checksums['sha256']}  {path.name}\n".encode())
    except OSError as problem:
        raise UserError(
            f"{file.file} could not be stored in {folder} ({problem.strerror}); free space there, or set "
            "TTABENCH_CACHE to another folder."
        ) from None
    if pinned and checksums["sha256"] != pinned:
        raise UserError(
            f"{path} is not the file that was first downloaded (SHA-256 {checksums['sha256'][:12]}… "
            f"instead of {pinned[:12]}…); delete it to download it again. If it is the right "
            f"file, delete {pin}."
        )
    return path, checksums["sha256"]


def _downloaded(file: WeightsFile, folder: Path, progress: OnProgress) -> tuple[Path, dict[str, str]]:
    """The path of `file` in `folder`, and its checksums."""
    if not (folder / file.file).is_file():
        with alone(file.file, folder, "downloads"):
            # This looks again: another process may have downloaded it while this one waited.
            return download(file, folder, progress)
    return download(file, folder, progress)  # only checks it, so the folder may be read-only


def _pinned(pin: Path) -> str:
    """The stored SHA-256, "" if there is none. Raises UserError if its file is damaged."""
    if not pin.is_file():
        return ""
    digest = pin.read_text(errors="replace").split(" ")[0]
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise UserError(f"{pin} is damaged: it holds no SHA-256; delete it and run the same command again.")
    return digest
