"""Architectures: published names and shapes, the equations, presets."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.cases import each
from ttabench.classifier import Classifier
from ttabench.errors import UserError
from ttabench.models.architectures.arch_names import ARCHS, MEMBERS, PRESETS, resolve, usual_name
from ttabench.models.architectures.build import build
from ttabench.models.checkpoints.weights import load_weights
from ttabench.models.resolve import resolve_model

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def make(arch: str, *, dataset: str = "any-c", size: int = 32, classes: int = 10) -> Classifier:
    torch.manual_seed(0)
    return build(arch, dataset=dataset, num_classes=classes, image_size=size, **IMAGENET)


def published_shapes(layers: int, dim: int, hidden: int, classes: int) -> dict[str, tuple[int, ...]]:
    """What the published Compact-Transformers files hold behind the tokenizer, positions left out."""
    shapes: dict[str, tuple[int, ...]] = {
        "classifier.norm.weight": (dim,),
        "classifier.norm.bias": (dim,),
        "classifier.fc.weight": (classes, dim),
        "classifier.fc.bias": (classes,),
    }
    for i in range(layers):
        block = {
            "pre_norm.weight": (dim,),
            "pre_norm.bias": (dim,),
            "self_attn.qkv.weight": (3 * dim, dim),
            "self_attn.proj.weight": (dim, dim),
            "self_attn.proj.bias": (dim,),
            "linear1.weight": (hidden, dim),
            "linear1.bias": (hidden,),
            "norm1.weight": (dim,),
            "norm1.bias": (dim,),
            "linear2.weight": (dim, hidden),
            "linear2.bias": (dim,),
        }
        shapes |= {f"classifier.blocks.{i}.{name}": shape for name, shape in block.items()}
    return shapes


SEQ_POOL = {"classifier.attention_pool.weight": (1, 256), "classifier.attention_pool.bias": (1,)}
CCT_7 = {
    "tokenizer.conv_layers.0.0.weight": (256, 3, 3, 3),
    "classifier.positional_emb": (1, 256, 256),
    **SEQ_POOL,
}
PATCHES = {"tokenizer.conv_layers.0.0.weight": (256, 3, 4, 4), "tokenizer.conv_layers.0.0.bias": (256,)}
PUBLISHED = {
    "cct_7_3x1_32": CCT_7 | published_shapes(7, 256, 512, 10),
    "cct_7_3x1_32_sine": CCT_7 | published_shapes(7, 256, 512, 10),
    "cct_7_3x1_32_c100": CCT_7 | published_shapes(7, 256, 512, 100),
    "cct_2_3x2_32": {
        "tokenizer.conv_layers.0.0.weight": (64, 3, 3, 3),
        "tokenizer.conv_layers.1.0.weight": (128, 64, 3, 3),
        "classifier.positional_emb": (1, 64, 128),
        "classifier.attention_pool.weight": (1, 128),
        "classifier.attention_pool.bias": (1,),
    }
    | published_shapes(2, 128, 128, 10),
    "cvt_7_4_32": PATCHES
    | {"classifier.positional_emb": (1, 64, 256)}
    | SEQ_POOL
    | published_shapes(7, 256, 512, 10),
    "vit_7_4_32": PATCHES
    | {"classifier.positional_emb": (1, 65, 256), "classifier.class_emb": (1, 1, 256)}
    | published_shapes(7, 256, 512, 10),
}


@each("name", PUBLISHED)
def test_state_dict_is_that_of_the_published_file(name: str) -> None:
    expected = PUBLISHED[name]
    net = make(name, classes=100 if name.endswith("c100") else 10).net
    assert {k: tuple(v.shape) for k, v in net.state_dict().items()} == expected
    load_weights(net, {k: torch.ones(shape) for k, shape in expected.items()}, "the published file")
    assert all(bool((p == 1).all()) for p in net.parameters())


# Millions of parameters as the papers print them.
@each(
    ("name", "millions"),
    [
        ("cct_2_3x2_32", "0.284"), ("cct_4_3x2_32", "0.482"), ("cct_6_3x2_32", "3.327"),
        ("cct_7_3x2_32", "3.853"), ("cct_7_3x1_32", "3.760"), ("cvt_6_4_32", "3.190"),
        ("cvt_7_4_32", "3.717"), ("vit_6_4_32", "3.191"), ("vit_7_4_32", "3.717"),
    ],
)  # fmt: skip
def test_compact_transformers_have_the_papers_sizes(name: str, millions: str) -> None:
    assert f"{make(name).architecture().parameters / 1e6:.3f}" == millions


@pytest.mark.parametrize(
    ("name", "millions"), [("resnet20", "0.27"), ("resnet56", "0.85"), ("resnet110", "1.7")]
)
def test_cifar_resnets_have_the_papers_sizes(name: str, millions: str) -> None:
    digits = len(millions.split(".")[1])
    assert f"{make(name).architecture().parameters / 1e6:.{digits}f}" == millions


def compact_forward(w: dict[str, Tensor], x: Tensor, heads: int, convs: int, patch: int) -> Tensor:
    """CCT, CVT and ViT-Lite from their equations, on a state dict."""
    for i in range(max(convs, 1)):
        kernel = w[f"tokenizer.conv_layers.{i}.0.weight"]
        if patch:
            x = F.conv2d(x, kernel, w[f"tokenizer.conv_layers.{i}.0.bias"], stride=patch)
        else:
            x = F.max_pool2d(F.conv2d(x, kernel, padding=1).relu(), 3, 2, 1)
    z = x.flatten(2).mT
    c = {k.removeprefix("classifier."): v for k, v in w.items()}
    if "class_emb" in c:
        z = torch.cat([c["class_emb"].repeat(len(z), 1, 1), z], 1)
    z = z + c["positional_emb"]
    d = z.shape[-1]

    def norm(z: Tensor, name: str) -> Tensor:
        centred = z - z.mean(-1, keepdim=True)
        return (
            centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * c[f"{name}.weight"]
            + c[f"{name}.bias"]
        )

    i = 0
    while f"blocks.{i}.norm1.weight" in c:
        b = f"blocks.{i}"
        q, k, v = (norm(z, f"{b}.pre_norm") @ c[f"{b}.self_attn.qkv.weight"].T).split(d, dim=-1)
        mixed = []
        for h in range(heads):
            part = slice(h * d // heads, (h + 1) * d // heads)
            weights = (q[..., part] @ k[..., part].mT / (d // heads) ** 0.5).softmax(-1)
            mixed.append(weights @ v[..., part])
        attended = torch.cat(mixed, -1) @ c[f"{b}.self_attn.proj.weight"].T + c[f"{b}.self_attn.proj.bias"]
        z = norm(z + attended, f"{b}.norm1")
        hidden = F.gelu(z @ c[f"{b}.linear1.weight"].T + c[f"{b}.linear1.bias"])
        z = z + hidden @ c[f"{b}.linear2.weight"].T + c[f"{b}.linear2.bias"]
        i += 1
    z = norm(z, "norm")
    if "class_emb" in c:
        pooled = z[:, 0]
    else:
        importance = (z @ c["attention_pool.weight"].T + c["attention_pool.bias"]).softmax(1)
        pooled = (importance * z).sum(1)
    return pooled @ c["fc.weight"].T + c["fc.bias"]


@pytest.mark.parametrize(
    ("name", "heads", "convs", "patch"),
    [
        ("cct_2_3x2_32", 2, 2, 0),
        ("cct_6_3x1_32_sine", 4, 1, 0),
        ("cvt_2_4_32", 2, 0, 4),
        ("vit_6_4_32", 4, 0, 4),
    ],
)
def test_compact_transformers_compute_their_equations(name: str, heads: int, convs: int, patch: int) -> None:
    net = make(name).net.double()
    with torch.no_grad():
        for parameter in net.parameters():  # zeros and ones would hide a wrong bias or a missing norm
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    x = torch.randn(3, 3, 32, 32, dtype=torch.float64)
    reference = compact_forward(net.state_dict(), x, heads, convs, patch)
    torch.testing.assert_close(net(x), reference, rtol=1e-9, atol=1e-9)


def test_sine_positions_are_fixed_and_alternate() -> None:
    positions = make("cct_7_3x1_32_sine").net.get_parameter("classifier.positional_emb")
    assert not positions.requires_grad
    torch.testing.assert_close(positions[0, 0], torch.tensor([0.0, 1.0]).repeat(128))
    torch.testing.assert_close(positions[0, 5, :2], torch.tensor([np.sin(5), np.cos(5)]).float())
    slow = 5 / 10000 ** (254 / 256)  # the last pair of 256 channels
    torch.testing.assert_close(positions[0, 5, -2:], torch.tensor([np.sin(slow), np.cos(slow)]).float())


GENERAL = [
    (a, d, s) for d, s in (("digits-c", 32), ("cifar100-c", 32), ("tinyimagenet-c", 64)) for a in ARCHS
]


@each(("arch", "dataset", "size"), GENERAL)
def test_presets_classify(arch: str, dataset: str, size: int) -> None:
    classifier = make(arch, dataset=dataset, size=size, classes=17)
    x = torch.rand(2, 3, size, size)
    with torch.no_grad():
        z, logits = classifier.features_and_logits(x)
        assert logits.shape == (2, 17)
        assert z.shape == (2, classifier.num_features)
        torch.testing.assert_close(classifier.head(classifier.features(x)), classifier(x))
        assert torch.equal(classifier(x), logits)  # eval mode: nothing random, no state
    kinds = classifier.architecture()
    assert kinds.norm_layers == (("batch",) if arch == "resnet18" else ("layer",))
    assert ("transformer" in kinds.tags) == (arch != "resnet18")
    assert ("class_token" in kinds.tags) == (arch == "vit_lite")


def test_dropout_and_stochastic_depth_act_in_training_only() -> None:
    classifier = make("cvt_2_4_32")
    x = torch.rand(64, 3, 32, 32)
    with torch.no_grad():
        expected = classifier(x)
        classifier.train()
        first, second = classifier(x), classifier(x)
        assert not torch.equal(first, second)
        assert torch.equal(classifier.eval()(x), expected)


def test_normalisation_is_inside() -> None:
    classifier = make("resnet20")
    x = torch.rand(2, 3, 32, 32)
    mean, std = (torch.tensor(IMAGENET[k]).view(3, 1, 1) for k in ("mean", "std"))
    torch.testing.assert_close(classifier(x), classifier.net((x - mean) / std))


@each(
    ("name", "canonical"),
    [
        ("cct_7_3x1", "cct_7_3x1_32"), ("cct_7_3x1_sine", "cct_7_3x1_32_sine"), ("cvt_2_4", "cvt_2_4_32"),
        ("vit_lite_7_4", "vit_7_4_32"), ("vit_lite_7_4_32_sine", "vit_7_4_32_sine"), ("resnet20", "resnet20"),
    ],
)  # fmt: skip
def test_names_may_be_short(name: str, canonical: str) -> None:
    assert resolve(name, dataset="any-c", image_size=32).name == canonical


@each(
    ("name", "size", "canonical"),
    [
        ("cct_2", 32, "cct_2_3x2_32"), ("cct_4", 64, "cct_4_3x2_64"), ("cct_6", 32, "cct_6_3x1_32"),
        ("cct_7", 32, "cct_7_3x1_32"), ("cct_7", 64, "cct_7_3x2_64"), ("cct_7", 224, "cct_7_7x2_224"),
        ("cct_14", 224, "cct_14_7x2_224"), ("cct_14", 384, "cct_14_7x2_384"), ("cvt_7", 32, "cvt_7_4_32"),
        ("cvt_2", 64, "cvt_2_4_64"), ("vit_2", 32, "vit_2_4_32"), ("vit_lite_2", 32, "vit_2_4_32"),
        ("vit_lite_7", 64, "vit_7_4_64"), ("cct_7_sine", 32, "cct_7_3x1_32_sine"),
        ("CCT-7", 32, "cct_7_3x1_32"), ("ViT-Lite", 32, "vit_7_4_32"),
    ],
)  # fmt: skip
def test_a_depth_alone_is_the_member_its_authors_publish(name: str, size: int, canonical: str) -> None:
    assert resolve(name, dataset="any-c", image_size=size).name == canonical


@each("general", ["cct", "cvt", "vit_lite"])
@each("size", [32, 64])
def test_the_preset_is_what_its_depth_stands_for(general: str, size: int) -> None:
    assert resolve(general, dataset="", image_size=size) == resolve(
        f"{general}_7", dataset="", image_size=size
    )


def test_a_classifier_is_found_under_its_short_and_its_long_name() -> None:
    from tests.unit.models_by_name import plan
    from ttabench.data.digits import Digits

    for short, long in (("cct_2", "cct_2_3x2_32"), ("vit_lite_2", "vit_2_4_32"), ("cct", "cct_2")):
        assert plan(short, Digits()).path == plan(long, Digits()).path


def test_every_preset_is_a_member() -> None:
    assert {member for preset in PRESETS.values() for member in preset.values()} <= set(MEMBERS)


@each(
    ("arch", "says"),
    [
        ("resnet81", "did you mean 'resnet18'"),
        ("cct_7_3x1_64", "made for 64 pixels, but any-c has 32"),
        ("cct_7_3x1_32_c100", "made for 100 classes, but any-c has 10"),
        ("cvt_3_4", "unknown architecture 'cvt_3_4'"),
        ("cct_9", "unknown architecture 'cct_9'; did you mean 'cct_7', 'cct_6' or 'cct_4'?"),
        ("cct_14", "cct_14 is not made for images of 32 pixels; there are cct_14_7x2_224, cct_14_7x2_384"),
    ],
)
def test_wrong_names_are_explained(arch: str, says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        make(arch)


def test_an_unknown_name_does_not_bring_all_names_there_are() -> None:
    with pytest.raises(UserError, match=r"See `ttabench list archs`\.$") as caught:
        make("cct_7_3x1_23")
    assert len(str(caught.value)) < 200


def test_general_name_without_a_preset_says_what_there_is() -> None:
    with pytest.raises(
        UserError, match=r"resnet18 has no preset for imagenet-c .* exact name, such as resnet18_w8"
    ):
        resolve("resnet18", dataset="imagenet-c", image_size=224)
    assert resolve("resnet18_w8", dataset="imagenet-c", image_size=224).name == "resnet18_w8"


# ---- the real networks of He et al.


def real_resnet(shared: Path, depth: int) -> Classifier:
    classifier = make(f"resnet{depth}")
    with np.load(shared / "data" / "weights" / f"cifar10-resnet{depth}.npz", allow_pickle=False) as file:
        tensors = {k.removeprefix("module."): torch.from_numpy(file[k]) for k in file.files}
    load_weights(classifier.net, tensors, f"cifar10-resnet{depth}")
    return classifier


def real_test_images(shared: Path) -> tuple[Tensor, Tensor]:
    from PIL import Image

    folder = shared / "data" / "cifar10"
    mosaic = np.asarray(Image.open(folder / "test.webp").convert("RGB"))
    tiles = mosaic.reshape(100, 32, 100, 32, 3).transpose(0, 2, 1, 3, 4).reshape(-1, 32, 32, 3).copy()
    exact = np.load(folder / "exact.npz", allow_pickle=False)
    tiles[exact["test_index"]] = exact["test_images"]
    labels = np.load(folder / "labels.npz", allow_pickle=False)["test"]
    return torch.from_numpy(tiles), torch.from_numpy(labels.astype(np.int64))


def right(classifier: Classifier, images: Tensor, labels: Tensor) -> int:
    with torch.no_grad():
        logits = [classifier(part.permute(0, 3, 1, 2).float() / 255) for part in images.split(500)]
    return int((torch.cat(logits).argmax(1) == labels).sum())


def test_real_resnet20_on_real_images(shared: Path) -> None:
    images, labels = real_test_images(shared)
    # 91.73 % of all 10,000; the standard error of 500 is 1.2 points, and a wrong shortcut costs tens.
    assert right(real_resnet(shared, 20), images[:500], labels[:500]) > 0.88 * 500


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "published"), [(20, 9173), (56, 9339)])
def test_real_resnets_reproduce_their_accuracy_to_the_last_image(
    shared: Path, depth: int, published: int
) -> None:
    assert right(real_resnet(shared, depth), *real_test_images(shared)) == published


@pytest.mark.parametrize(
    ("dataset", "size"),
    [("digits-c", 32), ("cifar10-c", 32), ("tinyimagenet-c", 64), ("images-c-local", 224)],
)
def test_a_network_has_one_name_whatever_it_was_asked_for_by(dataset: str, size: int) -> None:
    data: Any = SimpleNamespace(name=dataset, image_size=size, num_classes=10)
    for member in MEMBERS.values():
        if member.image_size not in (0, size) or member.num_classes not in (0, 10):
            continue
        usual = usual_name(member, dataset=dataset, image_size=size)
        assert resolve(usual, dataset=dataset, image_size=size) == member
        assert resolve_model(member.name, data).name == resolve_model(usual, data).name == usual
    general = PRESETS.get(dataset) or PRESETS[size]
    assert {resolve_model(full, data).name for full in general.values()} == {*general}
