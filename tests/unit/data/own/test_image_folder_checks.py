"""What a folder of images holds and nobody reads, in silence before: each is said or refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.unit import data_fakes as fakes
from ttabench.data.catalog import dataset
from ttabench.data.own.clean_images import read_clean
from ttabench.data.own.domain_folders import DomainFolders
from ttabench.data.own.doubts import doubts
from ttabench.data.own.image_folder_checks import left_out, other_files, turned
from ttabench.data.own.own_corruption_folders import OwnImageFolders
from ttabench.data.own.own_dataset_base import OwnDataset
from ttabench.data.own.plain_images import is_plain
from ttabench.data.verify.audit_dataset import verify
from ttabench.errors import UserError

pytestmark = pytest.mark.usefixtures("own_cache")

READ = ".jpeg, .jpg, .png, .bmp, .webp or .ppm"


def classes(folder: Path, names: tuple[str, ...] = ("crow", "owl"), count: int = 3, seed: int = 0) -> Path:
    """Class folders with images 0.png, 1.png, …"""
    for c, name in enumerate(names):
        for i, image in enumerate(fakes.clean_images(count, seed=seed + c)):
            fakes.write_png(folder / name / f"{i}.png", image)
    return folder


def c_folder(folder: Path, names: tuple[str, ...] = ("crow", "owl")) -> Path:
    """A -C folder of fog at all severities, with its clean test set."""
    classes(folder / "test", names)
    for path in sorted((folder / "test").rglob("*.png")):
        for severity in range(1, 6):
            paler = (np.asarray(Image.open(path)) * (1 - severity / 10)).astype(np.uint8)
            fakes.write_png(folder / "fog" / str(severity) / path.parent.name / path.name, paler)
    return folder


def sentences(folder: Path) -> list[str]:
    data = dataset(str(folder))
    assert isinstance(data, OwnDataset)
    return list(doubts(data, data.corruptions))


def warnings_of(folder: Path) -> list[str]:
    return [finding.text for finding in verify(str(folder)) if finding.level == "warning"]


# ---- what is no image in a class folder


def test_images_in_deeper_folders_and_of_other_types_are_named(tmp_path: Path) -> None:
    folder = classes(tmp_path / "birds")
    assert left_out(folder) == ""
    fakes.write_png(folder / "crow" / "2021" / "june" / "9.png", fakes.clean_images(1)[0])
    (folder / "crow" / "notes").mkdir()
    (folder / "owl" / "9.tif").touch()
    (folder / "owl" / ".DS_Store").touch()
    (folder / "list.csv").touch()
    assert other_files(folder) == ["crow/2021/", "list.csv", "owl/9.tif"]
    assert left_out(folder) == (
        f"left out 2 files that are not {READ}, such as owl/9.tif; convert the images of these, and 1 folder "
        "in class folders, such as crow/2021/: images are read only from class folders."
    )
    assert len(read_clean(folder)) == 6


def test_an_image_beside_the_class_folders_is_not_called_a_file_of_another_format(tmp_path: Path) -> None:
    folder = classes(tmp_path / "birds")
    fakes.write_png(folder / "9.png", fakes.clean_images(1)[0])
    alone = "images are read only from class folders."
    assert left_out(folder) == f"left out 1 image beside the class folders, such as 9.png: {alone}"
    (folder / "list.csv").touch()
    fakes.write_png(folder / "crow" / "2021" / "9.png", fakes.clean_images(1)[0])
    assert left_out(folder) == (
        f"left out 1 file that is not {READ}, such as list.csv, and 1 image beside the class folders, such "
        f"as 9.png, and 1 folder in class folders, such as crow/2021/: {alone}"
    )
    assert len(read_clean(folder)) == 6


@pytest.mark.parametrize("suffix", ["tif", "gif", "HEIC"])
def test_images_of_other_formats_are_counted(tmp_path: Path, suffix: str) -> None:
    folder = classes(tmp_path / "birds")
    for i in range(20):
        (folder / "crow" / f"x{i:02}.{suffix}").touch()
    kinds = ".jpeg, .jpg, .png, .bmp, .webp or .ppm"
    assert (
        left_out(folder)
        == f"left out 20 files that are not {kinds}, such as crow/x00.{suffix}; convert them."
    )
    for file in (folder / "crow").glob("*.png"):
        file.unlink()
    said = (
        f"crow holds no image that is read: 20 files that are not {kinds}, such as x00.{suffix}; convert them"
    )
    for read in (read_clean, lambda place: dataset(str(place))):
        with pytest.raises(UserError, match=re.escape(said)):
            read(folder)
    (tmp_path / "more").mkdir()
    folder.rename(tmp_path / "more" / "test")
    with pytest.raises(UserError, match=re.escape(said)):
        dataset(str(tmp_path / "more"))


def test_those_of_a_c_folder_and_of_domains_are_named_too(tmp_path: Path) -> None:
    folder = c_folder(tmp_path / "birds-C")
    assert not [text for text in sentences(folder) if "left out" in text]
    (folder / "test" / "owl" / "9.tif").touch()
    assert [text for text in sentences(folder) if "left out" in text and "owl/9.tif" in text]
    assert [text for text in warnings_of(folder) if "left out" in text and "owl/9.tif" in text]
    for domain in ("photo", "sketch"):
        classes(tmp_path / "Birds" / domain, count=10)
    (tmp_path / "Birds" / "sketch" / "owl" / "9.tif").touch()
    assert [text for text in sentences(tmp_path / "Birds" / "photo") if "owl/9.tif" in text]
    assert [text for text in warnings_of(tmp_path / "Birds" / "photo") if "owl/9.tif" in text]


@pytest.mark.parametrize("place", ["crow/9.png", "jay"])
def test_a_link_to_nothing_is_refused(tmp_path: Path, place: str) -> None:
    folder = classes(tmp_path / "birds")
    (folder / place).symlink_to(tmp_path / "gone")
    with pytest.raises(UserError, match=rf"{place} is a link to {tmp_path}/gone, which is not there; put it"):
        read_clean(folder)


def test_a_link_to_an_image_is_read(tmp_path: Path) -> None:
    folder = classes(tmp_path / "birds")
    (folder / "crow" / "9.png").symlink_to(folder / "crow" / "0.png")
    assert len(read_clean(folder)) == 7


def test_arrays_beside_folders_of_images_are_named(tmp_path: Path) -> None:
    folder = c_folder(tmp_path / "birds-C")
    np.save(folder / "snow.npy", np.zeros(3))
    expected = f"{folder}/snow.npy is not read: {folder} has folders of images."
    assert expected in sentences(folder)
    assert expected in warnings_of(folder)


@pytest.mark.parametrize("place", ["train", "fog/1"])
def test_other_class_folders_are_named_when_a_sweep_starts(tmp_path: Path, place: str) -> None:
    folder = c_folder(tmp_path / "birds-C")
    classes(folder / "train", seed=7)
    (folder / place / "owl").rename(folder / place / "owls")
    with pytest.raises(
        UserError, match=rf"{place} must have the same class folders; they differ in owl, owls"
    ):
        sentences(folder)
    (folder / place / "owls").rename(folder / place / "owl")
    classes(folder / place, ("wren",))
    sentences(folder)  # refused where it is read, which a sweep need not do


# ---- orientation


def test_photographs_that_lie_on_a_side_are_counted(tmp_path: Path) -> None:
    folder = classes(tmp_path / "birds")
    files = sorted(folder.rglob("*.png"))
    assert turned(files) == ""
    for orientation, file in ((1, files[0]), (6, files[1])):
        note = Image.Exif()
        note[0x0112] = orientation
        Image.open(file).save(file, exif=note)
    text = turned(files)
    assert text.startswith(f"1 of 6 images that were looked at, such as {files[1]}, has an orientation")


def test_a_file_that_is_no_image_is_left_to_the_reader(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(b"no image")
    assert turned([tmp_path / "1.png"]) == ""


# ---- sets of other sizes


def test_a_severity_that_lacks_images_is_named(tmp_path: Path) -> None:
    folder = c_folder(tmp_path / "birds-C")
    assert not [text for text in sentences(folder) if "another number" in text]
    (folder / "fog" / "3" / "owl" / "1.png").unlink()
    expected = (
        "1 of 5 corrupted sets has another number of images than the clean test set, first fog at severity "
        "3: 5 and not 6 (owl/1 is not there)."
    )
    assert expected in sentences(folder)
    assert f"birds-c-local: {expected}" in warnings_of(folder)


def test_folders_beside_a_domain_that_are_none_are_named(tmp_path: Path) -> None:
    root = tmp_path / "Birds"
    for domain in ("photo", "sketch", "paint", "clip", "fish"):
        classes(root / domain, ("crow", "jay", "owl"), count=10)
    (root / "paint" / "owl").rename(root / "paint" / "owls")
    for file in (root / "clip" / "crow").iterdir():
        file.unlink()
    for name in ("crow", "jay"):
        (root / "fish" / name).rename(root / "fish" / f"not-{name}")
    classes(root / "train", ("crow", "jay", "owl"))
    found = [text for text in sentences(root / "photo") if "is no domain here" in text]
    assert found == [
        f"{root}/clip is no domain here, as {root}/clip/crow holds no images.",
        f"{root}/paint is no domain here, as its classes are others: it lacks owl and has owls.",
    ]


# ---- classes that are called like corruptions


def test_a_class_called_like_a_corruption_is_a_class(tmp_path: Path) -> None:
    folder = c_folder(tmp_path / "weather-C", ("frost", "rain", "snow"))
    data = dataset(str(folder))
    assert isinstance(data, OwnImageFolders)
    assert data.corruptions == ("fog",)
    assert data.classes == ("frost", "rain", "snow")
    assert not [text for text in warnings_of(folder) if "severity" in text]


def test_domains_of_such_classes_are_domains(tmp_path: Path) -> None:
    for domain in ("photo", "sketch"):
        classes(tmp_path / "Weather" / domain, ("frost", "rain"), count=10)
    assert isinstance(dataset(str(tmp_path / "Weather" / "photo")), DomainFolders)
    assert is_plain(classes(tmp_path / "alone", ("frost", "rain")))


def test_clean_images_of_such_classes_are_no_c_folder(tmp_path: Path) -> None:
    classes(tmp_path / "weather" / "test", ("frost", "rain"))
    with pytest.raises(UserError, match="has clean images and no corrupted ones"):
        dataset(str(tmp_path / "weather"))


def test_corruptions_of_other_names_are_named_and_not_taken_for_none(tmp_path: Path) -> None:
    classes(tmp_path / "birds-C" / "test")
    classes(tmp_path / "birds-C" / "haze" / "5")
    said = "birds-C has no corruption with a known name; .* it holds haze, test"
    with pytest.raises(UserError, match=said):
        dataset(str(tmp_path / "birds-C"))
    classes(tmp_path / "digits" / "test", ("1", "2"))
    with pytest.raises(UserError, match="has clean images and no corrupted ones"):
        dataset(str(tmp_path / "digits"))


def test_corruptions_without_severities_say_what_is_missing(tmp_path: Path) -> None:
    for part in ("test", "fog", "snow"):
        classes(tmp_path / "birds-C" / part)
    with pytest.raises(UserError, match=r"snow has no folder of a severity; expected .*/snow/1/<class>/"):
        dataset(str(tmp_path / "birds-C"))
