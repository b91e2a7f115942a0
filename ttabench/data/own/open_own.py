"""Open a user's -C folder: one made by `ttabench data generate`, or an existing one."""

from __future__ import annotations

from pathlib import Path

from ttabench.corruptions.corruption_names import SEVERITIES
from ttabench.data.balanced_subset import undrawn
from ttabench.data.dataset import Dataset
from ttabench.data.files.image_folders import class_folders, files_in_classes, find_corruptions
from ttabench.data.files.read_image import image_size
from ttabench.data.files.whole_archive import check_array, check_label_count, check_whole
from ttabench.data.own.ccc_shards import CCCShards, is_ccc
from ttabench.data.own.domain_checks import test_domains
from ttabench.data.own.domain_folders import DomainFolders, domains_in
from ttabench.data.own.image_folder_checks import check_formats
from ttabench.data.own.own_arrays import OwnArrays
from ttabench.data.own.own_corruption_folders import STATISTICS_FROM, OwnImageFolders
from ttabench.data.own.own_dataset_base import OwnDataset
from ttabench.errors import UserError


def open_own(folder: Path) -> OwnDataset:
    """The dataset in a folder of arrays, of images or of shards of CCC.

    Raises UserError where files are missing or wrong.
    """
    if is_ccc(folder):
        return CCCShards(folder)
    _check_formats(folder)
    if names := corruptions_in(folder):
        _check_clean_size(folder, _severity_folders(find_corruptions(folder)[names[0]])[0])
        data = OwnImageFolders(folder)
        data.corruptions = tuple(names)
        return data
    if beside := test_domains(folder):
        source = DomainFolders(folder)
        source.corruptions = tuple(beside)
        return source
    _check_severities(folder)
    if domains := domains_in(folder):
        raise UserError(
            f"{folder} holds the domains {', '.join(domains)}: give the folder of the one that the network "
            f"is trained on, e.g. {folder / domains[0]}; the others are then the test sets."
        )
    for name in ("test.npz", "train.npz"):
        check_whole(folder / name)
    dataset = OwnArrays(folder)
    pieces = dataset.pieces()
    for path in pieces.values():
        if path.suffix == ".npy":
            check_array(path)
    for corruption in dataset.corruptions:
        if f"{corruption}.npy" in pieces:  # wrong shapes and labels end a sweep before its first cell
            check_label_count(folder / f"{corruption}.npy", folder / "labels.npy")
            dataset.corrupted(corruption, SEVERITIES[0])
    return dataset


def of_image_files(data: Dataset) -> bool:
    """Whether a dataset, or the one that it is drawn from, is an own one in folders of images."""
    return isinstance(undrawn(data), OwnImageFolders)


def corruptions_in(folder: Path) -> list[str]:
    """The corruptions that have folders of severities in a -C folder.

    A folder called like a corruption is none without them: it may be that of a class, such as test/frost.
    """
    return [name for name, path in find_corruptions(folder).items() if _severity_folders(path)]


def _severity_folders(path: Path) -> list[Path]:
    return [path / str(s) for s in SEVERITIES if (path / str(s)).is_dir()]


def _check_formats(folder: Path) -> None:
    """Raise UserError where a class of clean images has formats alone that are not read."""
    if (folder / "test.npz").is_file():
        return
    clean = [folder / name for name in ("test", "val", "train") if (folder / name).is_dir()]
    for place in clean or [folder]:
        check_formats(place)


def _check_clean_size(folder: Path, corrupted: Path) -> None:
    """Raise UserError where clean images have another size than the first one of a `corrupted` folder.

    The size of a dataset is that of the corrupted images: clean ones may not be cropped yet. Some of them are
    looked at, as where the folder is opened.
    """
    clean = next((folder / name for name in ("test", "val") if (folder / name).is_dir()), None)
    files, shifted = files_in_classes(clean) if clean else [], files_in_classes(corrupted)
    if not shifted:
        return
    size = image_size(shifted[0])
    for file in files[:: max(1, len(files) // STATISTICS_FROM)]:
        if (other := image_size(file)) != size:
            width, height = size
            raise UserError(
                f"{folder}: the corrupted image {shifted[0]} has {width}×{height} pixels, and the clean one "
                f"{file} has {other[0]}×{other[1]}; bring all clean images to {width}×{height}, as "
                "the corrupted ones were before."
            )


def _check_severities(folder: Path) -> None:
    """Raise UserError where corruptions stand beside clean images, and none has a folder of a severity.

    So too where folders of severities stand below names that are none of corruptions.
    """
    beside = [path for path in find_corruptions(folder).values() if path.parent == folder]
    if beside and any((folder / name).is_dir() for name in ("test", "val")):
        raise UserError(
            f"{beside[0]} has no folder of a severity; expected {beside[0]}/1/<class>/, or another of "
            f"{SEVERITIES[0]} to {SEVERITIES[-1]} in place of 1."
        )
    places = (path for name in class_folders(folder) for path in _severity_folders(folder / name))
    if any(map(files_in_classes, places)):
        raise UserError(no_corruptions(folder))


def no_corruptions(folder: Path) -> str:
    """What to say of a folder without one corruption that ttabench knows by name."""
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    some = ", ".join(names[:6]) + (" …" if len(names) > 6 else "")
    return (
        f"{folder} has no corruption with a known name; expected for example fog-1.npy, fog.npy or "
        f"fog/1/<class>/ (names: `ttabench list corruptions`); it holds {some}."
    )
