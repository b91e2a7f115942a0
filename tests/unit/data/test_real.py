"""Real CIFAR-10 through the door for one's own data, and real networks on official and on our corruptions."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ttabench.classifier import Classifier
from ttabench.corruptions.by_name import DETERMINISTIC
from ttabench.corruptions.corruption_names import ALL_CORRUPTIONS
from ttabench.corruptions.engine import corrupt
from ttabench.corruptions.frost_textures import load_frost_textures
from ttabench.data import catalog
from ttabench.data.dataset import Dataset, Labelled
from ttabench.data.own.own_dataset_base import statistics
from ttabench.data.published.cifar_facts import CIFAR10_C
from ttabench.models.clean_accuracy import clean_accuracy

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        return importlib.import_module("real_cifar")


@pytest.fixture(scope="module")
def resnet20(shared: Path) -> Classifier:
    return _resnet(shared, 20)


def _resnet(shared: Path, depth: int) -> Classifier:
    import torch

    from ttabench.models.architectures.build import build
    from ttabench.models.checkpoints.weights import load_weights

    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    classifier = build(
        f"resnet{depth}", dataset="real-cifar10-local", num_classes=10, image_size=32, mean=mean, std=std
    )
    with np.load(shared / "data" / "weights" / f"cifar10-resnet{depth}.npz", allow_pickle=False) as file:
        tensors = {name.removeprefix("module."): torch.from_numpy(file[name]) for name in file.files}
    load_weights(classifier.net, tensors, f"cifar10-resnet{depth}")
    return classifier.eval()


def _right(classifier: Classifier, data: Labelled) -> int:
    import torch

    with torch.no_grad():
        return round(clean_accuracy(classifier, data) * len(data) / 100)


def _reference(shared: Path) -> dict[str, dict[str, object]]:
    return json.loads((shared / "corruptions" / "corruption-reference.json").read_text())


def test_the_clean_official_images_score_as_stated(
    shared: Path, script: ModuleType, resnet20: Classifier
) -> None:
    clean, _ = script.official(shared / "corruptions" / "cifar10c-official")
    assert _right(resnet20, clean) == 915  # 91.5 % of 1,000


@pytest.mark.slow
def test_the_test_images_of_cifar100_are_in_the_published_order(shared: Path, script: ModuleType) -> None:
    labels = script.read_split(shared / "data" / "cifar100", "test").labels
    assert labels[:10].tolist() == [49, 33, 72, 51, 71, 92, 15, 14, 23, 0]
    assert (np.bincount(labels) == 100).all()


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "right"), [(20, 9173), (56, 9339)])
def test_all_test_images_score_as_published_to_the_last_image(
    shared: Path, script: ModuleType, depth: int, right: int
) -> None:
    assert _right(_resnet(shared, depth), script.read_split(shared / "data" / "cifar10", "test")) == right


@pytest.mark.slow
def test_real_images_through_the_door_for_ones_own(
    shared: Path, script: ModuleType, resnet20: Classifier, tmp_path: Path
) -> None:
    data: Dataset = catalog.dataset(str(script.make_cifar10(shared, tmp_path)))
    assert data.name == "real-cifar10-local"
    assert data.corruptions == ALL_CORRUPTIONS
    assert (len(data.train()), len(data.test())) == (50_000, 1_000)
    stated = _reference(shared)["corruptions"]
    for corruption in ALL_CORRUPTIONS:
        official = stated[corruption]["severity"]["5"]["value"]["acc_resnet20"]
        assert _right(resnet20, data.corrupted(corruption, 5)) == round(10 * official), corruption


@pytest.mark.slow
def test_the_constants_of_cifar10_are_those_of_its_training_pixels(shared: Path, script: ModuleType) -> None:
    train = script.read_split(shared / "data" / "cifar10", "train")
    pixels = train.images.reshape(-1, 3) / np.float32(255)
    assert np.allclose(pixels.mean(axis=0, dtype=np.float64), CIFAR10_C.mean, atol=6e-5)
    assert np.allclose(pixels.std(axis=0, dtype=np.float64), CIFAR10_C.std, atol=6e-5)
    mean, std = statistics(train.images)
    assert np.allclose(mean, CIFAR10_C.mean, atol=0.01)
    assert np.allclose(std, CIFAR10_C.std, atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("corruption", ALL_CORRUPTIONS)
def test_our_corruptions_cost_a_network_what_the_official_ones_do(
    shared: Path, script: ModuleType, resnet20: Classifier, corruption: str
) -> None:
    clean, _ = script.official(shared / "corruptions" / "cifar10c-official")
    textures = load_frost_textures(shared / "data" / "frost")
    reference = _reference(shared)
    # Pillow's libjpeg-turbo decodes differently from the libjpeg of the official environment.
    variant = reference["variants"].get(f"{corruption}@libjpeg-turbo")
    entry = variant or reference["corruptions"][corruption]
    for severity in (1, 2, 3, 4, 5):
        images = corrupt(clean.images, corruption, severity, seed=0, frost_textures=textures)
        ours = _right(resnet20, Labelled(images, clean.labels)) / 10
        stated = entry["severity"][str(severity)]
        if corruption in DETERMINISTIC:
            limit, official = 0.1, stated["value"]["acc_resnet20"]  # one image of the 1,000
        else:
            pooled = entry["pooled_seed_std"]["acc_resnet20"]["absolute"]
            limit, official = 4 * (1 + 1 / 3) ** 0.5 * pooled, stated["seed_mean"]["acc_resnet20"]
        assert abs(ours - official) <= limit + 1e-9, f"{corruption}-{severity}: {ours} against {official}"
