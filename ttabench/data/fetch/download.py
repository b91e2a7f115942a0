"""Download one file from the first mirror that works: resumed, and checked before it gets its name."""

from __future__ import annotations

import hashlib
import http.client
import ssl
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from ttabench.data.published.description import Archive
from ttabench.errors import UserError
from ttabench.system.progress import OnProgress, silent
from ttabench.system.work_claims import WorkClaims

BLOCK = 1 << 20
TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 5  # per mirror; each continues where the last one stopped
PAUSE = 1.0  # seconds before the second attempt; doubles
UNSTATED = 16 << 30  # bytes that a file of no published size may have


class _Unusable(Exception):
    """The file cannot be had from this mirror; the message says why, after "HOST: "."""


class _Unreachable(_Unusable):
    """The mirror did not answer."""


class _Interrupted(Exception):
    """The connection broke; the download can continue where it stopped."""


def download(
    archive: Archive, folder: Path, on_progress: OnProgress = silent, urls: Sequence[str] | None = None
) -> tuple[Path, dict[str, str]]:
    """The path of `archive` in `folder`, and its checksums {"md5": …, "sha256": …}.

    A file that is there already is only checked. Bytes are written to ``<file>.part``; after an interruption
    the same call continues there. The mirrors (`urls`, else those of the archive) are tried in order.
    Two processes must not download the same file at once.
    Raises UserError with one reason per mirror, and with the path where a user can put the file by hand;
    OSError where the file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / archive.file
    if target.is_file():
        return target, _check_existing(target, archive, on_progress)
    reasons: list[str] = []
    unreachable = True
    for url in urls or archive.urls:
        try:
            return target, _from_mirror(url, archive, target, on_progress)
        except _Unusable as problem:
            unreachable &= isinstance(problem, _Unreachable)
            reasons.append(f"{urlsplit(url).netloc}: {problem}")
    why = "the network cannot be reached" if unreachable else "no mirror has it"
    raise UserError(
        f"{archive.file} could not be downloaded, {why} ({'; '.join(reasons)}). Try again later, or "
        f"download it elsewhere, put it at {target}, and run the same command again."
    )


@contextmanager
def alone(file: str, folder: Path, does: str) -> Iterator[None]:
    """A block in which no other process works on a file, on all machines that share `folder`.

    does   what the process that holds the block does with the file, such as ``downloads``: a warning says it.
    """

    def waiting(where: list[str]) -> None:
        warnings.warn(f"{file}: waiting for {', '.join(where)}, which {does} it.", stacklevel=2)

    folder.mkdir(parents=True, exist_ok=True)
    with WorkClaims(folder) as claims, claims.alone(file, waiting):
        yield


def checksums(path: Path, on_progress: OnProgress = silent) -> dict[str, str]:
    """MD5 and SHA-256 (hex) of a file, in one pass."""
    digests = {"md5": hashlib.md5(usedforsecurity=False), "sha256": hashlib.sha256()}
    total, done = path.stat().st_size, 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            for digest in digests.values():
                digest.update(block)
            done += len(block)
            on_progress(f"checking {path.name.removesuffix('.part')}", done, total)
    return {name: digest.hexdigest() for name, digest in digests.items()}


def _from_mirror(url: str, archive: Archive, target: Path, on_progress: OnProgress) -> dict[str, str]:
    part = target.with_name(f"{target.name}.part")
    resumed = held(part) > 0
    while True:
        _complete(url, archive, part, on_progress)
        try:
            sums = _check(part, archive, on_progress)
        except _Unusable:
            part.unlink()
            if not resumed:
                raise
            resumed = False  # the bytes of an earlier call, or of another mirror, may be wrong: all once more
        else:
            part.replace(target)
            return sums


def held(part: Path) -> int:
    """The bytes of a file; 0 where there is none."""
    return part.stat().st_size if part.is_file() else 0


def _complete(url: str, archive: Archive, part: Path, on_progress: OnProgress) -> None:
    """Download `url` to `part`; continue after interruptions, as long as each attempt brings some bytes."""
    failed = 0
    while True:
        before = held(part)
        try:
            return _request(url, archive, part, on_progress)
        except _Interrupted as problem:
            failed = 1 if held(part) > before else failed + 1
            if failed >= ATTEMPTS:
                raise _Unusable(f"the connection broke {failed} times without progress ({problem})") from None
            time.sleep(PAUSE * 2 ** (failed - 1))


def _request(url: str, archive: Archive, part: Path, on_progress: OnProgress) -> None:
    start = held(part)
    if archive.size and start >= archive.size:
        return  # complete, or too long, which the check finds
    if (answer := _open(url, start)) is None:
        return
    with answer:
        if answer.status != 206:
            start = 0  # this server does not resume
        elif not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise _Unusable("it sent another part of the file than was asked for")
        total = _total(answer, start, archive)
        with part.open("ab" if start else "wb") as file:
            _copy(answer, file, archive, start, total, on_progress)


def _open(url: str, start: int) -> http.client.HTTPResponse | None:
    """The answer with the bytes from `start` on; None if there are none, and the check finds a wrong file."""
    request = urllib.request.Request(url, headers={"User-Agent": "ttabench"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as problem:
        if problem.code == 416 and start:
            return None
        if problem.code in (429, 500, 502, 503, 504):
            raise _Interrupted(f"{problem.code} {problem.reason}") from None
        raise _Unusable(f"{problem.code} {problem.reason}") from None
    except urllib.error.URLError as problem:
        if isinstance(problem.reason, TimeoutError):
            raise _Interrupted("timed out") from None
        kind = _Unusable if isinstance(problem.reason, ssl.SSLError) else _Unreachable
        raise kind(_reason(problem.reason)) from None
    except (OSError, http.client.HTTPException) as problem:
        raise _Interrupted(_reason(problem)) from None
    return answer


def _blocks(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """The bytes of an answer as they arrive, so that a broken connection loses nothing.

    Any error is one of the connection, and raises _Interrupted. Errors of the file that the caller writes do
    not pass through here.
    """
    while True:
        try:
            block = answer.read1(BLOCK)
        except (OSError, http.client.HTTPException) as problem:
            raise _Interrupted(_reason(problem)) from None
        if not block:
            return
        yield block


def _reason(problem: object) -> str:
    return str(getattr(problem, "strerror", None) or problem) or type(problem).__name__


def _total(answer: http.client.HTTPResponse, start: int, archive: Archive) -> int:
    """The size of the whole file that the server states, 0 = none. Raises _Unusable on a wrong size."""
    if answer.headers.get_content_type() == "text/html":
        raise _Unusable("it sent a web page instead of the file")
    length = answer.headers.get("Content-Length", "")
    total = start + int(length) if length.isdigit() else 0
    if archive.size and total and total != archive.size:
        raise _Unusable(f"its file has {total:,} bytes; expected {archive.size:,}")
    return total


def _copy(
    answer: http.client.HTTPResponse,
    file: IO[bytes],
    archive: Archive,
    done: int,
    total: int,
    on_progress: OnProgress,
) -> None:
    """Raises _Unusable for more bytes than the file may have: who states no length may never end."""
    most = archive.size or UNSTATED
    for block in _blocks(answer):
        file.write(block)
        done += len(block)
        if done > most:
            file.truncate(0)
            raise _Unusable(f"it sent more than {most:,} bytes")
        on_progress(f"downloading {archive.file}", done, total)
    if total and done < total:
        raise _Interrupted(f"{done:,} of {total:,} bytes arrived")


def _check(path: Path, archive: Archive, on_progress: OnProgress) -> dict[str, str]:
    """Size and checksums as published. Raises _Unusable."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(512).lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        raise _Unusable("it sent a web page instead of the file")
    if archive.size and size != archive.size:
        raise _Unusable(f"its file has {size:,} bytes; expected {archive.size:,}")
    sums = checksums(path, on_progress)
    for kind, expected in (("md5", archive.md5), ("sha256", archive.sha256)):
        if expected and sums[kind] != expected:
            raise _Unusable(f"its file has the {kind.upper()} checksum {sums[kind]}; expected {expected}")
    return sums


def _check_existing(path: Path, archive: Archive, on_progress: OnProgress) -> dict[str, str]:
    try:
        return _check(path, archive, on_progress)
    except _Unusable as problem:
        reason = str(problem).removeprefix("its file ").removeprefix("it ")
        raise UserError(
            f"{path} is not the published archive: it {reason}; delete it and fetch again."
        ) from None
