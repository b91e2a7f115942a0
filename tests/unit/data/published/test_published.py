"""The published layouts: the right rows, in the right order, with the right labels, or an error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.unit import data_fakes as fakes
from tests.unit import other_code
from ttabench.corruptions.corruption_names import (
    ALL_CORRUPTIONS,
    BAR_CORRUPTIONS,
    CORRUPTIONS,
    NATURAL,
    NO_SEVERITY,
)
from ttabench.corruptions.engine import corrupt
from ttabench.data import catalog
from ttabench.data.dataset import Dataset
from ttabench.data.files import array_files, decoded_cache
from ttabench.data.files.fingerprint import folder_sha256
from ttabench.data.files.read_image import Fit, decode, read_image
from ttabench.data.published.cifar import CifarC
from ttabench.data.published.cifar_bar import CifarBar
from ttabench.data.published.cifar_facts import CIFAR10_C_BAR
from ttabench.data.published.imagenet import ImageNetC, TinyImageNetC
from ttabench.data.published.known_datasets import PUBLISHED
from ttabench.data.published.natural_shifts import NaturalImageNet
from ttabench.errors import UserError

FROST = ALL_CORRUPTIONS.index("frost")


@pytest.fixture
def cifar(tmp_path: Path) -> Path:
    return fakes.make_cifar(tmp_path)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return fakes.make_tiny(tmp_path)


# ---- CIFAR


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_severity_s_is_rows_s_minus_1_n_to_s_n(cifar: Path, severity: int) -> None:
    result = CifarC(fakes.FAKE_CIFAR10, cifar).corrupted("frost", severity)
    assert fakes.stamps(result.images) == [(severity, row, FROST) for row in range(20)]
    assert (result.labels == fakes.labels_for(20, 10)).all()


def test_the_clean_sets_are_the_batches_in_order(cifar: Path) -> None:
    data = CifarC(fakes.FAKE_CIFAR10, cifar)
    assert (data.test().images == fakes.clean_images(20)).all()
    assert (data.train().images == fakes.clean_images(50, seed=2)).all()
    assert (data.train().labels == fakes.labels_for(50, 10)).all()


def test_cifar100_has_its_fine_labels(tmp_path: Path) -> None:
    root = fakes.make_cifar(tmp_path, fakes.FAKE_CIFAR100, ["fog"])
    data = CifarC(fakes.FAKE_CIFAR100, root)
    assert set(data.test().labels) == set(range(100))
    assert (data.corrupted("fog", 3).labels == data.test().labels).all()


def test_arrays_are_mapped_and_not_read(cifar: Path) -> None:
    images = CifarC(fakes.FAKE_CIFAR10, cifar).corrupted("frost", 2).images
    base = images
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    assert type(base).__name__ == "mmap"


def test_corruptions_are_those_on_disk_in_canonical_order(cifar: Path) -> None:
    data = CifarC(fakes.FAKE_CIFAR10, cifar)
    assert data.corruptions == ("gaussian_noise", "frost", "jpeg_compression")
    with pytest.raises(UserError, match="unknown corruption of cifar10-c 'forst'; did you mean 'frost'"):
        data.corrupted("forst", 1)
    for severity in (0, 6):
        with pytest.raises(UserError, match="severities are 1 to 5"):
            data.corrupted("frost", severity)


def test_a_permutation_of_the_labels_is_noticed(cifar: Path) -> None:
    path = cifar / "CIFAR-10-C" / "labels.npy"
    labels = np.load(path)
    np.save(path, np.concatenate([labels[1:20], labels[:1], labels[20:]]))
    with pytest.raises(UserError, match=r"disagrees with the clean test labels on .* at severity 1"):
        CifarC(fakes.FAKE_CIFAR10, cifar).corrupted("frost", 5)


def test_labels_that_change_at_a_late_severity_are_noticed(cifar: Path) -> None:
    path = cifar / "CIFAR-10-C" / "labels.npy"
    labels = np.load(path)
    labels[-1] = (labels[-1] + 1) % 10
    np.save(path, labels)
    with pytest.raises(UserError, match="on 1 of 20 images at severity 5"):
        CifarC(fakes.FAKE_CIFAR10, cifar).corrupted("frost", 1)


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros((99, 32, 32, 3), np.uint8), r"shape \(99, 32, 32, 3\)"),
        (np.zeros((100, 32, 32, 3), np.float32), "float32"),
        (np.zeros((100, 3, 32, 32), np.uint8), r"\(100, 3, 32, 32\)"),
        (np.array([{}] * 3), "holds Python objects, which are never read"),
    ],
)
def test_an_array_of_another_shape_is_refused(cifar: Path, array: np.ndarray, reason: str) -> None:
    np.save(cifar / "CIFAR-10-C" / "frost.npy", array)
    with pytest.raises(UserError, match=reason):
        CifarC(fakes.FAKE_CIFAR10, cifar).corrupted("frost", 1)


def test_a_web_page_saved_as_an_array_is_refused(cifar: Path) -> None:
    (cifar / "CIFAR-10-C" / "frost.npy").write_text("<html>504</html>")
    with pytest.raises(UserError, match="not an array file"):
        CifarC(fakes.FAKE_CIFAR10, cifar).corrupted("frost", 1)


def test_missing_data_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"run `ttabench data fetch cifar10-c`, or set TTABENCH_DATA"):
        catalog.dataset("cifar10-c", tmp_path)
    with pytest.raises(UserError, match=r"image-net.org.*imagenet/val/<wnid>"):
        catalog.dataset("imagenet-c", tmp_path)


def test_a_full_size_set_is_expected_by_name(cifar: Path) -> None:
    with pytest.raises(UserError, match="expected 10000"):
        catalog.dataset("cifar10-c", cifar).test()


# ---- CIFAR-10-C-bar

FAKE_BAR = replace(CIFAR10_C_BAR, test=20, train=50)


def test_bar_is_the_clean_test_set_under_its_ten_corruptions(cifar: Path) -> None:
    data = CifarBar(FAKE_BAR, cifar)
    assert data.corruptions == BAR_CORRUPTIONS
    assert (data.test().images == fakes.clean_images(20)).all()
    assert len(data.train()) == 50
    for severity in (1, 5):
        expected = corrupt(fakes.clean_images(20), "ripple", severity, seed=0)
        assert (data.corrupted("ripple", severity).images == expected).all()
        assert (data.corrupted("ripple", severity).labels == fakes.labels_for(20, 10)).all()
    with pytest.raises(UserError, match="unknown corruption of cifar10-c-bar 'fog'"):
        data.corrupted("fog", 1)


def test_bar_is_computed_once_and_again_where_its_file_changed(
    cifar: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = CifarBar(FAKE_BAR, cifar).corrupted("lines", 3).images
    (file,) = (own_cache / "data" / "cifar10-c-bar").rglob("lines-3.npy")
    with monkeypatch.context() as patch:
        patch.setattr("ttabench.data.published.cifar_bar.corrupt", lambda *a, **k: pytest.fail("again"))
        assert (CifarBar(FAKE_BAR, cifar).corrupted("lines", 3).images == first).all()
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert (CifarBar(FAKE_BAR, cifar).corrupted("lines", 3).images == first).all()


def test_bar_has_a_fingerprint_of_its_own_that_knows_the_version(
    cifar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = CifarBar(FAKE_BAR, cifar).fingerprint()
    assert before != CifarC(fakes.FAKE_CIFAR10, cifar).fingerprint()
    monkeypatch.setattr("ttabench.data.published.cifar_bar.VERSION", "another")
    assert CifarBar(FAKE_BAR, cifar).fingerprint() != before


def test_bar_without_the_clean_images_says_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"test_batch is missing; run `ttabench data fetch cifar10-c-bar`"):
        catalog.dataset("cifar10-c-bar", tmp_path)


# ---- folders


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_tiny_severities_and_classes(tiny: Path, severity: int) -> None:
    data = TinyImageNetC(fakes.FAKE_TINY, tiny)
    result = data.corrupted("frost", severity)
    exact = np.stack([fakes.stamped("frost", severity, row, 64) for row in range(8)])
    # JPEG stores these flat images to within a grey level or two; the stamps are further apart.
    assert np.abs(result.images.astype(int) - exact).max() <= 3
    assert result.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_tiny_classes_are_sorted_and_not_in_the_order_of_wnids_txt(tiny: Path) -> None:
    data = TinyImageNetC(fakes.FAKE_TINY, tiny)
    assert data.classes == tuple(sorted(fakes.WNIDS))


@pytest.mark.parametrize("layout", ["as published", "in class folders"])
def test_tiny_validation_images_get_their_annotated_class(tiny: Path, layout: str) -> None:
    val = tiny / "tiny-imagenet-200" / "val"
    if layout == "in class folders":
        for line in (val / "val_annotations.txt").read_text().splitlines():
            name, wnid = line.split("\t")[:2]
            (val / wnid).mkdir(exist_ok=True)
            (val / "images" / name).rename(val / wnid / name)
        (val / "images").rmdir()
    result = TinyImageNetC(fakes.FAKE_TINY, tiny).test()
    assert result.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    greens = result.images[:, 32, 32, 1].astype(int)  # the fakes' green is their class
    assert np.abs(greens - result.labels).max() <= 2


def test_tiny_training_images(tiny: Path) -> None:
    train = TinyImageNetC(fakes.FAKE_TINY, tiny).train()
    assert len(train) == 12
    assert np.abs(train.images[:, 0, 0, 1].astype(int) - train.labels).max() <= 2


def test_the_frost_of_the_first_release_is_refused_with_the_fixed_record(tiny: Path) -> None:
    (tiny / "Tiny-ImageNet-C" / "frost" / "2" / "n99999999").mkdir()
    data = TinyImageNetC(fakes.FAKE_TINY, tiny)
    with pytest.raises(UserError, match=r"1,000 under frost.*zenodo\.org/records/8206060"):
        data.corrupted("frost", 2)
    data.corrupted("frost", 1)


def test_a_missing_image_is_noticed(tiny: Path) -> None:
    next((tiny / "Tiny-ImageNet-C" / "frost" / "1" / fakes.WNIDS[0]).iterdir()).unlink()
    with pytest.raises(UserError, match="holds 7 images; expected 8"):
        TinyImageNetC(fakes.FAKE_TINY, tiny).corrupted("frost", 1)


def test_a_sample_is_refused_by_name_and_opened_by_path(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
    folder = tiny / "Tiny-ImageNet-C"
    sample = replace(fakes.FAKE_TINY, test=2000)
    with pytest.raises(UserError, match=r"sample is opened by the path of its -C folder, with .* in test/"):
        TinyImageNetC(sample, tiny).corrupted("frost", 1)
    for wnid in fakes.WNIDS:
        for i in range(2):
            fakes.write_image(folder / "test" / wnid / f"{i}.JPEG", fakes.stamped("fog", 1, i, 64))
    data = catalog.dataset(str(folder))
    assert data.name == "tiny-imagenet-c-local"
    shown = data.corrupted("frost", 3).images[:, 0, 0].astype(int)
    assert (abs(shown - [(120, row, FROST) for row in range(8)]) <= 1).all()  # JPEG


def test_a_sample_of_a_natural_shift_gets_no_hint_at_corruptions(tmp_path: Path) -> None:
    facts = fakes.FAKE_IMAGENET_R
    root = fakes.make_natural(tmp_path, facts, fakes.WNIDS[:2])
    with pytest.raises(UserError, match=r"holds 4 images; expected 9; fetch it again\.$"):
        NaturalImageNet(replace(facts, shifted=9), root).corrupted(NATURAL, NO_SEVERITY)


def test_a_damaged_or_wrongly_sized_image_is_named(tiny: Path) -> None:
    folder = tiny / "Tiny-ImageNet-C" / "frost"
    (folder / "1" / fakes.WNIDS[0] / "test_0.JPEG").write_text("<html>")
    fakes.write_image(folder / "2" / fakes.WNIDS[0] / "test_0.JPEG", np.zeros((32, 32, 3), np.uint8))
    data = TinyImageNetC(fakes.FAKE_TINY, tiny)
    with pytest.raises(UserError, match=r"test_0.JPEG cannot be decoded"):
        data.corrupted("frost", 1)
    with pytest.raises(UserError, match=r"test_0.JPEG is 32×32 pixels; expected 64×64"):
        data.corrupted("frost", 2)


def test_imagenet_groups_of_archives_and_the_usual_crop(tmp_path: Path) -> None:
    data = ImageNetC(fakes.FAKE_IMAGENET, fakes.make_imagenet(tmp_path))
    assert data.corruptions == ("fog",)
    assert data.corrupted("fog", 4).images.shape == (6, 224, 224, 3)
    assert abs(int(data.corrupted("fog", 4).images[0, 0, 0, 0]) - 160) <= 2
    assert data.test().images.shape == (6, 224, 224, 3)
    assert data.test().labels.tolist() == [0, 0, 1, 1, 2, 2]


def test_imagenet_images_keep_their_proportions(tmp_path: Path) -> None:
    rows = np.arange(512).repeat(256).reshape(512, 256) // 2
    path = tmp_path / "tall.png"
    fakes.write_png(path, np.repeat(rows[..., None], 3, axis=-1).astype(np.uint8))
    result = read_image(path, 224, "imagenet")  # its shorter side is 256 already, so this only crops
    assert (result[..., 0] == rows[144:368, 16:240]).all()
    small = tmp_path / "small.png"
    fakes.write_png(small, np.zeros((30, 40, 3), np.uint8))
    assert read_image(small, 224, "imagenet").shape == (224, 224, 3)


def test_imagenet_training_images_are_an_even_selection(tmp_path: Path) -> None:
    root = fakes.make_imagenet(tmp_path)
    data = ImageNetC(fakes.FAKE_IMAGENET, root)
    data.train_per_class = 2
    train = data.train()
    assert train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert [round(v / 50) for v in train.images[:, 0, 0, 2].tolist()] == [0, 2, 0, 2, 0, 2]  # blue: which


def test_decoded_images_are_kept_and_noticed_when_changed(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = np.array(TinyImageNetC(fakes.FAKE_TINY, tiny).corrupted("frost", 1).images)
    monkeypatch.setattr("ttabench.data.files.read_image.read_image", lambda *a: pytest.fail("decoded again"))
    again = TinyImageNetC(fakes.FAKE_TINY, tiny).corrupted("frost", 1)
    assert (again.images == first).all()
    monkeypatch.undo()
    cached = [p for p in (catalog.cache_dir() / "decoded").glob("*.npy") if np.array_equal(np.load(p), first)]
    for path in cached:
        spoilt = np.load(path)
        spoilt[0] ^= 255
        np.save(path, spoilt)
    assert (TinyImageNetC(fakes.FAKE_TINY, tiny).corrupted("frost", 1).images == first).all()


def test_images_are_decoded_again_after_a_change_of_the_code_that_decodes(
    tiny: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(other_code.forget)
    edits = other_code.Edits(monkeypatch)
    reader = "ttabench.data.files.read_image"

    def kept() -> int:
        TinyImageNetC(fakes.FAKE_TINY, tiny).corrupted("frost", 1)
        return len(list((own_cache / "decoded").glob("*.npy")))

    assert (kept(), kept()) == (1, 1)
    for number, name in enumerate(("decode", "read_checked", "read_image", "_rgb", "_resize_and_crop"), 2):
        edits.edit(reader, (f"def {name}(", f"def {name}(_more=0, *, "))
        assert (name, kept()) == (name, number)
    monkeypatch.setattr("ttabench.data.files.decoded_cache.version", lambda name: f"another {name}")
    assert kept() == number + 1


def test_the_cache_of_decoded_images_stays_in_its_budget(
    tiny: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = 8 * 64 * 64 * 3
    monkeypatch.setenv("TTABENCH_DECODED_GB", str(2.5 * one / 1e9))
    data = TinyImageNetC(fakes.FAKE_TINY, tiny)
    for severity in (1, 2, 3, 4):
        images = data.corrupted("frost", severity).images
        assert len(list((own_cache / "decoded").glob("*.npy"))) <= 2
        assert abs(int(images[0, 0, 0, 0]) - 40 * severity) <= 2


def test_decoded_images_that_another_process_deletes_to_make_room_are_decoded_again(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = np.array(TinyImageNetC(fakes.FAKE_TINY, tiny).corrupted("frost", 1).images)
    is_unchanged, asked = decoded_cache._is_unchanged, list[Path]()

    def deleted_then(path: Path, shape: tuple[int, ...]) -> bool:
        found = is_unchanged(path, shape)
        if not asked:
            path.with_suffix(".json").unlink()
            path.unlink()
        asked.append(path)
        return found

    monkeypatch.setattr(decoded_cache, "_is_unchanged", deleted_then)
    assert (TinyImageNetC(fakes.FAKE_TINY, tiny).corrupted("frost", 1).images == first).all()
    assert len(set(asked)) == 1


def test_images_are_decoded_in_parts_and_never_into_a_map_of_a_file(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes into a map on a full disk is killed, and cannot say why."""
    first = np.array(TinyImageNetC(fakes.FAKE_TINY, tiny).corrupted("frost", 1).images)
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path / "cache"))
    parts: list[int] = []

    def noted(files: Sequence[Path], out: np.ndarray, size: int, fit: Fit) -> None:
        assert not isinstance(out, np.memmap)
        parts.append(len(files))
        decode(files, out, size, fit)

    monkeypatch.setattr(decoded_cache, "decode", noted)
    monkeypatch.setattr(array_files, "CHUNK", 3)
    again = TinyImageNetC(fakes.FAKE_TINY, tiny).corrupted("frost", 1).images
    assert (again == first).all()
    assert parts == [3, 3, 2]


# ---- fingerprints


def _datasets(root: Path) -> list[Dataset]:
    fakes.make_cifar(root)
    fakes.make_tiny(root)
    fakes.make_imagenet(root)
    return [
        CifarC(fakes.FAKE_CIFAR10, root),
        TinyImageNetC(fakes.FAKE_TINY, root),
        ImageNetC(fakes.FAKE_IMAGENET, root),
    ]


def test_names_and_bytes_are_in_the_hash_of_a_folder_and_hidden_files_are_not(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.png").write_bytes(b"one")
    before = folder_sha256(tmp_path)
    (tmp_path / "cat" / ".DS_Store").write_bytes(b"left by a file browser")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "2.png").write_bytes(b"two")
    assert folder_sha256(tmp_path) == before
    (tmp_path / "cat" / "1.png").rename(tmp_path / "cat" / "2.png")
    renamed = folder_sha256(tmp_path)
    (tmp_path / "cat" / "2.png").write_bytes(b"two")
    assert len({before, renamed, folder_sha256(tmp_path)}) == 3


def test_fingerprints_do_not_depend_on_the_place(tmp_path: Path) -> None:
    for here, there in zip(_datasets(tmp_path / "a"), _datasets(tmp_path / "b"), strict=True):
        assert here.fingerprint() == there.fingerprint()


def test_every_byte_counts(tmp_path: Path) -> None:
    for data in _datasets(tmp_path):
        before = data.fingerprint()
        files = sorted(p for p in tmp_path.rglob("*") if p.is_file() and _belongs(p, data, tmp_path))
        assert files
        for path in files[:: max(1, len(files) // 12)]:
            original, stat = path.read_bytes(), path.stat()
            middle = len(original) // 2  # the last byte of a list of names may be white space
            path.write_bytes(original[:middle] + bytes([original[middle] ^ 1]) + original[middle + 1 :])
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # size and time as they were
            assert _seen(data, tmp_path) != before, path
            path.write_bytes(original)
        assert _seen(data, tmp_path) == before


def _belongs(path: Path, data: Dataset, root: Path) -> bool:
    facts = data.facts
    return path.relative_to(root).parts[0] in (facts.clean_folder, facts.corrupted_folder)


def _seen(data: Dataset, root: Path) -> str:
    """The fingerprint of a dataset that was opened anew and read completely."""
    fresh = type(data)(data.facts, root)
    for piece, path in fresh.pieces().items():
        if path.is_dir():
            fresh.folder_hash(piece)
    return fresh.fingerprint()


def test_a_file_changed_while_in_use_shows_in_the_fingerprint(cifar: Path, tmp_path: Path) -> None:
    data = CifarC(fakes.FAKE_CIFAR10, cifar)
    before = data.fingerprint()
    path = cifar / "CIFAR-10-C" / "frost.npy"
    array = np.load(path)
    array[0] ^= 1
    np.save(path, array)
    assert data.fingerprint() != before


def test_an_image_changed_while_in_use_shows_once_its_folder_is_read(tiny: Path) -> None:
    data = TinyImageNetC(fakes.FAKE_TINY, tiny)
    before = data.fingerprint()
    path = tiny / "Tiny-ImageNet-C" / "frost" / "1" / fakes.WNIDS[0] / "test_0.JPEG"
    fakes.write_image(path, np.full((64, 64, 3), 9, np.uint8))
    assert data.corrupted("frost", 1).images[0, 0, 0, 0] == 9
    assert data.fingerprint() != before


def test_renamed_classes_change_the_fingerprint(tiny: Path) -> None:
    before = TinyImageNetC(fakes.FAKE_TINY, tiny).fingerprint()
    one, other = (tiny / "Tiny-ImageNet-C" / "frost" / "1" / w for w in fakes.WNIDS[:2])
    one.rename(one.with_name("x"))
    other.rename(one)
    one.with_name("x").rename(other)
    assert TinyImageNetC(fakes.FAKE_TINY, tiny).fingerprint() != before


# ---- the catalogue


def test_names_are_listed_without_numpy() -> None:
    code = "import sys, ttabench.data.catalog as c; print(*c.NAMES); sys.exit('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        "digits-c", "cifar10-c", "cifar10-c-bar", "cifar10.1", "cifar100-c", "tinyimagenet-c", "imagenet-c",
        "imagenet-v2", "imagenet-r", "imagenet-a", "imagenet-sketch",
    ]  # fmt: skip


def test_an_unknown_name_gets_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown dataset 'cifar-10c'; did you mean 'cifar10-c'"):
        catalog.dataset("cifar-10c", tmp_path)


def test_the_root_is_an_argument_a_variable_or_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert catalog.data_root() == catalog.cache_dir() / "data"
    monkeypatch.setenv("TTABENCH_DATA", str(tmp_path / "a"))
    assert catalog.data_root() == tmp_path / "a"
    assert catalog.data_root(tmp_path / "b") == tmp_path / "b"


def test_published_facts_are_consistent() -> None:
    for facts in PUBLISHED.values():
        assert facts.test % facts.num_classes == 0
        for archive in facts.archives:
            assert len(archive.md5) in (0, 32)
            assert len(archive.sha256) in (0, 64)
            assert archive.md5 or archive.sha256
            assert archive.urls
    tiny = PUBLISHED["tinyimagenet-c"]
    urls = [url for archive in tiny.archives[1:] for url in archive.urls]
    assert all("8206060" in url for url in urls)


def test_listing_tells_what_is_here(tmp_path: Path) -> None:
    cifar = fakes.make_cifar(tmp_path, corruptions=CORRUPTIONS)
    (cifar / "Tiny-ImageNet-C").mkdir()
    result = {entry.name: entry for entry in catalog.listing(cifar)}
    assert result["cifar10-c"].state == "here"
    bar = result["cifar10-c-bar"]  # its corrupted images are made on first use
    assert (bar.state, bar.note) == ("here", "")
    folders = (cifar / "CIFAR-10-C", cifar / "cifar-10-batches-py")
    assert result["cifar10-c"].size == sum(p.stat().st_size for f in folders for p in f.iterdir())
    assert result["tinyimagenet-c"].state == "partly"
    assert "tiny-imagenet-200 is missing" in result["tinyimagenet-c"].note
    assert result["imagenet-c"].state == "not here"
    assert "66.0 GB to download" in result["imagenet-c"].note


def test_listing_tells_which_corruptions_and_severities_are_missing(cifar: Path) -> None:
    def entry(name: str) -> catalog.ListedDataset:
        return next(each for each in catalog.listing(cifar) if each.name == name)

    assert entry("cifar10-c").state == "partly"
    assert entry("cifar10-c").note.startswith("shot_noise, impulse_noise, ")
    assert entry("cifar10-c").note.endswith(" missing")
    fakes.make_tiny(cifar, corruptions=CORRUPTIONS)
    assert (entry("tinyimagenet-c").state, entry("tinyimagenet-c").note) == ("here", "")
    shutil.rmtree(cifar / "Tiny-ImageNet-C" / "fog" / "3")
    assert entry("tinyimagenet-c").state == "partly"
    assert "fog 1,2,4,5; " in entry("tinyimagenet-c").note
    shutil.rmtree(cifar / "tiny-imagenet-200" / "val")
    assert "is missing or empty" in entry("tinyimagenet-c").note


def test_other_sizes_are_other_datasets(cifar: Path) -> None:
    with pytest.raises(UserError, match="expected 19"):
        CifarC(replace(fakes.FAKE_CIFAR10, test=19), cifar).test()
