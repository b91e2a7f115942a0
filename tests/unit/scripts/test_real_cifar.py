"""CIFAR-100 from its mosaics, and the datasets that reference sweeps name."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import reference_data
import reference_results as script
from PIL import Image
from real_cifar import TRAIN_100, make_cifar100

from tests.unit import data_fakes as fakes
from ttabench.data.catalog import dataset, foreign_set
from ttabench.data.files.array_files import open_npz
from ttabench.data.own.generate_corrupted import generate
from ttabench.errors import UserError

OFFICIAL = np.array([3, 0, 2, 1])  # places of the tiles in the official test order
TEST, TRAIN = fakes.clean_images(4), fakes.clean_images(8, seed=1)


def save_mosaic(path: Path, images: np.ndarray) -> None:
    """Four images as a lossless square of tiles."""
    pixels = images.reshape(2, 2, 32, 32, 3).transpose(0, 2, 1, 3, 4).reshape(64, 64, 3)
    Image.fromarray(pixels).save(path, lossless=True)


@pytest.fixture
def shared(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of mosaics of four test and eight training images of two classes, and pictures of frost."""
    monkeypatch.setattr(reference_data, "SHARED", tmp_path)
    cifar100 = tmp_path / "data" / "cifar100"
    cifar100.mkdir(parents=True)
    save_mosaic(cifar100 / "test.webp", TEST)
    for number in (1, 2):
        save_mosaic(cifar100 / f"train-{number}.webp", TRAIN[4 * number - 4 : 4 * number])
    np.savez(
        cifar100 / "labels.npz", test=np.array([0, 0, 1, 1], np.uint8), test_official_index=OFFICIAL,
        train=np.array([0, 0, 1, 1, 0, 0, 1, 1], np.uint8),
    )  # fmt: skip
    fakes.make_frost(tmp_path / "data" / "frost")
    return tmp_path


def test_the_test_images_of_cifar100_are_in_official_order(shared: Path) -> None:
    made = open_npz(make_cifar100(shared, shared / "made") / "test.npz")
    assert (made.images[OFFICIAL] == TEST).all()
    assert made.labels.tolist() == [0, 1, 1, 0]
    train = open_npz(shared / "made" / TRAIN_100)
    assert (train.images == TRAIN).all()
    assert train.labels.tolist() == [0, 0, 1, 1] * 2


def test_a_file_that_was_made_stays(shared: Path) -> None:
    folder = make_cifar100(shared, shared / "made")
    (shared / "made" / TRAIN_100).write_bytes(b"as it was")
    (folder / "test.npz").unlink()
    make_cifar100(shared, shared / "made")
    assert (shared / "made" / TRAIN_100).read_bytes() == b"as it was"
    assert len(open_npz(folder / "test.npz")) == 4


def test_the_foreign_images_of_a_sweep_are_made_and_known_by_their_name(shared: Path, tmp_path: Path) -> None:
    file = tmp_path / "unknown.toml"
    file.write_text('# Streams.\ndatasets = ["digits-c"]\ncontamination = "real-cifar100-local(0.5)"\n')
    assert script.prepare(file, tmp_path / "made") == {}  # the network of digits-c is not trained
    assert (foreign_set("real-cifar100-local").test().images[OFFICIAL] == TEST).all()


def test_cifar100_is_corrupted_and_trains_its_networks(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[tuple[object, ...]] = []
    monkeypatch.setattr(
        script, "trained", lambda arch, known, _, epochs: trained.append((arch, known.name, epochs))
    )
    in_this_process = partial(generate, workers=0)
    monkeypatch.setattr(reference_data, "generate", in_this_process)
    script.prepare(script.SWEEPS / "cifar100-test-resnet20.toml", shared / "made")
    assert trained == [("resnet20", reference_data.ALL_100, 0)]
    data = dataset(reference_data.ALL_100)
    assert (len(data.corruptions), data.num_classes) == (15, 2)
    assert (data.test().images[OFFICIAL] == TEST).all()
    assert (data.train().images == TRAIN).all()
    assert dataset("real-cifar100-local").corruptions == ()


def test_only_datasets_of_reference_sweeps_are_made(shared: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'cifar100-test-c-local'"):
        reference_data.make("cifar100-tests-c-local", shared / "made")
