"""The classifiers that come with the package are what they say, and the recipe makes them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from tests.unit.conftest import Run
from tests.unit.models_by_name import trained
from ttabench.data.digits import Digits
from ttabench.models.checkpoints import cache
from ttabench.models.clean_accuracy import clean_accuracy
from ttabench.models.training.train import train
from ttabench.system.environment import machine, processor, versions

ARCHS = ("resnet18", "cct")
DATA = Digits()


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TTABENCH_CACHE", str(folder))
    return folder


@pytest.mark.parametrize("arch", ARCHS)
def test_it_is_what_this_code_would_train_and_as_accurate_as_it_says(arch: str) -> None:
    model = trained(arch, DATA)
    loaded = model.load()  # with this plan's name; raises where the hash is not that of the weights
    assert loaded.pretrained
    assert loaded.note["plan"] == model.plan.digest
    assert len(DATA.test()) == loaded.note["test_images"]
    measured = clean_accuracy(loaded.classifier, DATA.test(), "cpu")
    one_image = 100 / len(DATA.test())  # other processors round otherwise
    assert measured == pytest.approx(loaded.clean_accuracy, abs=one_image * 1.01)
    assert loaded.clean_accuracy > 95


def test_no_file_is_left_over() -> None:
    described = [cache.read(path) for path in (cache.PRETRAINED / "digits-c").glob("*.json")]
    assert len(described) == len(ARCHS)
    expected = {
        file
        for one in described
        if one is not None
        for file in (one.path, one.weights, one.path.with_suffix(".md"))
    }
    assert {file for file in cache.PRETRAINED.rglob("*") if file.is_file()} == expected


def test_a_sweep_trains_nothing_and_writes_no_weights(
    ttabench: Run, tmp_path: Path, empty_cache: Path
) -> None:
    small = ("--methods", "source", "--corruptions", "fog", "--limit", "40", "--workers", "0")
    output = ttabench("sweep", *small, "--archs", "resnet18,cct", "--out", tmp_path / "out")
    assert output.code == 0, output.err
    assert "training" not in output.err
    assert not [*empty_cache.rglob("*.safetensors")]


def test_train_says_where_it_is_from(ttabench: Run) -> None:
    output = ttabench("train", "--archs", "resnet18", "--workers", "0")
    assert output.code == 0
    clean = trained("resnet18", DATA).load().clean_accuracy
    assert f"{clean:.2f} % clean, comes with ttabench (see --force)" in output.out


def test_list_archs_names_them(ttabench: Run) -> None:
    listed = " ".join(ttabench("list", "archs").out.split())
    assert "With ttabench, trained on digits-c: cct_2_3x2_32, resnet18_w8." in listed


def test_another_seed_or_recipe_is_another_classifier() -> None:
    assert trained("resnet18", DATA).ready
    assert not trained("resnet18", DATA, seed=1).ready
    assert not trained("resnet18", DATA, epochs=1).ready


def test_what_was_trained_here_precedes_it_and_both_are_found_by_their_hash() -> None:
    model = trained("resnet18", DATA)
    packaged = model.load()
    torch.manual_seed(0)
    described = {name: packaged.note[name] for name in ("clean_accuracy", "test_images", "epochs", "seconds",
                 "device", "machine", "threads", "precision", "parameters", "versions", "curve")}  # fmt: skip
    cache.save_trained(model.plan, model.build(), described)
    mine = model.load()
    assert not mine.pretrained
    assert mine.sha256 != packaged.sha256
    for loaded in (mine, packaged):
        again = model.recall(loaded.sha256)
        assert again is not None
        assert again.path == loaded.path
    mine.path.unlink()
    assert model.load().sha256 == packaged.sha256


def test_a_copy_in_the_cache_is_the_same_classifier(empty_cache: Path) -> None:
    packaged = trained("cct", DATA).load()
    shutil.copytree(cache.PRETRAINED / "digits-c", cache.folder("digits-c"))
    assert trained("cct", DATA).load().sha256 == packaged.sha256


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["resnet18", "cct"])
def test_the_recipe_makes_it_on_the_kind_of_machine_where_it_was_made(arch: str) -> None:
    model = trained(arch, DATA)
    packaged = model.load()
    made_with = {**packaged.note["versions"], "processor": packaged.note["processor"]}
    here = {**versions(), "processor": processor()}
    if (machine(), here) != (packaged.note["machine"], made_with):
        pytest.skip(f"it was trained on {made_with}; this is {here}")
    train(model.plan, DATA)
    again = model.load()
    assert not again.pretrained
    assert again.sha256 == packaged.sha256
