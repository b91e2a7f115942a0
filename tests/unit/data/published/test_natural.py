"""Natural shifts: their images, the classes they have, and the audit."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.cases import each
from tests.unit import data_fakes as fakes
from tests.unit.web import Mirror
from ttabench.corruptions.corruption_names import NATURAL, NO_SEVERITY
from ttabench.data import catalog
from ttabench.data.fetch.fetch import fetch_published
from ttabench.data.published.description import Archive
from ttabench.data.published.known_datasets import PUBLISHED
from ttabench.data.published.natural_shifts import Cifar101, NaturalImageNet
from ttabench.data.verify.audit_dataset import verify_published
from ttabench.data.verify.findings import is_usable
from ttabench.errors import UserError

SUBSET = (fakes.WNIDS[2], fakes.WNIDS[0])  # in another order than the classes


@pytest.fixture
def cifar(tmp_path: Path) -> Path:
    return fakes.make_cifar10_1(tmp_path)


@pytest.fixture
def rendition(tmp_path: Path) -> Path:
    return fakes.make_natural(tmp_path, fakes.FAKE_IMAGENET_R, SUBSET)


def test_cifar10_1_has_its_own_images_and_the_clean_sets_of_cifar10(cifar: Path) -> None:
    data = Cifar101(fakes.FAKE_CIFAR10_1, cifar)
    shifted = data.corrupted(NATURAL, NO_SEVERITY)
    assert (shifted.images == fakes.clean_images(30, seed=7)).all()
    assert (shifted.labels == fakes.labels_for(30, 10, seed=8)).all()
    assert shifted.labels.dtype == np.int64
    assert (data.test().images == fakes.clean_images(20)).all()
    assert data.scored_classes == ()
    assert data.severities(NATURAL) == (NO_SEVERITY,)


def test_a_natural_shift_has_no_severities_and_no_corruptions(cifar: Path) -> None:
    data = Cifar101(fakes.FAKE_CIFAR10_1, cifar)
    with pytest.raises(UserError, match="is a natural shift and has no severities; severity 5 was asked"):
        data.corrupted(NATURAL, 5)
    with pytest.raises(UserError, match=r"unknown corruption of cifar10\.1 'fog'"):
        data.corrupted("fog", 1)


def test_a_subset_of_the_classes_keeps_their_indices(rendition: Path) -> None:
    data = NaturalImageNet(fakes.FAKE_IMAGENET_R, rendition)
    shifted = data.corrupted(NATURAL, NO_SEVERITY)
    assert shifted.labels.tolist() == [0, 0, 2, 2]  # class 1 is not there
    assert data.scored_classes == (0, 2)
    assert shifted.images.shape == (4, 224, 224, 3)
    assert [round(red / 50) for red in shifted.images[:, 112, 112, 0].tolist()] == [1, 1, 0, 0]


def test_images_of_224_pixels_are_not_cropped_once_more(rendition: Path) -> None:
    pixels = np.arange(224, dtype=np.uint8)[:, None, None].repeat(224, 1).repeat(3, 2)
    for file in (rendition / "imagenet-r").rglob("*.jpg"):
        file.unlink()
        fakes.write_png(file.with_suffix(".png"), pixels)
    shifted = NaturalImageNet(fakes.FAKE_IMAGENET_R, rendition).corrupted(NATURAL, NO_SEVERITY)
    assert np.array_equal(shifted.images[0], pixels)


def test_folders_named_by_class_index_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    facts = replace(fakes.FAKE_IMAGENET_V2, num_classes=3)
    data = NaturalImageNet(facts, fakes.make_natural(tmp_path, facts, ("2", "0", "1")))
    shifted = data.corrupted(NATURAL, NO_SEVERITY)
    assert shifted.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert [round(red / 50) for red in shifted.images[:, 112, 112, 0].tolist()] == [1, 1, 2, 2, 0, 0]
    assert data.scored_classes == ()


def test_an_unknown_class_is_named(tmp_path: Path) -> None:
    fakes.make_natural(tmp_path, fakes.FAKE_IMAGENET_R, (SUBSET[0], "n99999999"))
    with pytest.raises(UserError, match="n99999999 is not a class of"):
        NaturalImageNet(fakes.FAKE_IMAGENET_R, tmp_path).corrupted(NATURAL, NO_SEVERITY)


@each("name", [name for name, facts in PUBLISHED.items() if facts.shifted])
def test_missing_data_says_how_to_get_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{name} is not here: .*`ttabench data fetch {name}`"):
        catalog.dataset(name, tmp_path)


def test_fingerprints_contain_the_new_images(cifar: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    before = Cifar101(fakes.FAKE_CIFAR10_1, cifar).fingerprint()
    np.save(cifar / "CIFAR-10.1" / "cifar10.1_v6_data.npy", fakes.clean_images(30, seed=9))
    assert Cifar101(fakes.FAKE_CIFAR10_1, cifar).fingerprint() != before
    root = fakes.make_natural(tmp_path_factory.mktemp("r"), fakes.FAKE_IMAGENET_R, SUBSET)
    before = NaturalImageNet(fakes.FAKE_IMAGENET_R, root).fingerprint()
    fakes.write_image(root / "imagenet-r" / SUBSET[0] / "2.jpg", np.zeros((240, 240, 3), np.uint8))
    assert NaturalImageNet(fakes.FAKE_IMAGENET_R, root).fingerprint() != before


# ---- the audit


def test_sound_shifts_are_ok(cifar: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (result,) = verify_published(fakes.FAKE_CIFAR10_1, cifar)
    assert (result.level, result.text) == ("ok", "cifar10.1: 30 images of 10 classes, no severities.")
    root = fakes.make_natural(tmp_path_factory.mktemp("r"), fakes.FAKE_IMAGENET_R, SUBSET)
    (result,) = verify_published(fakes.FAKE_IMAGENET_R, root, deep=True)
    assert (result.level, result.text) == ("ok", "imagenet-r: 4 images of 2 classes, no severities.")


def test_deep_compares_the_published_checksums(cifar: Path) -> None:
    texts = " ".join(f.text for f in verify_published(fakes.FAKE_CIFAR10_1, cifar, deep=True))
    assert "cifar10.1_v6_data.npy is not the published file" in texts
    assert "cifar10.1_v6_labels.npy is not the published file" in texts


CIFAR_DEFECTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "clean batch missing": (lambda r: (r / "cifar-10-batches-py" / "data_batch_2").unlink(), "is missing"),
    "labels missing": (lambda r: (r / "CIFAR-10.1" / "cifar10.1_v6_labels.npy").unlink(), "is missing"),
    "too few": (
        lambda r: np.save(r / "CIFAR-10.1" / "cifar10.1_v6_data.npy", fakes.clean_images(29)),
        r"\(29, 32, 32, 3\); expected",
    ),
    "unbalanced": (
        lambda r: np.save(r / "CIFAR-10.1" / "cifar10.1_v6_labels.npy", np.zeros(30, np.int32)),
        "0 to 30 images per class",
    ),
    "an eleventh class": (
        lambda r: np.save(r / "CIFAR-10.1" / "cifar10.1_v6_labels.npy", np.full(30, 10)),
        "holds wrong labels",
    ),
}


@pytest.mark.parametrize("defect", CIFAR_DEFECTS)
def test_a_defect_of_cifar10_1_is_found(cifar: Path, defect: str) -> None:
    spoil, says = CIFAR_DEFECTS[defect]
    spoil(cifar)
    findings = verify_published(fakes.FAKE_CIFAR10_1, cifar)
    assert not is_usable(findings)
    assert re.search(says, " | ".join(finding.text for finding in findings))


IMAGENET_DEFECTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "an image missing": (lambda r: (r / "imagenet-r" / SUBSET[0] / "1.jpg").unlink(), "holds 3 images"),
    "a class missing": (
        lambda r: shutil.rmtree(r / "imagenet-r" / SUBSET[0]),
        "has 1 class folders; expected 2",
    ),
    "damaged": (lambda r: (r / "imagenet-r" / SUBSET[0] / "1.jpg").write_text("<html>"), "cannot be decoded"),
    "clean set missing": (lambda r: shutil.rmtree(r / "imagenet"), "val is missing"),
}


@pytest.mark.parametrize("defect", IMAGENET_DEFECTS)
def test_a_defect_of_an_imagenet_shift_is_found(rendition: Path, defect: str) -> None:
    spoil, says = IMAGENET_DEFECTS[defect]
    spoil(rendition)
    findings = verify_published(fakes.FAKE_IMAGENET_R, rendition)
    assert not is_usable(findings)
    assert re.search(says, " | ".join(finding.text for finding in findings))


# ---- fetching


def test_files_that_are_no_archives_go_to_their_folder(mirror: Mirror, tmp_path: Path) -> None:
    made = fakes.make_cifar10_1(tmp_path / "made")
    mirror.files["cifar-10-python.tar.gz"] = fakes.tar_of(made / "cifar-10-batches-py", mode="w:gz")
    for name in ("cifar10.1_v6_data.npy", "cifar10.1_v6_labels.npy"):
        mirror.files[name] = (made / "CIFAR-10.1" / name).read_bytes()
    facts = replace(
        fakes.FAKE_CIFAR10_1,
        archives=tuple(replace(a, size=0, md5="", sha256="") for a in fakes.FAKE_CIFAR10_1.archives),
    )
    fetch_published(facts, tmp_path / "root", mirror=mirror.url)
    assert len(Cifar101(facts, tmp_path / "root").corrupted(NATURAL, NO_SEVERITY)) == 30


def test_the_folder_inside_an_archive_may_have_another_name(mirror: Mirror, tmp_path: Path) -> None:
    fakes.write_image(tmp_path / "sketch" / "n1" / "a.JPEG", np.zeros((8, 8, 3), np.uint8))
    mirror.files["s.zip"] = fakes.zip_of(tmp_path / "sketch")
    archive = Archive(file="s.zip", urls=(), folder="ImageNet-Sketch", inside="sketch")
    fetch_published(replace(fakes.FAKE_IMAGENET, archives=(archive,)), tmp_path / "root", mirror=mirror.url)
    assert (tmp_path / "root" / "ImageNet-Sketch" / "n1" / "a.JPEG").is_file()
