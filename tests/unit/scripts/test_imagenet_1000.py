"""Photographs in one file become class folders and a corrupted dataset."""

from __future__ import annotations

import io
from pathlib import Path

import imagenet_1000
import numpy as np
import pytest
import reference_data
import reference_results as script
from PIL import Image

from tests.unit import data_fakes as fakes
from ttabench.data.catalog import dataset
from ttabench.data.dataset import Labelled
from ttabench.data.files.array_files import save_npz
from ttabench.errors import UserError

SWEEP = script.SWEEPS / "imagenet-1000.toml"


@pytest.fixture
def shared(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of two photographs, of 32 pixels so that they are corrupted quickly, and pictures of frost."""
    files = []
    for image in fakes.clean_images(2):
        out = io.BytesIO()
        Image.fromarray(image).save(out, "JPEG")
        files.append(out.getvalue())
    (tmp_path / "imagenet").mkdir()
    np.savez(
        tmp_path / "imagenet" / "imagenet-1000.npz",
        jpeg=np.frombuffer(b"".join(files), np.uint8), offsets=np.cumsum([0, *map(len, files)]),
        labels=[0, 1], wnids=["n1", "n2"],
    )  # fmt: skip
    fakes.make_frost(tmp_path / "data" / "frost")
    monkeypatch.setattr(reference_data, "SHARED", tmp_path)
    return tmp_path


def test_the_dataset_of_the_sweep_is_made_and_known_by_its_name(shared: Path) -> None:
    assert script.prepare(SWEEP, shared / "made") == {}
    data = dataset("imagenet-1000-c-local")
    assert (len(data.test()), len(data.corruptions), data.num_classes) == (2, 15, 2)
    assert data.manifest["jpeg"] == 85  # type: ignore[attr-defined]
    photograph = np.asarray(Image.open(shared / "made" / imagenet_1000.NAME / "n2" / "0001.jpg"))
    assert (data.test().images[1] == photograph).all()


def test_without_the_photographs_it_says_what_to_do_with_ones_own(shared: Path) -> None:
    (shared / "imagenet" / "imagenet-1000.npz").unlink()
    with pytest.raises(UserError, match=r"they are not published\. With your own: ttabench data generate"):
        script.prepare(SWEEP, shared / "made")


@pytest.mark.usefixtures("own_cache")
def test_a_half_has_the_other_half_as_source_images_of_other_classes(tmp_path: Path) -> None:
    images, whole = fakes.clean_images(6), tmp_path / "imagenet-1000-c-local"
    whole.mkdir()
    save_npz(whole / "test.npz", Labelled(images, np.arange(6)))
    np.save(whole / "fog-5.npy", images[:, ::-1])
    test, source = imagenet_1000.halves(6)
    assert sorted([*test, *source]) == [0, 1, 2, 3, 4, 5]
    assert len(test) == 3

    folder = imagenet_1000.make_half(whole)
    data = dataset(str(folder))
    assert (data.name, data.num_classes) == (imagenet_1000.HALF, 6)
    assert data.test().labels.tolist() == test.tolist()
    assert data.train().labels.tolist() == source.tolist()
    assert (data.train().images == images[source]).all()
    assert (data.corrupted("fog", 5).images == images[test][:, ::-1]).all()

    (whole / "fog-5.npy").write_bytes(b"")  # what is there is not read again
    assert imagenet_1000.make_half(whole) == folder
