"""Fetch a published dataset: download, check, unpack, move into place. No step leaves half a result."""

from __future__ import annotations

import glob
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from string import punctuation
from urllib.parse import quote, urlsplit

from ttabench.corruptions.corruption_names import ALL_CORRUPTIONS
from ttabench.data.catalog import EMBEDDED, NAMES
from ttabench.data.data_root import data_root
from ttabench.data.fetch.download import alone, download, held
from ttabench.data.fetch.extract import PathInFolder, unpack
from ttabench.data.fetch.receipts import (
    FOLDER,
    Contents,
    contents,
    files_by_earlier_receipt,
    files_here,
    write_receipt,
)
from ttabench.data.published.description import Archive, PublishedDataset
from ttabench.data.published.known_datasets import PUBLISHED
from ttabench.errors import UserError, unknown
from ttabench.system.progress import OnProgress, silent

DOWNLOADS = "downloads"
UNPACKED_RATIO = 1.5  # bytes unpacked per byte packed, at most, over all published archives
UNPACKING = ".unpacking-"


def fetch(
    name: str,
    root: Path | str | None = None,
    on_progress: OnProgress = silent,
    mirror: str | None = None,
    keep: bool = False,
) -> list[str]:
    """Download and unpack the published dataset `name` below the data root.

    mirror   the address of a folder on a web server that has the archives under their published names; it
             is tried before the published addresses.
    keep     leaves the archives in ``downloads/``.

    An archive that was unpacked before is downloaded again only if files of it are missing, or if another
    release is published now. While another process fetches the same archive, also on another machine, the
    call waits. Returns one sentence for each archive. Raises UserError.
    """
    if name == EMBEDDED:
        return [f"{EMBEDDED} is part of the installed packages; there is nothing to fetch."]
    if name not in PUBLISHED:
        raise unknown("dataset", name, NAMES)
    return fetch_published(PUBLISHED[name], data_root(root), on_progress, mirror, keep)


def fetch_published(
    facts: PublishedDataset,
    root: Path,
    on_progress: OnProgress = silent,
    mirror: str | None = None,
    keep: bool = False,
) -> list[str]:
    """Download and unpack the dataset that `facts` describe; see :func:`fetch`."""
    address = _web_folder(mirror) if mirror else ""
    # All are looked for first: fetching one makes the folder, by which another is found if it shares it.
    found = [(archive, _here(archive, root, facts)) for archive in facts.archives]
    sentences = [here or _fetch_archive(archive, root, on_progress, address, keep) for archive, here in found]
    if facts.by_hand:
        sentences.append(f"By hand: {facts.by_hand}. The data root is {root}.")
    return sentences


def _web_folder(mirror: str) -> str:
    """The address of the mirror in ASCII, without a slash at its end. Raises UserError."""
    try:
        parts = urlsplit(mirror)
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
        rest = quote(parts._replace(scheme="", netloc="").geturl(), safe=punctuation)  # keeps %C3%A4 as it is
    except ValueError:  # a wrong port, a host or a character that cannot be written in ASCII
        host = ""
    if not host or parts.scheme not in ("http", "https"):
        raise UserError(f"the mirror '{mirror}' is not a web address; expected http://… or https://….")
    where = (f"[{host}]" if ":" in host else host) + (f":{port}" if port is not None else "")
    return f"{parts.scheme}://{where}{rest}".rstrip("/")


def _here(archive: Archive, root: Path, facts: PublishedDataset | None = None) -> str:
    """The sentence for an archive that is here; "" for one that is not, or not wholly.

    facts   the dataset of the archive, to accept receipts of earlier versions too.
    """
    files = files_here(root, archive)
    if not files and facts:
        shares = any(other.folder == archive.folder for other in facts.archives if other is not archive)
        files = files_by_earlier_receipt(root, archive, shares)
    return f"{archive.file} is here already ({files} files in {root / archive.folder})." if files else ""


def _fetch_archive(archive: Archive, root: Path, on_progress: OnProgress, mirror: str, keep: bool) -> str:
    urls = (f"{mirror}/{archive.file}", *archive.urls) if mirror else archive.urls
    try:
        with alone(archive.file, root / FOLDER, "fetches"):
            # Another process may have fetched it while this one waited.
            return _here(archive, root) or _download_and_unpack(archive, root, on_progress, urls, keep)
    except OSError as problem:
        raise UserError(
            f"{archive.file} could not be stored below {root} ({problem.strerror}); free space there, or "
            "set TTABENCH_DATA to another folder."
        ) from None


def _download_and_unpack(
    archive: Archive, root: Path, on_progress: OnProgress, urls: Sequence[str], keep: bool
) -> str:
    _delete_leftovers(archive, root)
    _check_space(archive, root)
    path, sums = download(archive, root / DOWNLOADS, on_progress, urls)
    files, unpacked = _unpack_into_place(archive, path, root, on_progress)
    write_receipt(root, archive, files=files, size=path.stat().st_size, unpacked=unpacked, sums=sums)
    if not keep:
        path.unlink()
    verdict = (
        "checksum as published"
        if archive.md5 or archive.sha256
        else f"no published checksum known, SHA-256 is {sums['sha256']}"
    )
    return f"{archive.file}: {files} files in {root / archive.folder} ({verdict})."


def _delete_leftovers(archive: Archive, root: Path) -> None:
    """Delete what was half unpacked when a process was killed. The caller holds the claim on `archive`.

    So no living process unpacks it. Folders with the name of another archive may be in use.
    """
    for folder in root.glob(f"{glob.escape(_scratch(archive))}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _scratch(archive: Archive) -> str:
    """How the name of the folder begins that the archive is unpacked to first."""
    return f"{UNPACKING}{archive.file}-"


def _check_space(archive: Archive, root: Path) -> None:
    free = shutil.disk_usage(root).free
    downloaded = held(root / DOWNLOADS / f"{archive.file}.part")
    needed = int(archive.size * (1 + UNPACKED_RATIO)) - downloaded
    if free < needed:
        raise UserError(
            f"{archive.file} needs {needed / 1e9:.1f} GB below {root} while it is unpacked, and "
            f"{free / 1e9:.1f} GB are free; free some, or set TTABENCH_DATA to another folder."
        )


def _unpack_into_place(
    archive: Archive, path: Path, root: Path, on_progress: OnProgress
) -> tuple[int, Contents]:
    """Unpack next to the target, then rename every top-level entry into it.

    Returns how many files were unpacked, and what.
    """
    with tempfile.TemporaryDirectory(prefix=_scratch(archive), dir=root) as scratch:
        if archive.packed:
            files = unpack(path, Path(scratch), place(archive), on_progress)
        else:
            shutil.copyfile(path, Path(scratch) / archive.file)
            files = 1
        target = root / archive.folder
        if not files:
            raise UserError(f"{archive.file} holds no file for {archive.folder}.")
        unpacked = contents(Path(scratch))
        target.mkdir(exist_ok=True)
        for entry in sorted(Path(scratch).iterdir()):
            final = target / entry.name
            if final.is_symlink():
                final.unlink()  # what it leads to, perhaps on another disk, is kept
            elif final.is_dir():
                shutil.rmtree(final)
            entry.replace(final)
    return files, unpacked


def place(archive: Archive) -> PathInFolder:
    """The path of each member below the archive's folder; leading folders in the archive are dropped."""

    def path_below(parts: tuple[str, ...]) -> tuple[str, ...] | None:
        if parts[-1].startswith("."):
            return None
        if archive.split:
            starts = [i for i, part in enumerate(parts) if part in ALL_CORRUPTIONS]
            return parts[starts[0] :] if starts else None
        if (top := archive.inside or archive.folder) in parts:
            parts = parts[parts.index(top) + 1 :]
        return parts or None

    return path_below
