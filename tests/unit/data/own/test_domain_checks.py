"""Which folders beside a source domain are its test sets, and what is said of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.unit import data_fakes as fakes
from tests.unit.conftest import Run
from ttabench.data.catalog import dataset
from ttabench.data.own.domain_folders import DomainFolders
from ttabench.data.own.doubts import doubts
from ttabench.data.own.plain_images import is_plain
from ttabench.data.verify.audit_dataset import verify
from ttabench.errors import UserError

EACH = 12  # images per class and folder
CALLED_LIKE_TRAINING = ("photos-train", "photos_training", "photos-Source")


def class_folders(folder: Path, seed: int = 0) -> Path:
    for c, name in enumerate(("cat", "dog")):
        for k, image in enumerate(fakes.clean_images(EACH, seed=seed + c)):
            fakes.write_png(folder / name / f"{k:02}.png", image)
    return folder


@pytest.fixture
def photos(tmp_path: Path, own_cache: Path) -> Path:
    return class_folders(tmp_path / "own" / "photos")


@pytest.mark.parametrize("name", CALLED_LIKE_TRAINING)
def test_training_images_beside_a_folder_are_no_test_set(photos: Path, name: str) -> None:
    class_folders(photos.parent / name, seed=10)
    with pytest.raises(UserError, match="has clean images and no corrupted ones"):
        dataset(str(photos))
    assert is_plain(photos)


def test_they_are_no_test_set_beside_a_domain_either(photos: Path) -> None:
    class_folders(photos.parent / "photos-train", seed=10)
    class_folders(photos.parent / "sketch", seed=20)
    data = dataset(str(photos))
    assert isinstance(data, DomainFolders)
    assert data.corruptions == ("sketch",)
    assert set(data.pieces()) == {"photos", "sketch"}
    said = f"{photos}-train is no domain here, as it is called like the training images of photos."
    assert said in list(doubts(data, data.corruptions))


def test_a_copy_of_the_source_is_named(photos: Path) -> None:
    class_folders(photos.parent / "sketch", seed=20)
    shutil.copytree(photos, photos.parent / "backup")
    said = "backup: all of 24 test images are training images too: accuracy says nothing about new images."
    data = dataset(str(photos))
    assert isinstance(data, DomainFolders)
    assert [text for text in doubts(data, data.corruptions) if "training images" in text] == [said]
    warned = [finding.text for finding in verify(str(photos)) if finding.level == "warning"]
    assert f"{data.name}: {said}" in warned


def test_verify_and_sweep_say_which_folders_are_which(
    ttabench: Run, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class_folders(photos.parent / "sketch", seed=20)
    said = (
        "photos is taken as a source domain; its test sets are the folders beside it: sketch. For "
        f"corruptions of photos: ttabench data generate {photos}"
    )
    verified = ttabench("data", "verify", photos).out
    assert said in verified
    assert " test images, 1 other test set.\n" in verified  # domains are no corruptions and have no severity
    monkeypatch.chdir(tmp_path)
    what = ("--datasets", photos, "--archs", "resnet18_w8", "--methods", "tent", "--out", tmp_path / "out")
    done = ttabench("sweep", *what, "--dry-run")
    assert done.code == 0, done.err
    assert said in done.out + done.err
