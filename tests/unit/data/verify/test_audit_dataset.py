"""The audit finds what is wrong with a dataset on disk, and nothing with a sound one."""

from __future__ import annotations

import pickle
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.unit import data_fakes as fakes
from ttabench.corruptions.corruption_names import ALL_CORRUPTIONS, CORRUPTIONS
from ttabench.corruptions.engine import corrupt
from ttabench.data.own.doubts import doubts
from ttabench.data.own.generate_corrupted import generate
from ttabench.data.own.open_own import open_own
from ttabench.data.published.cifar_facts import CIFAR10_C, CIFAR10_C_BAR
from ttabench.data.verify.audit_dataset import verify, verify_published
from ttabench.data.verify.cifar_audit import GROWING, mismatches
from ttabench.data.verify.cifar_checksums import MD5
from ttabench.data.verify.findings import Finding, is_usable
from ttabench.errors import UserError

FACTS = replace(CIFAR10_C, test=40, train=50)
C = "CIFAR-10-C"


@pytest.fixture(scope="module")
def sound_cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All 19 corruptions of 40 images, really corrupted."""
    root = fakes.make_cifar(tmp_path_factory.mktemp("sound"), FACTS, corruptions=())
    images, labels = fakes.natural_images(FACTS.test), fakes.labels_for(FACTS.test, 10)
    fakes.write_batch(root / FACTS.clean_folder / "test_batch", images, labels)
    for corruption in ALL_CORRUPTIONS:
        parts = [corrupt(images, corruption, severity, seed=0) for severity in range(1, 6)]
        np.save(root / C / f"{corruption}.npy", np.concatenate(parts))
    return root


@pytest.fixture
def cifar(sound_cifar: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound_cifar, tmp_path / "root"))


def errors(findings: list[Finding]) -> list[str]:
    return [finding.text for finding in findings if finding.level == "error"]


def test_nothing_is_wrong_with_a_sound_set(cifar: Path) -> None:
    steps: list[str] = []
    result = verify_published(FACTS, cifar, on_progress=lambda what, done, total: steps.append(what))
    assert is_usable(result)
    assert [f.level for f in result] == ["ok"]
    assert result[0].text == (
        "cifar10-c: 10 classes, 50 training and 40 test images, 19 corruptions at 5 severities."
    )
    assert steps == list(ALL_CORRUPTIONS)


def _rewrite(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
    def spoil(root: Path) -> None:
        np.save(root / C / name, change(np.load(root / C / name)))

    return spoil


def _in_severities(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda rows: change(rows.reshape(5, FACTS.test, *rows.shape[1:])).reshape(rows.shape)


def _batch(root: Path, name: str, **content: object) -> None:
    (root / FACTS.clean_folder / name).write_bytes(pickle.dumps(content, 2))


DEFECTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "labels permuted": (_rewrite("labels.npy", lambda x: np.roll(x, 1)), "the same labels in another order"),
    "labels of one severity": (
        _rewrite("labels.npy", _in_severities(lambda x: np.concatenate([x[:4], (x[4:] + 1) % 10]))),
        "at severity 5, 40 of 40 labels differ from those of the clean test set",
    ),
    "labels once": (_rewrite("labels.npy", lambda x: x[:40]), r"labels\.npy holds uint8 of shape \(40,\)"),
    "labels as float": (_rewrite("labels.npy", lambda x: x.astype(float)), "expected whole numbers"),
    "images permuted": (
        _rewrite("fog.npy", _in_severities(lambda x: np.roll(x, 1, axis=1))),
        r"fog\.npy: at severity 1, only \d+% of the images are similar to the clean image of their row",
    ),
    "off by one severity": (
        _rewrite("contrast.npy", _in_severities(lambda x: np.roll(x, 1, axis=0))),
        r"contrast\.npy: the severities are not in order",
    ),
    "severities reversed": (
        _rewrite("gaussian_noise.npy", _in_severities(lambda x: x[::-1])),
        "the severities are not in order",
    ),
    "image-major": (
        _rewrite(
            "jpeg_compression.npy", lambda x: x.reshape(5, 40, 32, 32, 3).swapaxes(0, 1).reshape(x.shape)
        ),
        "another order",
    ),
    "another type": (_rewrite("snow.npy", lambda x: x.astype(np.float32)), r"snow\.npy holds float32"),
    "truncated": (_rewrite("snow.npy", lambda x: x[:-1]), r"\(199, 32, 32, 3\)"),
    "one missing": (lambda root: (root / C / "snow.npy").unlink(), "has no snow; fetch it again"),
    "web page": (lambda root: (root / C / "snow.npy").write_text("<html>"), "not an array file"),
    "hostile": (
        lambda root: (root / FACTS.clean_folder / "test_batch").write_bytes(b"cos\nsystem\n(S'true'\ntR."),
        "was refused",
    ),
    "batch missing": (
        lambda root: (root / FACTS.clean_folder / "data_batch_3").unlink(),
        "data_batch_3 is missing",
    ),
    "batch of another size": (
        lambda root: _batch(root, "data_batch_1", data=np.zeros((5, 3072), np.uint8), labels=[1] * 5),
        "45 training images; expected 50",
    ),
    "unbalanced": (
        lambda root: _batch(root, "data_batch_1", data=np.zeros((10, 3072), np.uint8), labels=[1] * 10),
        r"\d+ to \d+ training images per class; expected 5",
    ),
    "nothing": (lambda root: shutil.rmtree(root / C), "is not here; run `ttabench data fetch cifar10-c`"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found_and_named(cifar: Path, defect: str) -> None:
    spoil, says = DEFECTS[defect]
    spoil(cifar)
    result = verify_published(FACTS, cifar)
    assert not is_usable(result)
    assert re.search(says, " | ".join(errors(result)))


def test_missing_extra_corruptions_are_only_a_warning(cifar: Path) -> None:
    (cifar / C / "spatter.npy").unlink()
    result = verify_published(FACTS, cifar)
    assert is_usable(result)
    assert any(f.level == "warning" and "spatter" in f.text for f in result)


def test_deep_compares_with_the_published_checksums(cifar: Path) -> None:
    result = errors(verify_published(FACTS, cifar, deep=True))
    assert not any(finding.level == "ok" for finding in verify_published(FACTS, cifar, deep=True))
    assert len(result) == 26  # the fakes are none of the 6 batches, 19 arrays and labels that were published
    assert all("published is" in text for text in result)


def test_every_published_cifar_file_has_a_checksum() -> None:
    for folder in ("CIFAR-10-C", "CIFAR-100-C"):
        assert {f"{folder}/{c}.npy" for c in (*ALL_CORRUPTIONS, "labels")} <= set(MD5)
    assert len(set(MD5.values())) == len(MD5) == 48


def test_real_corruptions_grow_as_the_audit_expects() -> None:
    images = fakes.natural_images(60)
    for corruption in ALL_CORRUPTIONS:
        parts = np.stack([corrupt(images, corruption, s, seed=1) for s in range(1, 6)])
        assert list(mismatches(parts, images, growing=corruption in GROWING)) == [], corruption


# ---- folders


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """With two of the corruptions only, which is a defect of its own."""
    return fakes.make_tiny(tmp_path, corruptions=("frost", "fog"))


def test_a_sound_tiny(tmp_path: Path) -> None:
    result = verify_published(fakes.FAKE_TINY, fakes.make_tiny(tmp_path, corruptions=CORRUPTIONS))
    assert is_usable(result)
    assert any("4 classes, 8 clean test images, 15 corruptions" in f.text for f in result)


def test_the_frost_defect_names_the_fixed_record(tiny: Path) -> None:
    for i in range(996):
        (tiny / "Tiny-ImageNet-C" / "frost" / "1" / f"n9{i:07}").mkdir()
    result = errors(verify_published(fakes.FAKE_TINY, tiny))
    assert "has 1,000 classes instead of 4: this is the first release of Tiny ImageNet-C" in result[0]
    assert "https://zenodo.org/records/8206060" in result[0]


def _an_image(root: Path, corruption: str = "fog", severity: int = 2) -> Path:
    return root / "Tiny-ImageNet-C" / corruption / str(severity) / fakes.WNIDS[1] / "test_0.JPEG"


TINY_DEFECTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "image missing": (lambda r: _an_image(r).unlink(), "has 1 to 2 images per class; expected 2"),
    "a sample": (
        lambda r: [next(path.iterdir()).unlink() for path in _an_image(r).parents[1].iterdir()],
        "fog/2 has 1 images per class; expected 2",
    ),
    "image renamed": (
        lambda r: _an_image(r).rename(_an_image(r).with_name("x.JPEG")),
        "2 file names differ from those of the first severity",
    ),
    "image damaged": (lambda r: _an_image(r).write_text("<html>"), r"test_0\.JPEG cannot be decoded"),
    "image of another size": (
        lambda r: fakes.write_image(_an_image(r), np.zeros((32, 32, 3), np.uint8)),
        "32×32 pixels; expected 64×64",
    ),
    "severity missing": (lambda r: shutil.rmtree(_an_image(r).parents[1]), "has no severity 2"),
    "class missing": (lambda r: shutil.rmtree(_an_image(r).parent), "has 3 classes; expected the 4"),
    "class renamed": (
        lambda r: _an_image(r).parent.rename(_an_image(r).parent.with_name("n00000000")),
        "expected the 4 of the clean set",
    ),
    "corruption missing": (
        lambda r: shutil.rmtree(_an_image(r).parents[2]),
        r"has no .*fog, .*; fetch it again",
    ),
    "clean missing": (lambda r: shutil.rmtree(r / "tiny-imagenet-200" / "val"), "val is missing"),
    "clean image missing": (
        lambda r: (r / "tiny-imagenet-200" / "val" / "images" / "val_3.JPEG").unlink(),
        "7 test images; expected 8",
    ),
    "train image missing": (
        lambda r: next((r / "tiny-imagenet-200" / "train" / fakes.WNIDS[0] / "images").iterdir()).unlink(),
        "11 training images; expected 12",
    ),
    "annotation missing": (
        lambda r: (r / "tiny-imagenet-200" / "val" / "val_annotations.txt").write_text("a\tb\n"),
        "does not list",
    ),
}


@pytest.mark.parametrize("defect", TINY_DEFECTS)
def test_a_defect_of_a_folder_is_found(tiny: Path, defect: str) -> None:
    spoil, says = TINY_DEFECTS[defect]
    spoil(tiny)
    result = verify_published(fakes.FAKE_TINY, tiny)
    assert re.search(says, " | ".join(errors(result)))


def test_deep_decodes_every_image(tiny: Path) -> None:
    many = replace(fakes.FAKE_TINY, test=160)
    root = tiny / "many"
    fakes.make_tiny(root, many, corruptions=["fog"])
    last = root / "Tiny-ImageNet-C" / "fog" / "5" / fakes.WNIDS[3] / "test_39.JPEG"
    last.write_text("<html>")
    assert not any("test_39" in text for text in errors(verify_published(many, root)))
    assert any("test_39" in text for text in errors(verify_published(many, root, deep=True)))


def test_imagenet_without_training_images_is_usable(tmp_path: Path) -> None:
    root = fakes.make_imagenet(tmp_path)
    shutil.rmtree(root / "imagenet" / "train")
    result = verify_published(fakes.FAKE_IMAGENET, root)
    assert any(f.level == "warning" and "methods that need source images" in f.text for f in result)
    assert all("has no gaussian_noise" in text for text in errors(result))


# ---- by name


def test_of_bar_the_clean_images_are_audited(cifar: Path) -> None:
    facts = replace(CIFAR10_C_BAR, test=FACTS.test, train=FACTS.train)
    (result,) = verify_published(facts, cifar)
    assert (result.level, "10 corruptions" in result.text) == ("ok", True)
    assert len(errors(verify_published(facts, cifar, deep=True))) == 6  # the fakes have other checksums
    (cifar / FACTS.clean_folder / "data_batch_3").unlink()
    assert not is_usable(verify_published(facts, cifar))


def test_generated_sets_are_audited_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", images=fakes.natural_images(8), labels=[0, 1] * 4)
    folder = generate(tmp_path / "x.npz", root=tmp_path, corruptions=["fog"], workers=0)
    assert [f.level for f in verify("x-c-local", tmp_path)] == ["ok"]
    generate(tmp_path / "x.npz", root=tmp_path, corruptions=["snow"], severities=[4], workers=0)
    result = verify("x-c-local", tmp_path)
    there = "8 test images, 2 corruptions (snow at 4; fog at 1, 2, 3, 4, 5)"
    assert [(f.level, f.text) for f in result] == [("ok", f"x-c-local: {there}.")]
    np.save(folder / "fog-3.npy", fakes.natural_images(8))
    (folder / "snow-4.npy").unlink()
    assert errors(verify(str(folder))) == [
        "x-c-local has no snow at severity 4; generate it first.",
        f"{folder}/fog-3.npy is not what was generated; delete it and run `ttabench data generate` again.",
    ]


def test_what_ttabench_made_as_asked_is_no_warning(tmp_path: Path) -> None:
    gray = fakes.natural_images(8)
    gray[...] = gray.mean(axis=3, keepdims=True)  # to saturate changes nothing, and nobody can mend that
    np.savez(tmp_path / "x.npz", images=gray, labels=[0, 1] * 4)
    generate(tmp_path / "x.npz", root=tmp_path, corruptions=["fog", "saturate"], severities=[1, 3], workers=0)
    assert [(f.level, f.text) for f in verify("x-c-local", tmp_path)] == [
        ("ok", "x-c-local: 8 test images, 2 corruptions at severity 1, 3.")
    ]


def test_a_problem_of_a_file_with_all_severities_is_named_once(tmp_path: Path) -> None:
    folder = tmp_path / "mine-C"
    folder.mkdir()
    np.savez(folder / "test.npz", images=fakes.natural_images(8), labels=[0, 1] * 4)
    np.save(folder / "fog.npy", np.concatenate([fakes.natural_images(8)] * 5))
    np.save(folder / "labels.npy", np.zeros(40, np.int64))
    assert len(errors(verify(str(folder)))) == 1


def test_names_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'cifar10-c'"):
        verify("cifar10c", tmp_path)
    assert "is not here" in errors(verify("cifar10-c", tmp_path))[0]


def test_what_is_not_read_because_of_its_name_is_a_warning(tmp_path: Path) -> None:
    arrays, folders = tmp_path / "arrays", tmp_path / "folders"
    arrays.mkdir()
    images, labels = fakes.natural_images(10), fakes.labels_for(10, 2)
    np.savez(arrays / "test.npz", images=images, labels=labels)
    np.savez(arrays / "notes.npz", images=images)
    for name in ("fog-1", "fog-7", "motion-blur-3", "Snow"):
        np.save(arrays / f"{name}.npy", images)
    for name in ("test", "fog/1", "noise/shot_noise/1", "motion-blur/1", ".cache"):
        for label in ("cat", "dog"):
            (folders / name / label).mkdir(parents=True)
            Image.fromarray(images[0]).save(folders / name / label / "1.png")
    found = [f.text for f in verify(str(arrays)) if f.level == "warning" and "not read" in f.text]
    assert [text.partition("arrays/")[2].partition("; ")[0] for text in found] == [
        "Snow.npy is not read: unknown corruption 'Snow'",
        "fog-7.npy is not read: severities are 1 to 5.",
        "motion-blur-3.npy is not read: unknown corruption 'motion-blur'",
    ]
    assert "did you mean 'motion_blur'" in found[-1]
    (text,) = [f.text for f in verify(str(folders)) if "not read" in f.text]
    assert text.startswith(
        f"{folders / 'motion-blur'} is not read: unknown corruption 'motion-blur'; did you"
    )
    for folder, texts in ((arrays, found), (folders, [text])):
        assert [each for each in doubts(open_own(folder), []) if "not read" in each] == texts  # of a sweep
