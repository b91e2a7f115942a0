"""Unpack archives that are not trusted: plain files and folders only, and none outside the target."""

from __future__ import annotations

import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from ttabench.data.fetch.download import Progress, silent
from ttabench.errors import UserError

# Where a member goes, by the parts of its name; None = leave it out.
Place = Callable[[tuple[str, ...]], tuple[str, ...] | None]


def unpack(archive: Path, folder: Path, place: Place, progress: Progress = silent) -> int:
    """Write the files of a tar or zip archive below `folder` and return how many there were.

    An archive with a single member that is neither a plain file nor a folder (a link, a device), or
    whose name is absolute or climbs out, is refused as a whole. Files get ordinary permissions.
    Raises UserError. What was written before a refusal is left to the caller to delete.
    """
    count = 0
    total = archive.stat().st_size
    try:
        for name, source, position in _members(archive):
            parts = _safe_parts(archive, name)
            if source is None or (target := place(parts)) is None:
                continue
            _safe_parts(archive, "/".join(target))
            path = folder.joinpath(*target)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
            count += 1
            progress(f"unpacking {archive.name}", position, total)
    except FileExistsError as problem:
        raise UserError(f"{archive.name} was refused: it has two files for {problem.filename}.") from None
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError) as problem:
        if isinstance(problem, OSError) and problem.errno is not None:
            raise UserError(
                f"{archive.name} could not be unpacked to {folder} ({problem.strerror})."
            ) from None
        raise UserError(f"{archive.name} is damaged ({problem}); fetch it again.") from None
    return count


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes] | None, int]]:
    """(name, content or None for a folder, position in the archive), in order. Refuses all else."""
    if zipfile.is_zipfile(archive):
        yield from _zip_members(archive)
        return
    with archive.open("rb") as raw, tarfile.open(fileobj=raw, mode="r|*") as tar:
        for member in tar:
            if member.issparse() or not (member.isreg() or member.isdir()):
                kind = "a link" if member.issym() or member.islnk() else "a special file"
                raise UserError(f"{archive.name} was refused: {member.name} is {kind}, not a plain file.")
            yield member.name, tar.extractfile(member) if member.isreg() else None, raw.tell()


def _zip_members(archive: Path) -> Iterator[tuple[str, IO[bytes] | None, int]]:
    with zipfile.ZipFile(archive) as found:
        for info in found.infolist():
            mode = info.external_attr >> 16
            if mode and (mode & 0o170000) not in (0, 0o100000, 0o040000):
                raise UserError(f"{archive.name} was refused: {info.filename} is a link, not a plain file.")
            if info.is_dir():
                yield info.filename, None, info.header_offset
            else:
                with found.open(info) as source:
                    yield info.filename, source, info.header_offset


def _safe_parts(archive: Path, name: str) -> tuple[str, ...]:
    """The parts of a relative name that stays inside. Raises UserError."""
    parts = tuple(part for part in PurePosixPath(name).parts if part != ".")
    climbs = ".." in parts or name.startswith("/") or "\\" in name or "\0" in name
    if climbs or any(":" in part and os.name == "nt" for part in parts):
        raise UserError(
            f"{archive.name} was refused: its file {name!r} would land outside the target folder."
        )
    return parts
