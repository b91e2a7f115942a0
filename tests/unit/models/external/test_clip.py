"""``clip/NAME.WEIGHTS``: a stand-in of open_clip with a CLIP-shaped network and random weights."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from tests.unit.conftest import Run
from tests.unit.models.test_bring import Squares
from tests.unit.models_by_name import bring, construct
from ttabench.conformance import conform
from ttabench.data.dataset import Dataset
from ttabench.errors import UserError
from ttabench.models.external.clip import ClipModel, FrozenLinear
from ttabench.models.external.clip_prompts import class_names, prompts, prompts_sha256
from ttabench.models.resolve import resolve_model
from ttabench.provenance import libraries
from ttabench.registry import method
from ttabench.store import load_frame

NAME = "clip/Tiny-ViT.openai"
MEAN = (0.4, 0.5, 0.6)  # of these weights; the encoder's own is that of other ones


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.mix = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mix(self.ln_1(x)).mean(dim=1, keepdim=True)
        return x + self.mlp(self.ln_2(x))


class Tower(nn.Module):
    """The image encoder: patches, a class token, blocks, layer norm, and a projection that is a parameter."""

    image_size = (32, 32)
    image_mean, image_std = (0.1, 0.1, 0.1), (0.2, 0.3, 0.25)

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 24, 8, 8, bias=False)
        self.class_embedding = nn.Parameter(torch.randn(24))
        self.resblocks = nn.Sequential(Block(24), Block(24))
        self.ln_post = nn.LayerNorm(24)
        self.proj = nn.Parameter(torch.randn(24, 16) / 5)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.conv1(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_embedding.expand(len(x), 1, -1), tokens], dim=1)
        return self.ln_post(self.resblocks(tokens))[:, 0] @ self.proj


class Clip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.visual = Tower()
        self.text = nn.Embedding(256, 16)
        self.logit_scale = nn.Parameter(torch.tensor(3.0))

    def encode_text(self, tokens: Tensor) -> Tensor:
        return self.text(tokens).mean(dim=1)


def tokens(sentences: list[str]) -> Tensor:
    return torch.tensor([list(sentence.encode().ljust(64)) for sentence in sentences])


@pytest.fixture
def open_clip(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Counts how often a model was made, with its weights and without."""
    made = {"openai": 0, "random": 0}

    def create_model(
        name: str, pretrained: str | None, force_quick_gelu: bool, pretrained_text: bool
    ) -> Clip:
        assert force_quick_gelu
        assert not pretrained_text
        made[pretrained or "random"] += 1
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5 if pretrained else made["random"])
            return Clip()

    module: Any = types.ModuleType("open_clip")
    module.create_model, module.get_tokenizer = create_model, lambda name: tokens
    module.list_models = lambda: ["Tiny-ViT"]
    module.list_pretrained_tags_by_model = lambda name: ["openai"]
    module.get_pretrained_cfg = lambda name, tag: {"quick_gelu": True, "mean": MEAN}
    module.get_model_config = lambda name: {}
    module.IMAGENET_CLASSNAMES = [f"thing {k}" for k in range(1000)]
    monkeypatch.setitem(sys.modules, "open_clip", module)
    return made


class Named(Squares):
    """Class folders have names."""

    classes = ("upper_left", "upper_right", "lower_left", "lower_right")


def test_the_head_is_that_of_the_text(open_clip: dict[str, int]) -> None:
    classifier = construct(NAME, Named(), pretrained=True).eval()
    torch.manual_seed(5)
    clip = Clip().eval()
    x = torch.rand(6, 3, 32, 32)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, Tower.image_std))
    with torch.no_grad():
        z = normalize(clip.visual((x - mean) / std), dim=1)
        text = tokens([f"a photo of a {name.replace('_', ' ')}." for name in Named.classes])
        expected = clip.logit_scale.exp() * z @ normalize(clip.encode_text(text), dim=1).T
        torch.testing.assert_close(classifier(x), expected)
        torch.testing.assert_close(classifier.features(x), z)
        torch.testing.assert_close(classifier.head(z), expected)


def test_the_head_is_frozen_and_part_of_the_weights(open_clip: dict[str, int]) -> None:
    classifier = construct(NAME, Named(), pretrained=True)
    assert isinstance(classifier.linear, FrozenLinear)
    assert not [name for name, _ in classifier.named_parameters() if "head" in name]
    assert {"net.head.weight", "net.head.bias"} <= set(classifier.state_dict())
    arch = classifier.architecture()
    assert (arch.norm_layers, arch.num_classes, arch.num_features) == (("layer",), 4, 16)
    assert "transformer" in arch.tags


def test_other_names_of_classes_are_other_weights(open_clip: dict[str, int]) -> None:
    class Renamed(Named):
        name = "renamed-c"
        classes = ("a", "b", "c", "d")

    one, other = bring(NAME, Named()), bring(NAME, Renamed())
    assert one.sha256 != other.sha256
    assert one.note["prompts"] == ["a photo of a {}."]
    assert one.note["classes"] == ["upper left", "upper right", "lower left", "lower right"]
    assert one.note["prompts_sha256"] == prompts_sha256(prompts(class_names(Named())))
    assert one.note["prompts_sha256"] != other.note["prompts_sha256"]


def test_it_is_made_again_from_the_cache_without_the_text(open_clip: dict[str, int]) -> None:
    loaded = bring(NAME, Named())
    assert open_clip["openai"] == 1
    again = resolve_model(NAME, Named()).recall(loaded.sha256)
    assert again is not None
    assert open_clip["openai"] == 1
    x = torch.rand(4, 3, 32, 32)
    assert torch.equal(again.classifier.eval()(x), loaded.classifier.eval()(x))


def test_images_of_another_size_are_resized_inside(open_clip: dict[str, int]) -> None:
    class Large(Named):
        image_size = 48

    classifier = construct(NAME, Large(), pretrained=True).eval()
    assert classifier(torch.rand(2, 3, 48, 48)).shape == (2, 4)


@pytest.mark.parametrize(
    ("dataset", "first"), [("cifar10-c", "airplane"), ("digits-c", "number 0"), ("imagenet-c", "thing 0")]
)
def test_classes_have_names(open_clip: dict[str, int], dataset: str, first: str) -> None:
    class One(Squares):
        name = dataset

    assert class_names(One())[0] == first


def test_class_folders_of_own_data_come_before_what_its_name_is_like(open_clip: dict[str, int]) -> None:
    class Own(Named):
        name = "imagenet-4-local"

    assert class_names(Own()) == ("upper left", "upper right", "lower left", "lower right")


def test_mistakes_get_one_sentence(open_clip: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"expected clip/Tiny-ViT\.WEIGHTS with one of openai"):
        construct("clip/Tiny-ViT", Named())
    with pytest.raises(UserError, match="did you mean 'Tiny-ViT'"):
        construct("clip/Tiny-ViTT.openai", Named())
    with pytest.raises(UserError, match="the classes of squares-c have no names"):
        construct(NAME, Squares())

    class Few(Squares):
        name = "cifar10-c"

    with pytest.raises(UserError, match="has 4 classes and 10 names"):
        construct(NAME, Few())
    monkeypatch.setattr("open_clip.get_pretrained_cfg", lambda name, tag: {})
    monkeypatch.setattr("open_clip.get_model_config", lambda name: {"quick_gelu": True})
    with pytest.raises(UserError, match="were trained without it"):
        construct(NAME, Named())
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(UserError, match=r"pip install 'ttabench\[clip\]'"):
        construct(NAME, Named())


def test_its_package_is_recorded() -> None:
    assert {"open-clip-torch", "timm"} <= set(libraries("source", NAME))


class Five(Named):
    """As many classes as the networks of `ttabench conform`."""

    num_classes = 5
    classes = (*Named.classes, "middle")


# Each kind of work: norm layers, sharpness, a teacher that learns everything, features, prototypes, prompts.
METHODS = (
    "tent",
    "actmad_vit",
    "t3a",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("cotta", "foa")),
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")
@pytest.mark.parametrize("name", METHODS)
def test_methods_that_run_on_a_linear_head_run_on_it(
    open_clip: dict[str, int], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier = construct(NAME, Five(), pretrained=True).eval()
    monkeypatch.setattr("ttabench.conformance.run.nets", lambda: {"CLIP": classifier})
    settings = {"cotta": {"views": "2"}}.get(name)
    wrong = [f"{check.name}: {check.detail}" for check in conform(method(name), settings) if not check.ok]
    assert wrong == []


def test_it_is_swept(open_clip: dict[str, int], ttabench: Run, tmp_path: Path) -> None:
    what = ("--methods", "tent,cotta", "--archs", NAME, "--corruptions", "fog", "--limit", "20")
    output = ttabench("sweep", *what, "--batch-size", "10", "--workers", "0", "--out", tmp_path / "r")
    assert output.code == 0, output.err
    cells = load_frame(tmp_path / "r")
    assert set(cells["status"]) == {"ok"}
    assert len(cells) == 3
    assert isinstance(resolve_model(NAME, digits()), ClipModel)


def digits() -> Dataset:
    from ttabench.data.catalog import dataset

    return dataset("digits-c")
