"""Labels and classes that are wrong in a user's data: refused, or named in a warning."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.cases import each
from tests.unit import data_fakes as fakes
from tests.unit.sweep.test_shifts import asked
from ttabench.data import catalog
from ttabench.data.own.generate_corrupted import generate
from ttabench.data.own.overlap import shared_images
from ttabench.data.verify.audit_dataset import verify
from ttabench.errors import UserError
from ttabench.sweep.resolve import resolve

SMALL = {"corruptions": ("brightness",), "workers": 0}


def npz(path: Path, labels: object, *, seed: int = 0) -> Path:
    values = np.asarray(labels)
    np.savez(path, images=fakes.clean_images(len(values), seed=seed), labels=values)
    return path


def class_images(folder: Path, **counts: int) -> Path:
    """Class folders with this many 32-pixel images each."""
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            fakes.write_png(folder / name / f"{i}.png", fakes.clean_images(1, seed=i)[0])
    return folder


@pytest.mark.parametrize("label", [2**62, 2**63, 100_000])
def test_a_huge_label_is_refused(tmp_path: Path, label: int) -> None:
    path = npz(tmp_path / "x.npz", np.array([0, label], np.uint64))
    with pytest.raises(UserError, match=rf"the largest label is {label}; .*100,000 at most"):
        generate(path, root=tmp_path / "root", **SMALL)
    assert not (tmp_path / "root").exists()


def test_the_largest_label_that_is_allowed(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="100,000 outputs"):
        generate(npz(tmp_path / "x.npz", [0, 99_999]), root=tmp_path, **SMALL)
    assert catalog.dataset("x-c-local", tmp_path).num_classes == 100_000


def test_a_gap_in_the_labels_is_told(tmp_path: Path) -> None:
    path = npz(tmp_path / "x.npz", [0, 2, 5, 5])
    with pytest.warns(UserWarning, match="the test set has no image of classes 1, 3 and 4; .* 6 outputs"):
        generate(path, root=tmp_path, **SMALL)
    levels = {finding.level: finding.text for finding in verify("x-c-local", tmp_path)}
    assert "no image of classes 1, 3 and 4" in levels["warning"]
    assert "error" not in levels


def test_a_single_class_is_told(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="all images are of one class, so every prediction is right"):
        generate(npz(tmp_path / "x.npz", [0, 0, 0]), root=tmp_path, **SMALL)
    levels = {finding.level: finding.text for finding in verify("x-c-local", tmp_path)}
    assert "all images are of one class" in levels["warning"]
    assert "3 test images, 1 corruption." in levels["ok"]


def test_complete_labels_warn_of_nothing(tmp_path: Path) -> None:
    path = npz(tmp_path / "x.npz", [1, 0, 2, 1])
    with warnings.catch_warnings(action="error"):
        generate(path, train=npz(tmp_path / "t.npz", [0, 1, 2], seed=1), root=tmp_path, **SMALL)
    assert [finding.level for finding in verify("x-c-local", tmp_path)] == ["ok"]


def test_test_classes_that_the_training_set_lacks_are_refused(tmp_path: Path) -> None:
    test, train = npz(tmp_path / "x.npz", [0, 1, 2, 3]), npz(tmp_path / "t.npz", [0, 1, 0, 1])
    with pytest.raises(UserError, match="the test set has classes 2 and 3, the training set does not"):
        generate(test, train=train, root=tmp_path / "root", **SMALL)
    assert not (tmp_path / "root").exists()


def test_training_classes_that_the_test_set_lacks_are_told(tmp_path: Path) -> None:
    test, train = npz(tmp_path / "x.npz", [0, 1]), npz(tmp_path / "t.npz", [0, 1, 2], seed=1)
    with pytest.warns(UserWarning, match="the test set has no image of class 2; a classifier gets 3 outputs"):
        generate(test, train=train, root=tmp_path, **SMALL)


def test_verify_compares_the_classes_of_both_clean_sets(tmp_path: Path) -> None:
    folder = tmp_path / "Mine-C"
    folder.mkdir()
    npz(folder / "test.npz", [0, 1, 2, 3])
    npz(folder / "train.npz", [0, 1, 2, 2])
    np.save(folder / "fog-1.npy", fakes.clean_images(4))
    errors = [finding.text for finding in verify(str(folder)) if finding.level == "error"]
    assert errors == [
        "mine-c-local: the test set has class 3, the training set does not; both need the same class indices."
    ]


def test_class_folders_of_another_name_are_refused(tmp_path: Path) -> None:
    test = class_images(tmp_path / "birds", crow=1, owl=1)
    train = class_images(tmp_path / "more", crow=1, jay=1, owl=1)  # owl is 1 there and 2 here
    with pytest.raises(UserError, match="must have the same class folders; they differ in jay"):
        generate(test, train=train, root=tmp_path / "root", **SMALL)


def test_an_empty_class_folder_is_named(tmp_path: Path) -> None:
    birds = class_images(tmp_path / "birds", crow=2, empty=0, owl=2)
    with pytest.raises(UserError, match=r"birds/empty holds no images; add some, or delete it"):
        generate(birds, root=tmp_path / "root", **SMALL)
    (birds / "empty").rmdir()
    generate(birds, root=tmp_path, **SMALL)
    assert catalog.dataset("birds-c-local", tmp_path).test().labels.tolist() == [0, 0, 1, 1]


def test_an_empty_class_folder_of_an_existing_set_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "Birds-C"
    class_images(folder / "test", crow=1, empty=0, owl=1)
    class_images(folder / "fog" / "1", crow=1, empty=0, owl=1)
    with pytest.raises(UserError, match=r"test/empty holds no images"):
        catalog.dataset(str(folder))


STACKED = {
    "float": (np.zeros(20), "labels are float64"),
    "objects": (np.array([{}] * 20), "holds Python objects, which are never read"),
    "huge": (np.full(20, 2**62), "the largest label is 4611686018427387904"),
    "negative": (np.full(20, -1), "the smallest label is -1"),
    "more classes": (np.full(20, 7), "has the label 7; the clean sets have 4 classes"),
    "no five parts": (
        np.zeros(18, int),
        "has 18 labels[;,] .*expected (five equal parts|one label per image)",
    ),
    "a number": (np.array(3), r"labels are int64 of shape \(\)"),
}


@each("kind", STACKED)
def test_wrong_labels_of_all_severities_are_an_error_of_the_audit_and_of_opening(
    tmp_path: Path, kind: str
) -> None:
    labels, says = STACKED[kind]
    folder = tmp_path / "Mine-C"
    folder.mkdir()
    npz(folder / "test.npz", [0, 1, 2, 3])
    np.save(folder / "fog.npy", fakes.clean_images(20))
    np.save(folder / "labels.npy", labels)
    assert re.search(says, " | ".join(f.text for f in verify(str(folder)) if f.level == "error"))
    with pytest.raises(UserError, match=says):
        catalog.dataset(str(folder))


def test_the_file_of_too_few_labels_is_named(tmp_path: Path) -> None:
    npz(tmp_path / "test.npz", [0, 1, 2, 3])
    np.save(tmp_path / "fog.npy", fakes.clean_images(20))
    np.save(tmp_path / "labels.npy", np.arange(15) % 4)
    with pytest.raises(UserError, match=r"labels\.npy has 15 labels, and .*fog\.npy has 20 images"):
        catalog.dataset(str(tmp_path))


def test_a_folder_without_one_known_corruption_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "Mine-C"
    folder.mkdir()
    npz(folder / "test.npz", [0, 1])
    np.save(folder / "gausian_noise-1.npy", fakes.clean_images(2))
    findings = verify(str(folder))
    assert [finding.level for finding in findings] == ["error"]
    assert "has no corruption with a known name" in findings[0].text
    assert "gausian_noise-1.npy" in findings[0].text
    for corruptions in ("all", "fog", "mixed"):
        with pytest.raises(UserError) as problem:
            resolve(asked(datasets=str(folder), corruptions=corruptions))
        assert str(problem.value) == findings[0].text
    with pytest.warns(UserWarning, match="is not read: unknown corruption 'gausian_noise'"):
        resolve(asked(datasets=str(folder), stream="ccc"))  # which corrupts the clean images


# ---- one index, two classes


def test_numbered_folders_beside_an_array_are_refused(tmp_path: Path) -> None:
    folders = class_images(tmp_path / "numbers", **{str(c): 1 for c in (0, 1, 2, 10, 11)})
    array = npz(tmp_path / "t.npz", [0, 1, 2, 3, 4], seed=1)
    says = r"class 2 has two meanings: in \S*numbers it is folder 10, .* in \S*t.npz it seems .* front, 02"
    for test, train in ((folders, array), (array, folders)):
        with pytest.raises(UserError, match=says):
            generate(test, train=train, root=tmp_path / "root", **SMALL)
    assert not (tmp_path / "root").exists()
    padded = class_images(tmp_path / "padded", **{f"{c:02}": 1 for c in (0, 1, 2, 10, 11)})
    generate(padded, train=array, root=tmp_path / "root", **SMALL)


def test_a_folder_of_numbered_classes_is_told_when_a_sweep_starts(tmp_path: Path) -> None:
    numbers = {str(c): 1 for c in (0, 1, 2, 10, 11)}
    for part in ("test", "fog/5"):
        class_images(tmp_path / "Numbers-C" / part, **numbers)
    with pytest.warns(
        UserWarning, match="numbers-c-local: class folders are sorted by name.*class 2 is folder 10"
    ):
        resolve(asked(datasets=str(tmp_path / "Numbers-C"), corruptions="fog"))
    assert any("class 2 is folder 10" in each.text for each in verify(str(tmp_path / "Numbers-C")))


# ---- labels of 8 bits


def test_8_bits_beside_more_classes_are_refused(tmp_path: Path) -> None:
    more, wrapped = (
        npz(tmp_path / "x.npz", np.arange(300)),
        npz(tmp_path / "t.npz", np.arange(300) % 256, seed=1),
    )
    with np.load(wrapped) as stored:
        np.savez(wrapped, images=stored["images"], labels=stored["labels"].astype(np.uint8))
    for test, train in ((more, wrapped), (wrapped, more)):
        says = (
            r"t.npz: the labels in t.npz are uint8, which has 256 values, but there are 300 classes: .* int64"
        )
        with pytest.raises(UserError, match=says):
            generate(test, train=train, root=tmp_path / "root", **SMALL)
    with pytest.warns(UserWarning, match="t.npz are uint8 and use all of its 256 values; if there are more"):
        generate(wrapped, root=tmp_path / "root", **SMALL)


def test_labels_of_8_bits_of_few_classes_are_fine(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="error"):
        generate(npz(tmp_path / "x.npz", np.arange(8).astype(np.uint8)), root=tmp_path, **SMALL)


def test_stored_labels_of_8_bits_are_told_by_verify_and_when_a_sweep_starts(tmp_path: Path) -> None:
    labels = np.arange(260) % 256
    npz(tmp_path / "test.npz", labels)
    np.save(tmp_path / "labels.npy", np.tile(labels, 5).astype(np.uint8))
    np.save(tmp_path / "fog.npy", fakes.clean_images(5 * 260))
    says = "labels in labels.npy are uint8 and use all of its 256 values"
    assert any(says in each.text for each in verify(str(tmp_path)))
    with pytest.warns(UserWarning, match=says):
        resolve(asked(datasets=str(tmp_path), corruptions="fog"))


# ---- test images that are training images


def test_the_test_set_as_training_set_is_refused_and_a_part_of_it_is_counted(tmp_path: Path) -> None:
    test = npz(tmp_path / "x.npz", [0, 1, 2, 0])
    with pytest.raises(
        UserError, match=r"all 4 images of \S*x.npz are in \S*x.npz too, .*give another --train"
    ):
        generate(test, train=test, root=tmp_path / "root", **SMALL)
    assert not (tmp_path / "root").exists()
    images = np.concatenate([fakes.clean_images(9, seed=1), fakes.clean_images(4)[1:]])  # three of the four
    np.savez(tmp_path / "t.npz", images=images, labels=np.arange(12) % 3)
    with pytest.warns(UserWarning, match="3 of 4 test images are training images too"):
        folder = generate(test, train=tmp_path / "t.npz", root=tmp_path, **SMALL)
    assert any("3 of 4 test images" in each.text for each in verify(folder.name, tmp_path))
    with pytest.warns(UserWarning, match="3 of 4 test images are training images too"):
        resolve(asked(datasets=str(folder), corruptions="brightness"))


@pytest.mark.parametrize("layout", ["arrays", "folders"])
def test_an_existing_folder_whose_training_set_is_the_test_set(tmp_path: Path, layout: str) -> None:
    folder = tmp_path / "Mine-C"
    if layout == "arrays":
        folder.mkdir()
        for name in ("test.npz", "train.npz"):
            npz(folder / name, [0, 1, 2])
        np.save(folder / "fog-5.npy", fakes.clean_images(3, seed=1))
    else:
        for part in ("test", "train", "fog/5"):
            class_images(folder / part, crow=2, owl=1)
    says = "all of 3 test images are training images too: accuracy says nothing about new images"
    assert [each.text for each in verify(str(folder)) if each.level == "error"] == [f"mine-c-local: {says}."]
    with pytest.warns(UserWarning, match=says):
        resolve(asked(datasets=str(folder), corruptions="fog"))


def test_images_that_share_a_row_are_not_the_same() -> None:
    test = fakes.clean_images(3)
    other = test.copy()
    other[:, 0] ^= 1
    assert shared_images(test, other) == 0
    assert shared_images(test, np.concatenate([other, test[:2]])) == 2
