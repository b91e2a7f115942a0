"""Datasets by name or path. Naming and listing them imports no numpy."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ttabench.data.published.facts import PUBLISHED, Published
from ttabench.env import cache_dir
from ttabench.errors import UserError, unknown

if TYPE_CHECKING:
    from ttabench.data.dataset import Dataset

EMBEDDED = "digits-c"
NAMES: tuple[str, ...] = (EMBEDDED, *PUBLISHED)
MANIFEST = "ttabench.json"


def data_root(root: Path | str | None = None) -> Path:
    """Where datasets are kept: `root`, else ``$TTABENCH_DATA``, else ``data`` in the cache."""
    chosen = root or os.environ.get("TTABENCH_DATA")
    return Path(chosen).expanduser() if chosen else cache_dir() / "data"


def local_names(root: Path | str | None = None) -> list[str]:
    """The generated datasets below the data root."""
    return sorted(path.parent.name for path in data_root(root).glob(f"*-local/{MANIFEST}"))


def dataset(name: str, root: Path | str | None = None) -> Dataset:
    """A dataset by the name of a published one, of a generated one below the data root, or by path.

    A path is a folder made by `ttabench data generate`, or an existing -C folder (see
    ``docs/bring-your-own.md``). What was once opened by its path can afterwards be opened by its name.
    Raises UserError on an unknown name, or where the files are not there or not what they should be.
    """
    if name == EMBEDDED:
        from ttabench.data.digits import Digits

        return Digits()
    if name in PUBLISHED:
        return _published(PUBLISHED[name], data_root(root))
    if os.sep not in name and (folder := _local_folder(name, root)):
        return _local(folder)
    path = Path(name).expanduser()
    if path.is_dir():
        return _remembered(_local(path), path)
    if path.is_file():
        raise UserError(
            f"{name} is a clean set without corruptions; run `ttabench data generate {name}` and use the "
            "name it prints."
        )
    if os.sep in name:
        raise UserError(f"there is no folder {name}.")
    raise unknown("dataset", name, (*NAMES, *local_names(root)))


def _published(facts: Published, root: Path) -> Dataset:
    if facts.layout == "cifar":
        from ttabench.data.published.cifar import CifarC

        return CifarC(facts, root)
    from ttabench.data.published.imagenet import ImageNetC, TinyImageNetC

    return (TinyImageNetC if facts.layout == "tiny" else ImageNetC)(facts, root)


def _local(folder: Path) -> Dataset:
    from ttabench.data.own.own_dataset import open_local

    return open_local(folder)


def _local_folder(name: str, root: Path | str | None) -> Path | None:
    if not name.endswith("-local"):
        return None
    if (folder := data_root(root) / name).is_dir():
        return folder
    try:
        folder = Path(json.loads(_paths_file(name).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return folder if folder.is_dir() else None


def _remembered(opened: Dataset, path: Path) -> Dataset:
    """Note where a dataset opened by path lies, so that workers and reports can use its name.

    Of two folders with one name the one opened last has it; their fingerprints tell them apart.
    """
    note, here = _paths_file(opened.name), json.dumps(str(path.resolve()))
    try:
        if not note.is_file() or note.read_text() != here:
            note.parent.mkdir(parents=True, exist_ok=True)
            part = note.with_name(f".{os.getpid()}-{note.name}")
            part.write_text(here)
            part.replace(note)
    except OSError as problem:
        raise UserError(f"the cache {note.parent} cannot be written ({problem.strerror}).") from None
    return opened


def _paths_file(name: str) -> Path:
    return cache_dir() / "local" / f"{Path(name).name}.json"


@dataclass(frozen=True)
class Entry:
    """One line of `ttabench data list`. state: here, partly or not here; size in bytes on disk."""

    name: str
    state: Literal["here", "partly", "not here"]
    size: int
    path: str
    note: str


def listing(root: Path | str | None = None) -> list[Entry]:
    """Every known dataset: whether it is here, how large, and where. Reads folders, opens no image."""
    base = data_root(root)
    entries = [Entry(EMBEDDED, "here", 0, "", "ships with scikit-learn; corrupted on first use")]
    for facts in PUBLISHED.values():
        folders = [base / facts.corrupted_folder, base / facts.clean_folder]
        here = [folder for folder in folders if folder.is_dir()]
        state: Literal["here", "partly", "not here"] = (
            "here" if len(here) == len(folders) else "partly" if here else "not here"
        )
        download = sum(archive.size for archive in facts.archives)
        missing = ", ".join(folder.name for folder in folders if folder not in here)
        note = {
            "here": "",
            "partly": f"{missing} is missing; ttabench data fetch {facts.name}",
            "not here": f"{download / 1e9:.1f} GB to download; ttabench data fetch {facts.name}",
        }[state]
        entries.append(Entry(facts.name, state, sum(map(_size, here)), str(here[0] if here else ""), note))
    local = ((name, base / name) for name in local_names(root))
    return entries + [Entry(name, "here", _size(path), str(path), "generated here") for name, path in local]


def _size(folder: Path) -> int:
    """Bytes in all files below a folder."""
    total = 0
    with os.scandir(folder) as found:
        for entry in found:
            total += _size(Path(entry.path)) if entry.is_dir() else entry.stat().st_size
    return total
