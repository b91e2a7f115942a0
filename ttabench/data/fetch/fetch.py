"""Fetch a published dataset: download, check, unpack, move into place. No step leaves half a result."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ttabench.corruptions.names import ALL_CORRUPTIONS
from ttabench.data.catalog import EMBEDDED, NAMES
from ttabench.data.data_root import data_root
from ttabench.data.fetch.download import download
from ttabench.data.fetch.extract import Place, unpack
from ttabench.data.published.facts import PUBLISHED, Archive, PublishedDataset
from ttabench.errors import UserError, unknown
from ttabench.files import replace_file
from ttabench.progress import OnProgress, silent

DOWNLOADS = "downloads"
UNPACKED_RATIO = 1.5  # bytes unpacked per byte packed, at most, over all published archives


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

    Archives that were unpacked before are not downloaded again. Returns one sentence for each archive.
    Raises UserError.
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
    if mirror and not mirror.startswith(("http://", "https://")):
        raise UserError(f"the mirror '{mirror}' is not a web address; expected http://… or https://….")
    sentences = []
    for archive in facts.archives:
        if (receipt := _receipt(root, archive)) and (root / archive.folder).is_dir():
            sentences.append(
                f"{archive.file} is here already ({receipt['files']} files in {root / archive.folder})."
            )
            continue
        urls = (f"{mirror.rstrip('/')}/{archive.file}", *archive.urls) if mirror else archive.urls
        sentences.append(_fetch_archive(archive, root, on_progress, urls, keep))
    if facts.by_hand:
        sentences.append(f"By hand: {facts.by_hand}. The data root is {root}.")
    return sentences


def _fetch_archive(
    archive: Archive, root: Path, on_progress: OnProgress, urls: Sequence[str], keep: bool
) -> str:
    try:
        root.mkdir(parents=True, exist_ok=True)
        _check_space(archive, root)
        path, sums = download(archive, root / DOWNLOADS, on_progress, urls)
        files = _unpack_into_place(archive, path, root, on_progress)
        receipt = {"file": archive.file, "files": files, "size": path.stat().st_size, **sums}
        replace_file(_receipt_file(root, archive), json.dumps(receipt, indent=1).encode())
        if not keep:
            path.unlink()
    except OSError as problem:
        raise UserError(
            f"{archive.file} could not be stored below {root} ({problem.strerror}); free space there, or "
            "set TTABENCH_DATA to another folder."
        ) from None
    verdict = (
        "checksum as published"
        if archive.md5 or archive.sha256
        else f"no published checksum known, SHA-256 is {sums['sha256']}"
    )
    return f"{archive.file}: {files} files in {root / archive.folder} ({verdict})."


def _check_space(archive: Archive, root: Path) -> None:
    free = shutil.disk_usage(root).free
    part = root / DOWNLOADS / f"{archive.file}.part"
    downloaded = part.stat().st_size if part.is_file() else 0
    needed = int(archive.size * (1 + UNPACKED_RATIO)) - downloaded
    if free < needed:
        raise UserError(
            f"{archive.file} needs {needed / 1e9:.1f} GB below {root} while it is unpacked, and "
            f"{free / 1e9:.1f} GB are free; free some, or set TTABENCH_DATA to another folder."
        )


def _unpack_into_place(archive: Archive, path: Path, root: Path, on_progress: OnProgress) -> int:
    """Unpack next to the target, then rename every top-level entry into it; returns how many files."""
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=root) as scratch:
        if archive.packed:
            files = unpack(path, Path(scratch), place(archive), on_progress)
        else:
            shutil.copyfile(path, Path(scratch) / archive.file)
            files = 1
        target = root / archive.folder
        if not files:
            raise UserError(f"{archive.file} holds no file for {archive.folder}.")
        target.mkdir(exist_ok=True)
        for entry in sorted(Path(scratch).iterdir()):
            final = target / entry.name
            if final.is_dir():
                shutil.rmtree(final)
            entry.replace(final)
    return files


def place(archive: Archive) -> Place:
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


def _receipt(root: Path, archive: Archive) -> dict[str, object]:
    """What was stored when the archive was unpacked; {} where another release of it was."""
    try:
        receipt = json.loads(_receipt_file(root, archive).read_text())
        same = all(receipt[k] == v for k, v in (("md5", archive.md5), ("sha256", archive.sha256)) if v)
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return dict(receipt) if same else {}


def _receipt_file(root: Path, archive: Archive) -> Path:
    return root / ".fetched" / f"{archive.file}.json"
