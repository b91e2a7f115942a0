"""Unpack archives that are not trusted: plain files and folders only, inside the target, of bounded size."""

from __future__ import annotations

import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from ttabench.errors import UserError
from ttabench.system.progress import OnProgress, silent

# The path of a file below the target folder, by the parts of its name; None = the file is left out.
PathInFolder = Callable[[tuple[str, ...]], tuple[str, ...] | None]

# What the readers raise on bytes that are wrong or missing: ValueError on a name that is no text.
DAMAGED = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, ValueError,
    OSError,
)  # fmt: skip

MAX_RATIO = 10
"""An archive may unpack to this many times its own size; the published ones reach 1.5."""

ALWAYS_ALLOWED = 64 << 20
"""Bytes that any archive may unpack to, however small it is: padding in small tar files compresses well."""

MAX_MEMBERS = 2_000_000
"""Files and folders in an archive; the largest published one has 1.1 million."""


class _Member(NamedTuple):
    """A file or folder of an archive: content is None for a folder, position is in bytes of the archive."""

    name: str
    content: IO[bytes] | None
    size: int
    position: int


def unpack(archive: Path, folder: Path, place: PathInFolder, on_progress: OnProgress = silent) -> int:
    """Write the files of a tar or zip archive below `folder` and return how many there are.

    The whole archive is refused where one member is neither a plain file nor a folder (a link, a device) or
    has a name that leads out of `folder`, and where its members have too many bytes or are too many.
    Sizes are checked before a member is written. Files get ordinary permissions.
    Raises UserError, and OSError where a file cannot be written; the caller then deletes what was written
    before.
    """
    count = members = unpacked = 0
    total = archive.stat().st_size
    limit = max(MAX_RATIO * total, ALWAYS_ALLOWED)
    try:
        for name, content, size, position in _members(archive, limit):
            members, unpacked = members + 1, unpacked + size
            _check_bounds(archive, members, unpacked, limit)
            parts = _safe_parts(archive, name)
            if content is None or not parts or (target := place(parts)) is None:
                continue
            _safe_parts(archive, "/".join(target))
            path = folder.joinpath(*target)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as out:
                shutil.copyfileobj(content, out, 1 << 20)
                if out.tell() != size:
                    raise UserError(
                        f"{archive.name} is damaged: {name} has {out.tell():,} bytes, and the archive "
                        f"promises {size:,}; fetch it again."
                    )
            count += 1
            on_progress(f"unpacking {archive.name}", position, total)
    except FileExistsError as problem:
        raise UserError(f"{archive.name} was refused: it has two files for {problem.filename}.") from None
    except DAMAGED as problem:
        if isinstance(problem, OSError) and problem.errno is not None:
            raise
        raise UserError(f"{archive.name} is damaged ({problem}); fetch it again.") from None
    return count


def _check_bounds(archive: Path, members: int, unpacked: int, limit: int) -> None:
    if members > MAX_MEMBERS:
        raise UserError(f"{archive.name} was refused: it has more than {MAX_MEMBERS:,} files and folders.")
    if unpacked > limit:
        raise UserError(
            f"{archive.name} was refused: it would unpack to more than {limit:,} bytes, "
            f"{MAX_RATIO} times its own size."
        )


def _members(archive: Path, limit: int) -> Iterator[_Member]:
    """The members in order. Raises UserError on anything but a plain file or a folder."""
    if zipfile.is_zipfile(archive):
        yield from _zip_members(archive, limit)
        return
    with archive.open("rb") as raw, tarfile.open(fileobj=raw, mode="r|*") as tar:
        for member in tar:
            if member.issparse() or not (member.isreg() or member.isdir()):
                kind = "a link" if member.issym() or member.islnk() else "a special file"
                raise UserError(f"{archive.name} was refused: {member.name} is {kind}, not a plain file.")
            content = tar.extractfile(member) if member.isreg() else None
            yield _Member(member.name, content, member.size, raw.tell())


def _zip_members(archive: Path, limit: int) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as opened:
        infos = opened.infolist()
        # The list of contents states all sizes, so nothing is written of an archive that is too large.
        _check_bounds(archive, len(infos), sum(info.file_size for info in infos), limit)
        for info in infos:
            mode = info.external_attr >> 16
            if mode and (mode & 0o170000) not in (0, 0o100000, 0o040000):
                raise UserError(f"{archive.name} was refused: {info.filename} is a link, not a plain file.")
            if info.is_dir():
                yield _Member(info.filename, None, 0, info.header_offset)
            else:
                with opened.open(info) as content:
                    yield _Member(info.filename, content, info.file_size, info.header_offset)


def _safe_parts(archive: Path, name: str) -> tuple[str, ...]:
    """The parts of a name, if it is relative and stays inside the folder. Raises UserError."""
    parts = tuple(part for part in PurePosixPath(name).parts if part != ".")
    leads_out = ".." in parts or name.startswith("/") or "\\" in name or "\0" in name
    if leads_out or any(":" in part and os.name == "nt" for part in parts):
        raise UserError(
            f"{archive.name} was refused: its file {name!r} would land outside the target folder."
        )
    return parts
