"""Training on small sets of one's own, and of networks that a function of the user makes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.cases import each
from tests.unit.conftest import Run
from tests.unit.models.training.test_training import Bars
from ttabench.cli.train import tell_checkpoint
from ttabench.data.catalog import dataset
from ttabench.errors import UserError
from ttabench.models.architectures.arch_names import MEMBERS
from ttabench.models.checkpoints.weights import content_hash
from ttabench.models.resolve import resolve_model, resolve_trainable
from ttabench.models.training.recipes import LEAST_STEPS, fitted, recipe_for
from ttabench.models.training.train import train
from ttabench.provenance.modules import module_file
from ttabench.sweep import conduct


@pytest.fixture
def nets(own_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    file = tmp_path / "ownnets.py"
    file.write_text(
        "from torch import nn\n"
        "def build(num_classes):\n"
        "    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(),\n"
        "                         nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, num_classes))\n"
        "def broken(num_classes): return nn.Flatten()\n"
        "def frozen_stem(num_classes):\n"
        "    net = build(num_classes)\n"
        "    net[0].requires_grad_(False)\n"
        "    net[1] = nn.GroupNorm(2, 8)\n"
        "    return net\n"
        "class Wrapper(nn.Module):\n"
        "    def __init__(self, num_classes):\n"
        "        super().__init__()\n"
        "        self.model = build(num_classes)\n"
        "    def forward(self, x): return self.model(x)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ownnets", raising=False)
    module_file.cache_clear()  # the module is in another folder for each test
    return file


def test_group_norm_learns_behind_frozen_layers(nets: Path) -> None:
    """Torch ends the process without the guard."""
    model = resolve_trainable("ownnets:frozen_stem", Bars(), epochs=1)
    train(model.plan, Bars())
    net = model.build().net
    x = torch.rand(4, 3, 16, 16).contiguous(memory_format=torch.channels_last)
    net(x).sum().backward()
    assert [p.grad is None for p in net.parameters()] == [True, True, False, False, False, False]


@each("name", ["resnet18_w8", "cct_2_3x2_32", "vit_6_4_32", "resnet20"])
@each("images", [40, 300, 1000, 50_000])
def test_a_small_training_set_gets_enough_updates(name: str, images: int) -> None:
    for recipe in ("fast", "paper"):
        plain = recipe_for(MEMBERS[name], "own-c-local", recipe)
        made = fitted(plain, images)
        batch = min(made.batch_size, images)
        assert images // batch * made.epochs >= LEAST_STEPS
        assert batch >= min(16, images)
        if images == 50_000:
            assert made == plain  # what it is made for stays as it is
        elif made.batch_size < plain.batch_size:
            part = made.batch_size / plain.batch_size
            assert made.lr == pytest.approx(plain.lr * (part if plain.optimizer == "sgd" else part**0.5))


def test_the_recipe_of_digits_is_as_it_was() -> None:
    for name in ("resnet18_w8", "cct_2_3x2_32"):
        recipe = recipe_for(MEMBERS[name], "digits-c")
        assert fitted(recipe, 1197) == recipe
        assert "least_steps" not in recipe_for(MEMBERS[name], "cifar10-c").identity()


def test_epochs_that_the_user_names_are_kept() -> None:
    assert resolve_trainable("resnet18_w8", Bars(), epochs=2).plan.recipe.epochs == 2
    assert resolve_trainable("resnet18_w8", Bars()).plan.recipe.epochs >= LEAST_STEPS / 3


@each("name", ["resnet18_w8", "cct_2_3x2_32", "vit_6_4_32", "resnet20"])
def test_without_the_mirror_a_recipe_is_another_one_and_else_the_same(name: str) -> None:
    for recipe in ("", "fast-portable", "paper", "cross-entropy"):
        with_mirror = recipe_for(MEMBERS[name], "flowers-c-local", recipe)
        without = recipe_for(MEMBERS[name], "flowers-c-local", f"{recipe}-no-mirror")
        assert (with_mirror.flip, without.flip) == (True, False)
        assert without.name == f"{with_mirror.name}-no-mirror"
        assert replace(without, name=with_mirror.name, flip=True) == with_mirror
    digits = recipe_for(MEMBERS[name], "digits-c")  # has no mirror, so the weights stay the same ones
    assert recipe_for(MEMBERS[name], "digits-c", "fast-no-mirror") == digits
    with pytest.raises(UserError, match="unknown recipe 'slow'"):
        recipe_for(MEMBERS[name], "flowers-c-local", "slow-no-mirror")


def signs_in(folder: Path) -> Path:
    """A dataset of the user: 40 random images of four classes."""
    signs = folder / "signs-C"
    signs.mkdir()
    rng = np.random.default_rng(0)
    for file, count in (("train", 40), ("test", 40)):
        images = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        np.savez(signs / f"{file}.npz", images=images, labels=np.arange(count) % 4)
    np.save(signs / "fog-5.npy", images)
    return signs


def test_a_sweep_says_that_own_images_are_mirrored_when_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(conduct, "train_all", lambda *rest: None)
    model = resolve_model("resnet18_w8", dataset(str(signs_in(tmp_path))))
    draft, trainer = SimpleNamespace(untrained=[model]), SimpleNamespace(device="cpu", run=None, workers=0)
    with pytest.raises(UserError, match="no classifier was trained"):
        conduct._train(draft, trainer, conduct.console_of_errors(), tmp_path)  # type: ignore[arg-type]
    assert "images of signs-c-local are mirrored left to right at random" in capsys.readouterr().err


def test_it_is_said_that_own_images_are_mirrored_and_they_need_not_be(ttabench: Run, nets: Path) -> None:
    signs = signs_in(nets.parent)
    line = ("train", "--archs", "ownnets:build", "--epochs", "1", "--workers", "0", "--datasets", signs)
    output = ttabench(*line)
    assert output.code == 0, output.err
    assert output.err.count("are mirrored left to right at random") == 1
    assert "ttabench train --no-mirror" in output.err
    without = ttabench(*line, "--no-mirror")
    assert without.code == 0, without.err
    assert "mirrored" not in without.err
    files = [text.out.partition("--checkpoint ")[2].strip() for text in (output, without)]
    assert list(Path(files[1]).parent.glob("ownnets_build-fast-no-mirror-*.json"))
    assert Path(files[0]).read_bytes() != Path(files[1]).read_bytes()
    published = ttabench("train", "--archs", "ownnets:build", "--epochs", "1", "--workers", "0")
    assert "mirrored" not in published.err


@pytest.mark.parametrize("name", ["ownnets:build", "ownnets:Wrapper"])
def test_a_network_by_python_path_is_trained_and_its_weights_are_used(nets: Path, name: str) -> None:
    bars = Bars()
    model = resolve_trainable(name, bars, epochs=20)
    assert not model.ready
    train(model.plan, bars)
    assert model.ready
    trained = model.load()
    assert trained.clean_accuracy == 100.0
    used = resolve_model(name, bars, checkpoint=trained.path).load()
    assert content_hash(used.classifier) == trained.sha256  # the same weights, normalisation and all
    assert used.clean_accuracy == trained.clean_accuracy
    before = model.plan.digest
    nets.write_text(nets.read_text().replace("nn.ReLU()", "nn.GELU()"))
    assert resolve_trainable(name, bars, epochs=20).plan.digest != before


def test_weights_are_of_the_code_of_all_files_of_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    layers = tmp_path / "fewlayers.py"
    (tmp_path / "fewnets.py").write_text("from fewlayers import build\n")
    digests = []
    for act in ("ReLU", "ReLU", "Identity"):
        layers.write_text(
            "from torch import nn\n"
            "def build(num_classes):\n"
            f"    return nn.Sequential(nn.Flatten(), nn.{act}(), nn.Linear(3072, num_classes))\n"
        )
        digests.append(resolve_trainable("fewnets:build", Bars(), epochs=1).plan.digest)
    assert digests[0] == digests[1] != digests[2]


def test_the_command_says_how_to_use_the_weights(ttabench: Run, nets: Path) -> None:
    line = ("train", "--archs", "ownnets:build", "--epochs", "1", "--workers", "0")
    output = ttabench(*line)
    assert output.code == 0, output.err
    assert "To use these weights: --archs ownnets:build --datasets digits-c --checkpoint " in output.out
    file = output.out.partition("--checkpoint ")[2].strip()
    assert Path(file).is_file()
    again = ttabench(*line)
    assert "trained already" in again.out
    assert file in again.out
    output = ttabench(
        "sweep", "--archs", "ownnets:build", "--checkpoint", file, "--methods", "bn_stats", "--corruptions",
        "fog", "--limit", "20", "--dry-run",
    )  # fmt: skip
    assert output.code == 0, output.err


def test_a_printed_path_with_a_space_is_quoted(capsys: pytest.CaptureFixture[str]) -> None:
    loaded = SimpleNamespace(path=Path("my cache/w.safetensors"))
    model: Any = SimpleNamespace(name="ownnets:build", dataset=Bars(), load=lambda: loaded)
    tell_checkpoint(model)
    assert capsys.readouterr().out.endswith("--checkpoint 'my cache/w.safetensors'\n")


@each(
    ("name", "says"),
    [
        ("aux", "ownnets:aux returns a value of type tuple while it is trained; expected only logits"),
        ("frozen", "no parameter of the network requires a gradient"),
    ],
)
def test_a_network_that_cannot_learn_is_one_sentence(nets: Path, name: str, says: str) -> None:
    nets.write_text(
        nets.read_text() + "def frozen(num_classes): return build(num_classes).requires_grad_(False)\n"
        "class aux(Wrapper):\n"
        "    def forward(self, x):\n"
        "        logits = self.model(x)\n"
        "        return (logits, logits) if self.training else logits\n"
    )
    bars = Bars()
    with pytest.raises(UserError, match=says):
        train(resolve_trainable(f"ownnets:{name}", bars, epochs=1).plan, bars)


def test_what_cannot_be_trained_is_one_sentence(nets: Path) -> None:
    for name, says in (
        ("timm/resnet18", "comes with weights and is not trained here"),
        ("ownnets:broken", "does not end in a linear layer"),
        ("ownnets:biuld", "did you mean 'build'"),
    ):
        with pytest.raises(UserError, match=says):
            resolve_trainable(name, Bars())
