"""Datasets by name or by path. Listing the names imports no numpy."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ttabench.cell.subset_names import drawn_from, split_subset
from ttabench.corruptions.corruption_names import CORRUPTIONS, SEVERITIES
from ttabench.data.data_root import data_root
from ttabench.data.files.postscript import refuse_postscript
from ttabench.data.own.manifest import MANIFEST, SUFFIX
from ttabench.data.published.description import PublishedDataset
from ttabench.data.published.known_datasets import PUBLISHED
from ttabench.data.published.recognise import how_to_open
from ttabench.errors import UnknownName, UserError, shortened, unknown
from ttabench.system.environment import cache_dir
from ttabench.system.files import bytes_below, replace_file, user_path, writing

if TYPE_CHECKING:
    from ttabench.data.dataset import Dataset
    from ttabench.data.foreign_set import ForeignSet

EMBEDDED = "digits-c"
NAMES: tuple[str, ...] = (EMBEDDED, *PUBLISHED)
CODED = "coded-"
"""What coded names of foreign sets begin with, see :mod:`ttabench.data.foreign`."""

State = Literal["here", "partly", "not here"]


def local_names(root: Path | str | None = None) -> list[str]:
    """The names of the generated datasets below the data root."""
    return sorted(path.parent.name for path in data_root(root).glob(f"*-local/{MANIFEST}"))


opened_folders: dict[str, Path] = {}
"""The folders of own datasets that this process has opened by their path, by name. Workers get those of the
sweep: another sweep may have opened a folder of the same name meanwhile."""


def dataset(name: str, root: Path | str | None = None) -> Dataset:
    """Open a dataset by its name or by its path.

    name   of a published dataset, perhaps with a head for its classes alone (``imagenet-r[200-way]``), of a
           generated dataset below the data root, or of an own dataset that was opened by its path before.
    path   of a folder made by `ttabench data generate`, or of an existing -C folder (its layouts are
           described in ``docs/bring-your-own.md``).

    Both perhaps with a number of images (``cifar100-c[1000]``, ``imagenet-c[5000@3]``), see
    :mod:`ttabench.data.balanced_subset`.

    Raises UnknownName where there is no such name or folder, and UserError where files are missing or wrong.
    """
    if re.fullmatch(rf"{CODED}([0-9a-f]{{2}})+", name):
        return foreign_set(bytes.fromhex(name.removeprefix(CODED)).decode(errors="replace"), root)
    if name == EMBEDDED:
        from ttabench.data.generated_datasets import CurrentDigits

        return CurrentDigits()
    plain, subset = split_subset(name)
    if (whole := drawn_from(name)) != name and not user_path(name).is_dir():
        from ttabench.data.balanced_subset import drawn

        return drawn(dataset(whole, root), subset)
    if plain in PUBLISHED:
        return _open_published(PUBLISHED[plain], data_root(root), subset)
    if os.sep not in name and (folder := _folder_by_name(name, root)):
        opened = _open_own(folder)
        if opened.name != name:  # the folder was renamed: workers open it by the name in its manifest
            _remember_path(opened.name, folder)
        return opened
    path = user_path(name)
    if path.is_dir():
        if hint := how_to_open(path):
            raise UserError(hint)
        opened = _open_own(path)
        _remember_path(opened.name, path)
        return opened
    if path.is_file():
        raise UserError(
            f"{name} is a clean test set without corruptions. Run `ttabench data generate {name} "
            "--train TRAIN`, then use the name that it prints. TRAIN is the training set; it is needed where "
            "classifiers are to be trained here."
        )
    if os.sep in name:
        raise UnknownName(f"there is no folder {name}{_hint_at_published(path.name)}.")
    if name.endswith(SUFFIX):
        made = ", ".join(local_names(root)) or "none"
        raise UnknownName(
            f"there is no generated dataset '{shortened(name)}' in {data_root(root)} (there: {made}); "
            "make it with `ttabench data generate SOURCE`, or give the path of its folder."
        )
    raise unknown("dataset", name, (*NAMES, *local_names(root)), "`ttabench data list`")


def foreign_set(name: str, root: Path | str | None = None) -> ForeignSet:
    """The foreign set of a dataset, or of a folder that has images alone; by name or by path.

    Raises UserError.
    """
    from ttabench.data.foreign_set import ForeignSet
    from ttabench.data.own.plain_images import ENDING, PlainImages, is_plain

    refuse_postscript()
    if os.sep in name and is_plain(folder := user_path(name)):
        images = PlainImages(folder)
        _remember_path(images.name, folder)
        return ForeignSet(images)
    if name.endswith(ENDING) and (known := _folder_by_name(name, root)) and is_plain(known):
        return ForeignSet(PlainImages(known))
    try:
        return ForeignSet(dataset(name, root))
    except UnknownName:
        if os.sep in name:
            raise  # it says that there is no such folder
        raise unknown("contamination", name, ("noise", *NAMES, *local_names(root))) from None


def check_names(datasets: Iterable[Dataset]) -> None:
    """Raise UserError for an own dataset whose name means another folder: workers open it by its name."""
    from ttabench.data.balanced_subset import undrawn
    from ttabench.data.own.own_dataset_base import OwnDataset

    for data in map(undrawn, datasets):
        if not isinstance(data, OwnDataset):
            continue
        named = _folder_by_name(data.name, None)
        if named is not None and not named.samefile(data.folder):
            # Where there is a manifest, it holds the name, and a new name of the folder changes nothing.
            again = " again with another --name" if data.manifest else ""
            raise UserError(
                f"{data.folder} and {named} are both called {data.name}, and workers open data by name; "
                f"{'generate' if again else 'rename'} {data.folder}{again}."
            )


def _hint_at_published(folder: str) -> str:
    """A hint for a folder that is called like a published dataset, e.g. ``CIFAR-10-C``; else ""."""
    plain = folder.lower().replace("-", "")
    name = next((name for name in PUBLISHED if name.replace("-", "") == plain), "")
    return f"; published datasets are opened by name: {name}" if name else ""


def _open_published(facts: PublishedDataset, root: Path, subset: str = "") -> Dataset:
    refuse_postscript()
    if facts.layout == "cifar":
        from ttabench.data.published.cifar import CifarC

        return CifarC(facts, root)
    if facts.layout == "cifar-bar":
        from ttabench.data.generated_datasets import CurrentCifarBar

        return CurrentCifarBar(facts, root)
    if facts.shifted and subset:
        from ttabench.data.published.own_head import open_own_head

        return open_own_head(facts, root, subset)
    if facts.shifted:
        from ttabench.data.published.natural_shifts import Cifar101, NaturalImageNet

        return (Cifar101 if facts.layout == "cifar10.1" else NaturalImageNet)(facts, root)
    if facts.layout == "tiny":
        from ttabench.data.published.imagenet import TinyImageNetC

        return TinyImageNetC(facts, root)
    from ttabench.data.published.imagenet_subset import open_imagenet_c

    return open_imagenet_c(facts, root, subset)


def _open_own(folder: Path) -> Dataset:
    from ttabench.data.own.open_own import open_own
    from ttabench.data.own.set_checks import check_domain_names, check_sizes

    refuse_postscript()
    data = open_own(folder)
    check_sizes(data)
    check_domain_names(data)
    return data


def _folder_by_name(name: str, root: Path | str | None) -> Path | None:
    """The folder of a generated dataset, or of one that was opened by its path before."""
    if not name.endswith("-local"):
        return None
    if (folder := data_root(root) / name).is_dir():
        return folder
    try:
        folder = opened_folders.get(name) or Path(json.loads(_path_note(name).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return folder if folder.is_dir() else None


def _remember_path(name: str, path: Path) -> None:
    """Store the path of an own dataset, so that reports can open it by its name.

    Where two folders have one name, the name means the folder that was opened last. Their fingerprints
    differ.
    """
    opened_folders[name] = folder = path.resolve()
    note, content = _path_note(name), json.dumps(str(folder))
    with writing(f"the cache {note.parent}"):
        if not note.is_file() or note.read_text() != content:
            replace_file(note, content.encode())


def _path_note(name: str) -> Path:
    return cache_dir() / "local" / f"{Path(name).name}.json"


@dataclass(frozen=True)
class ListedDataset:
    """One line of `ttabench data list`. `size` is in bytes on disk."""

    name: str
    state: State
    size: int
    path: str
    note: str


def listing(root: Path | str | None = None) -> list[ListedDataset]:
    """Every known dataset: whether it is here, and how large it is. Reads folders, opens no image."""
    base = data_root(root)
    embedded = ListedDataset(EMBEDDED, "here", 0, "", "part of scikit-learn; corrupted on first use")
    generated = [
        ListedDataset(name, "here", bytes_below(base / name), str(base / name), "generated here")
        for name in local_names(root)
    ]
    return [embedded, *(_published_entry(facts, base) for facts in PUBLISHED.values()), *generated]


def _published_entry(facts: PublishedDataset, root: Path) -> ListedDataset:
    folders = [root / name for name in dict.fromkeys((facts.corrupted_folder, facts.clean_folder))]
    present = [folder for folder in folders if folder.is_dir()]
    fetch = f"ttabench data fetch {facts.name}"
    state: State
    if len(present) == len(folders):
        note = _gaps(facts, root)
        state = "partly" if note else "here"
    elif present:
        missing = ", ".join(folder.name for folder in folders if folder not in present)
        state, note = "partly", f"{missing} is missing; {fetch}"
    else:
        download = sum(archive.size for archive in facts.archives)
        state, note = "not here", f"{download / 1e9:.1f} GB to download; {fetch}"
    path = str(present[0]) if present else ""
    return ListedDataset(facts.name, state, sum(map(bytes_below, present)), path, note)


def _gaps(facts: PublishedDataset, root: Path) -> str:
    """What is here of a dataset whose folders are here and not complete; "" where they are.

    Images are not counted; `ttabench data verify` does.
    """
    from ttabench.data.published.imagenet import FolderC
    from ttabench.data.published.imagenet_subset import severities_here, there

    try:
        data = _open_published(facts, root)
    except UserError as problem:
        return str(problem)
    if facts.shifted or facts.layout == "cifar-bar":  # of the latter, corrupted images are made on first use
        return ""
    absent = [name for name in CORRUPTIONS if name not in data.corruptions]
    if isinstance(data, FolderC):
        whole = not absent and all(severities_here(data, name) == SEVERITIES for name in CORRUPTIONS)
        return "" if whole else there(data)
    return f"{', '.join(absent)} missing" if absent else ""
