"""Get a published dataset: download, check, unpack, put in place; each step whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ttabench.corruptions.names import ALL_CORRUPTIONS
from ttabench.data.catalog import EMBEDDED, NAMES, data_root
from ttabench.data.fetch.download import Progress, download, silent
from ttabench.data.fetch.extract import Place, unpack
from ttabench.data.published.facts import PUBLISHED, Archive, Published
from ttabench.errors import UserError, unknown

DOWNLOADS = "downloads"
UNPACKED_PER_PACKED = 1.5  # at most, over all published archives


def fetch(
    name: str,
    root: Path | str | None = None,
    progress: Progress = silent,
    mirror: str | None = None,
    keep: bool = False,
) -> list[str]:
    """Make the published dataset `name` ready below the data root; say in sentences what was done.

    Archives that were unpacked before are not fetched again. `mirror` is tried before the published
    addresses: a folder on a web server, which holds the archives under their own names. `keep`
    leaves the archives in ``downloads/``. Raises UserError.
    """
    if name == EMBEDDED:
        return [f"{EMBEDDED} ships with the installed packages; there is nothing to fetch."]
    if name not in PUBLISHED:
        raise unknown("dataset", name, NAMES)
    return fetch_published(PUBLISHED[name], data_root(root), progress, mirror, keep)


def fetch_published(
    facts: Published,
    root: Path,
    progress: Progress = silent,
    mirror: str | None = None,
    keep: bool = False,
) -> list[str]:
    """The same for any description of a dataset."""
    if mirror and not mirror.startswith(("http://", "https://")):
        raise UserError(f"the mirror '{mirror}' is not a web address; expected http://… or https://….")
    said = []
    for archive in facts.archives:
        if (receipt := _receipt(root, archive)) and (root / archive.folder).is_dir():
            said.append(
                f"{archive.file} is here already ({receipt['files']} files in {root / archive.folder})."
            )
            continue
        urls = (f"{mirror.rstrip('/')}/{archive.file}", *archive.urls) if mirror else archive.urls
        said.append(_fetch_archive(archive, root, progress, urls, keep))
    if facts.by_hand:
        said.append(f"By hand: {facts.by_hand}. The data root is {root}.")
    return said


def _fetch_archive(archive: Archive, root: Path, progress: Progress, urls: Sequence[str], keep: bool) -> str:
    try:
        root.mkdir(parents=True, exist_ok=True)
        _check_space(archive, root)
        path, found = download(archive, root / DOWNLOADS, progress, urls)
        files = _unpack_into_place(archive, path, root, progress)
        note = {"file": archive.file, "files": files, "size": path.stat().st_size, **found}
        _write_receipt(root, archive, note)
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
        else f"no published checksum known, SHA-256 is {found['sha256']}"
    )
    return f"{archive.file}: {files} files in {root / archive.folder} ({verdict})."


def _check_space(archive: Archive, root: Path) -> None:
    free = shutil.disk_usage(root).free
    part = root / DOWNLOADS / f"{archive.file}.part"
    there = part.stat().st_size if part.is_file() else 0
    wanted = int(archive.size * (1 + UNPACKED_PER_PACKED)) - there
    if free < wanted:
        raise UserError(
            f"{archive.file} needs {wanted / 1e9:.1f} GB below {root} while it is unpacked, and "
            f"{free / 1e9:.1f} GB are free; free some, or set TTABENCH_DATA to another folder."
        )


def _unpack_into_place(archive: Archive, path: Path, root: Path, progress: Progress) -> int:
    """Unpack beside the target, then move every top-level entry in by renaming."""
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=root) as scratch:
        files = unpack(path, Path(scratch), place(archive), progress)
        target = root / archive.folder
        if not files:
            raise UserError(f"{archive.file} holds nothing that belongs into {archive.folder}.")
        target.mkdir(exist_ok=True)
        for entry in sorted(Path(scratch).iterdir()):
            final = target / entry.name
            if final.is_dir():
                shutil.rmtree(final)
            entry.replace(final)
    return files


def place(archive: Archive) -> Place:
    """Where the members of an archive go below its folder, whatever folders they are wrapped in."""

    def cut(parts: tuple[str, ...]) -> tuple[str, ...] | None:
        if parts[-1].startswith("."):
            return None
        if archive.split:
            starts = [i for i, part in enumerate(parts) if part in ALL_CORRUPTIONS]
            return parts[starts[0] :] if starts else None
        if archive.folder in parts:
            parts = parts[parts.index(archive.folder) + 1 :]
        return parts or None

    return cut


def _receipt(root: Path, archive: Archive) -> dict[str, object]:
    """What was noted when the archive was unpacked, if it was the one described here."""
    try:
        note = json.loads(_receipt_file(root, archive).read_text())
        same = all(note[k] == v for k, v in (("md5", archive.md5), ("sha256", archive.sha256)) if v)
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return dict(note) if same else {}


def _write_receipt(root: Path, archive: Archive, note: dict[str, object]) -> None:
    file = _receipt_file(root, archive)
    file.parent.mkdir(exist_ok=True)
    part = file.with_name(f".{os.getpid()}-{file.name}")
    part.write_text(json.dumps(note, indent=1))
    part.replace(file)


def _receipt_file(root: Path, archive: Archive) -> Path:
    return root / ".fetched" / f"{archive.file}.json"
