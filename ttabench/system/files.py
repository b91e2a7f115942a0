"""Files: atomic writing, where a reader sees the old content or the new content and never a part; paths."""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from ttabench.errors import UnknownName, UserError, shortened

PART = re.compile(r"\.(\d+)-[0-9a-f]{8}-.")
"""How the names of temporary files begin, with the number of their process."""
LARGEST = 1 << 30
"""Bytes of a file that is read as a whole."""
LEFT = 24 * 3600.0
"""Seconds without a write after which a temporary file is a leftover, also of another machine."""


def replace_file(path: Path, data: bytes) -> None:
    """Write `data` to `path` through a temporary file beside it; the folder is created.

    Raises OSError if writing fails. Then `path` keeps its content, and no temporary file remains.
    """
    with replacing(path) as part:
        part.write_bytes(data)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, for large files; it is renamed to `path` when the block succeeds.

    The block writes the file. An error in the block deletes the temporary file and keeps the content of
    `path`. The folder is made. Raises OSError as :func:`replace_file` does.

    Its name has another ending: who looks for all files of a kind must not find it, half-written.
    """
    part = path.with_name(f".{os.getpid()}-{secrets.token_hex(4)}-{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    _delete_leftovers(path.parent)
    try:
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as problem:
        if problem.errno and problem.filename in (None, str(part)):
            problem.filename = str(path)  # which users know
        raise
    finally:
        part.unlink(missing_ok=True)


@cache  # once in a process
def _delete_leftovers(folder: Path) -> None:
    """Delete the temporary files in a folder that no process can still be writing."""
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            if (of := PART.match(entry.name)) and not Path("/proc", of[1]).exists():
                with suppress(OSError):  # another process does the same
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > LEFT:
                        os.unlink(entry.path)


@contextmanager
def writing(what: Path | str, advice: str = "") -> Iterator[None]:
    """In the block, an OSError is the UserError that `what` cannot be written, with `advice` what to do."""
    try:
        yield
    except OSError as problem:
        then = f"; {advice}" if advice else ""
        raise UserError(f"{what} cannot be written ({_why(problem)}){then}.") from None


def _why(problem: OSError) -> str:
    """The system's words; of "File exists", where a folder is to be made, what stands there."""
    if isinstance(problem, FileExistsError) and problem.filename:
        there = Path(problem.filename)
        return f"{there} is {'a link that leads nowhere' if there.is_symlink() else 'no folder'}"
    return problem.strerror or str(problem)


def check_plain(path: Path, kind: str = "file") -> None:
    """Raises UserError for a link, a pipe or a device, which may lead elsewhere or never end.

    Nothing is wrong with a file that does not exist; and whoever reads a folder is told by the system.

    kind   what the path is to be, "file" or "folder".
    """
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        what = "a link" if stat.S_ISLNK(mode) else "a pipe or a device"
        raise UserError(f"{path} is {what}; expected a {kind}. Put the {kind} itself there, or delete it.")


def read_plain(path: Path) -> bytes:
    """The bytes of a file in a folder that may be somebody else's.

    Raises OSError, and UserError as :func:`check_plain` does or for more than :data:`LARGEST` bytes.
    """
    check_plain(path)
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > LARGEST:
            raise UserError(f"{path} has more than {LARGEST >> 20:,} MB, so it is no file of ttabench.")
        return file.read()


def bytes_below(folder: Path) -> int:
    """Bytes in all files below a folder, those in linked folders too; what cannot be read is left out."""
    total, seen = 0, set[str]()
    for place, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(place)) in seen:  # a link to a folder that was counted
            folders.clear()
            continue
        seen.add(real)
        for name in names:
            with suppress(OSError):  # such as a temporary file of a process that is at work
                total += Path(place, name).stat().st_size
    return total


def user_path(text: Path | str) -> Path:
    """A path that a user gave, with ``~`` expanded. Raises UnknownName where no file can have that path."""
    try:
        path = Path(text).expanduser()
        str(path).encode()  # files of results and reports are UTF-8
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except UnicodeEncodeError:
        shown = shortened(str(text)).encode(errors="backslashreplace").decode()
        raise UnknownName(f"'{shown}' is not a usable path (its name is not UTF-8).") from None
    except (OSError, ValueError, RuntimeError) as problem:  # too long, a null character, an unknown ~user
        why = problem.strerror if isinstance(problem, OSError) else problem
        raise UnknownName(f"'{shortened(str(text))}' is not a usable path ({why}).") from None
    return path
