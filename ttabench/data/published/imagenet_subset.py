"""Some of the images of imagenet-c, by name: ``imagenet-c[5000]``, ``imagenet-c[robustbench-5k]``, a list.

Which images these are is part of the dataset's name and of its fingerprint.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ttabench.cell.subset_names import DRAW
from ttabench.corruptions.corruption_names import SEVERITIES
from ttabench.data.balanced_subset import balanced_rows
from ttabench.data.dataset import Labelled
from ttabench.data.files.decoded_cache import decoded
from ttabench.data.files.image_folders import class_folders, image_files
from ttabench.data.published.description import PublishedDataset
from ttabench.data.published.imagenet import Files, FolderC, ImageNetC
from ttabench.errors import UserError, counted
from ttabench.system.environment import cache_dir
from ttabench.system.files import replace_file, writing

ROBUSTBENCH = "robustbench-5k"
ROBUSTBENCH_FILE = "helper_files/imagenet_test_image_ids.txt"
FORMS = f"a number of images, such as 5000, {ROBUSTBENCH}, or a file of names"


class ImageNetSubset(ImageNetC):
    """The images of `subset` alone, class by class, by name within a class.

    subset   N: a draw with as many images of each class as of any other, or one more; N@S: with seed S
             instead of 0; robustbench-5k; NAME-HASH of a list that :func:`remember_list` keeps; here-N: the N
             images that are here.

    Names are ``<wnid>/<file>``, the same in each folder. here-N are the names in the first folder of
    corrupted images. A draw is of all names, so that it is the same images whatever was downloaded. Raises
    UserError where there are not as many.
    """

    def __init__(self, facts: PublishedDataset, root: Path, subset: str) -> None:
        super().__init__(facts, root)
        if draw := DRAW.fullmatch(subset):  # 050 and 50@0 are 50
            subset = f"{int(draw[1])}@{int(draw[2] or 0)}".removesuffix("@0")
        self.subset = subset
        self.name = f"{facts.name}[{subset}]"
        if not self.names:
            raise UserError(f"{self.name} has no images.")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The images, ``<wnid>/<file>``, sorted."""
        if self.subset == ROBUSTBENCH:
            return tuple(sorted(robustbench_names()))
        if match := DRAW.fullmatch(self.subset):
            return balanced(self._all_names(), int(match[1]), int(match[2] or 0), self.name)
        if match := re.fullmatch(r"here-(\d+)", self.subset):
            if len(self._all_here) != int(match[1]):
                raise UserError(
                    f"{self.name}: {self._some_folder} holds {len(self._all_here):,} images now; open it as "
                    f"{self.facts.name} again."
                )
            return self._all_here
        return tuple(sorted(remembered_list(self.facts.name, self.subset)))

    @cached_property
    def _some_folder(self) -> Path:
        return first_folder(self)

    @cached_property
    def _all_here(self) -> tuple[str, ...]:
        return names_in(self._some_folder)

    def _all_names(self) -> tuple[str, ...]:
        """All published names, from the first folder that has as many. Raises UserError where none has."""
        corrupted = [path for name, path in self.pieces().items() if name.startswith("corrupted/")]
        listings = map(names_in, (self.clean_folder / "val", *corrupted))
        if whole := next((names for names in listings if len(names) == self.facts.test), None):
            return whole
        raise UserError(
            f"{self.name} is drawn from all {self.facts.test:,} images, and no folder here has them all; put "
            f"them all into {self.clean_folder / 'val'}, or name those that are here: --datasets "
            f"{self.facts.name} for all, --subset FILE for a list."
        )

    def _class_names(self) -> list[str]:
        """Those of the clean images and of the corrupted ones: one folder alone may lack some."""
        return sorted({*super()._class_names(), *class_folders(self._some_folder)})

    def shifted_count(self) -> int:
        return len(self.names)

    def severities(self, corruption: str) -> tuple[int, ...]:
        return severities_here(self, corruption)

    def selection(self, piece: str) -> Sequence[str]:
        if piece == "clean/train":
            return super().selection(piece)
        folder = self.pieces()[piece]
        return [name for name in self.names if (folder / name).is_file()]

    def test_files(self) -> Files:
        return self.files_in(self.clean_folder / "val")

    def test(self) -> Labelled:
        return self._read("clean/val", self.test_files(), clean=True)

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        self.check_request(corruption, severity)
        piece = f"corrupted/{corruption}/{severity}"
        if piece not in self.pieces():
            raise UserError(f"{self.name} has no {corruption} at severity {severity} here; {there(self)}.")
        return self._read(piece, self.files_in(self.pieces()[piece]), clean=False)

    def files_in(self, folder: Path) -> Files:
        """The images in a folder, and their labels. Raises UserError where one of them is missing."""
        missing = [name for name in self.names if not (folder / name).is_file()]
        if missing:
            raise UserError(
                f"{folder} lacks {len(missing):,} of the {len(self.names):,} images of {self.name}, such as "
                f"{missing[0]}; fetch them, or name another subset."
            )
        index = {wnid: i for i, wnid in enumerate(self.classes)}
        if unknown := [name for name in self.names if name.split("/")[0] not in index]:
            raise UserError(f"{unknown[0]} of {self.name} is of no class of {self.clean_folder / 'val'}.")
        return [folder / name for name in self.names], [index[name.split("/")[0]] for name in self.names]

    def _read(self, piece: str, labelled: Files, *, clean: bool) -> Labelled:
        files, labels = labelled
        fit = self.fit_of(files) if clean else "exact"
        images = decoded(files, self.folder_hash(piece), self.image_size, fit)
        return Labelled(images, np.asarray(labels, np.int64))


def open_imagenet_c(facts: PublishedDataset, root: Path, subset: str = "") -> ImageNetC:
    """imagenet-c, or a subset of it. A folder with another number of images than published is ``here-N``.

    Raises UserError where that is not the number of all corrupted folders.
    """
    if subset:
        return ImageNetSubset(facts, root, subset)
    whole = ImageNetC(facts, root)
    count = len(names_in(first_folder(whole)))
    if count == facts.test:  # a sweep compares the folders that it measures: there are 75 of 50,000 images
        return whole
    check_same_names(whole, [path for name, path in whole.pieces().items() if name.startswith("corrupted/")])
    return ImageNetSubset(facts, root, f"here-{count}")


def check_measured(data: ImageNetC, pieces: Iterable[str]) -> None:
    """Raise UserError where one of these corrupted pieces lacks an image. Only names are read."""
    folders = [data.pieces()[piece] for piece in pieces]
    if not isinstance(data, ImageNetSubset):
        check_same_names(data, [first_folder(data), *folders])
        return
    for folder in folders:
        data.files_in(folder)


def check_same_names(data: ImageNetC, folders: Iterable[Path]) -> None:
    """Raise UserError where corrupted folders hold images of other names than each other."""
    lists: dict[tuple[str, ...], tuple[str, ...]] = {}
    held = {folder: lists.setdefault(names, names) for folder in folders for names in [names_in(folder)]}
    if len(lists) < 2:
        return
    small = min(held, key=lambda folder: len(held[folder]))
    large = max((f for f in held if held[f] != held[small]), key=lambda folder: len(held[folder]))
    lacking = min(set(held[large]) - set(held[small]))
    raise UserError(
        f"{data.name}: the corrupted folders do not hold the same images: {small} has "
        f"{counted(len(held[small]), 'image')} and {large} has {len(held[large]):,}, such as {lacking}, "
        "which the first lacks; fetch the missing images, or move the incomplete folder away."
    )


def first_folder(data: ImageNetC) -> Path:
    """The first folder of corrupted images, by corruption and severity. Raises UserError."""
    corrupted = [path for name, path in data.pieces().items() if name.startswith("corrupted/")]
    if not corrupted:
        raise UserError(
            f"{data.corrupted_folder} holds no images; expected <corruption>/<severity>/<wnid>/*.JPEG there."
        )
    return corrupted[0]


def names_in(folder: Path) -> tuple[str, ...]:
    """``<class>/<file>`` of all images in class folders, sorted."""
    return tuple(
        f"{wnid}/{file.name}" for wnid in class_folders(folder) for file in image_files(folder / wnid)
    )


def severities_here(data: FolderC, corruption: str) -> tuple[int, ...]:
    """The severities of a corruption that there are folders of."""
    return tuple(s for s in SEVERITIES if f"corrupted/{corruption}/{s}" in data.pieces())


def there(data: FolderC) -> str:
    """What a partial download holds: ``there: fog 1-5; snow 5``."""
    parts = []
    for corruption in data.corruptions:
        if has := severities_here(data, corruption):
            each = "1-5" if has == SEVERITIES else ",".join(map(str, has))
            parts.append(f"{corruption} {each}")
    return f"there: {'; '.join(parts)}"


def balanced(names: Sequence[str], count: int, seed: int, what: str) -> tuple[str, ...]:
    """`count` of the sorted names, as :func:`balanced_rows` draws them. Raises UserError."""
    rows = balanced_rows([name.split("/")[0] for name in names], count, seed, what)
    return tuple(sorted(names[row] for row in rows))


def robustbench_names() -> list[str]:
    """The 5,000 images that RobustBench evaluates on, from its package, which is not imported."""
    spec = find_spec("robustbench")
    folders = spec.submodule_search_locations if spec else None
    files = [Path(folder) / ROBUSTBENCH_FILE for folder in folders or ()]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise UserError(
            f"the list {ROBUSTBENCH} comes with the package robustbench, which is not installed here: "
            "pip install robustbench, in a separate environment if its versions conflict with others; or "
            f"give the path of its {ROBUSTBENCH_FILE}."
        )
    return read_list(file)


def read_list(path: Path) -> list[str]:
    """Names ``<wnid>/<file>``, one a line; empty lines and lines that begin with # are left out.

    Raises UserError for another form, for a name twice, and for an empty list.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as problem:
        raise UserError(f"{path} cannot be read as a list of names ({problem}).") from None
    names = [line for line in lines if line and not line.startswith("#")]
    for name in names:
        if not re.fullmatch(r"[\w.-]*\w/[\w-][\w.-]*", name, flags=re.ASCII) or ".." in name:
            raise UserError(
                f"{path}: '{name[:60]}' is no name of an image; expected <wnid>/<file> in each line, such as "
                "n01440764/ILSVRC2012_val_00000293.JPEG."
            )
    if not names:
        raise UserError(f"{path} names no images.")
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise UserError(f"{path} names {name} twice; name each image once.")
    return names


def remember_list(dataset: str, path: Path) -> str:
    """Keep a list of names in the cache, so that workers open it; returns its ``NAME-HASH``."""
    names = sorted(read_list(path))
    content = "\n".join(names).encode()
    stem = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-") or "list"
    subset = f"{stem}-{hashlib.sha256(content).hexdigest()[:8]}"
    with writing(f"the cache {cache_dir()}"):
        replace_file(_kept(dataset, subset), content)
    return subset


def remembered_list(dataset: str, subset: str) -> list[str]:
    """The list that :func:`remember_list` keeps under a name. Raises UserError."""
    match = re.fullmatch(r"[a-z0-9-]+-([0-9a-f]{8})", subset)
    path = _kept(dataset, subset)
    if match is None:
        raise UserError(f"{dataset}[{subset}]: unknown subset; expected {dataset}[5000] with {FORMS}.")
    if not path.is_file():
        raise UserError(
            f"the list of {dataset}[{subset}] is not in the cache {path.parent}; give its file again with "
            "--subset FILE."
        )
    names = read_list(path)
    if hashlib.sha256("\n".join(names).encode()).hexdigest()[:8] != match[1]:
        raise UserError(f"{path} was changed; delete it, and give its file again with --subset FILE.")
    return names


def _kept(dataset: str, subset: str) -> Path:
    return cache_dir() / "subsets" / dataset / f"{subset}.txt"
