"""Labels that belong to other images are found by a network that is sure on clean images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from tests.cases import each
from ttabench.classifier import Classifier
from ttabench.data.dataset import Labelled
from ttabench.models.clean_accuracy import input_warning
from ttabench.models.input_trials import predictions
from ttabench.models.label_noise import noisy_labels

COUNT = 1000


def network(scale: float, classes: int = 10, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Probabilities of a calibrated network, and labels drawn from them; sure if `scale` is large."""
    rng = np.random.default_rng(seed)
    logits = scale * rng.random((COUNT, classes)) ** (0.4 * classes)
    probabilities = softmax(logits)
    labels = (probabilities.cumsum(axis=1) > rng.random((COUNT, 1))).argmax(axis=1)
    return probabilities, labels


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float32]:
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (p / p.sum(axis=1, keepdims=True)).astype(np.float32)


def shuffled(labels: NDArray[np.int64], share: float, seed: int = 1) -> NDArray[np.int64]:
    rng = np.random.default_rng(seed)
    some = np.flatnonzero(rng.random(len(labels)) < share)
    mixed = labels.copy()
    mixed[some] = labels[rng.permutation(some)]
    return mixed


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("share", [0.2, 0.4])
def test_shuffled_labels_are_found_and_counted(share: float, classes: int) -> None:
    probabilities, labels = network(40, classes)
    found = noisy_labels(probabilities, shuffled(labels, share))
    assert "seem to belong to other images" in found
    told = float(found.partition("about ")[2].partition(" %")[0])
    assert abs(told - 100 * share * (1 - 1 / classes)) < 8


def test_all_labels_of_other_images() -> None:
    probabilities, labels = network(40)
    assert "it is wrong nearly as often as on the others" in noisy_labels(probabilities, np.roll(labels, 1))


@each("scale", [0, 2, 5, 10, 40])
@each("sharper", [1, 3, 10])
def test_no_network_with_right_labels_is_doubted(scale: float, sharper: float) -> None:
    """Weak ones, guessing ones, and those that are more sure than they should be."""
    probabilities, labels = network(scale)
    overconfident = softmax(sharper * np.log(probabilities.astype(float)))
    assert noisy_labels(overconfident, labels) == ""


def test_few_images_or_classes_say_nothing() -> None:
    probabilities, labels = network(40)
    assert noisy_labels(probabilities[:50], shuffled(labels, 0.4)[:50]) == ""
    two, labels = network(40, classes=2)
    assert noisy_labels(two, shuffled(labels, 0.4)) == ""


def reading(scale: float) -> Classifier:
    """A network whose logits stand in the red channel of images of 4 pixels."""
    linear = nn.Linear(48, 10)
    with torch.no_grad():
        linear.weight.zero_()[:, :10] = scale * torch.eye(10)
        linear.bias.zero_()
    return Classifier(nn.Sequential(nn.Flatten(), linear), last="1").eval()


def test_a_network_from_elsewhere_is_told_of_shuffled_labels() -> None:
    rng = np.random.default_rng(0)
    images = (255 * rng.random((COUNT, 4, 4, 3)) ** 4).astype(np.uint8)
    classifier = reading(40)
    guesses = predictions(classifier, Labelled(images, np.zeros(COUNT, np.int64)))
    right = input_warning(classifier, Labelled(images, guesses), guesses, None, "cpu")
    assert right == ("", False)
    text, close = input_warning(classifier, Labelled(images, shuffled(guesses, 0.4)), guesses, None, "cpu")
    assert not close
    assert text.startswith("clean accuracy is 6")
    assert "% of the labels seem to belong to other images" in text
    claimed, _ = input_warning(classifier, Labelled(images, shuffled(guesses, 0.4)), guesses, 99.0, "cpu")
    assert "but 99.00 % is claimed; the network's mean confidence is" in claimed


@pytest.mark.slow
def test_a_real_network_on_real_images(shared: Path, tmp_path: Path) -> None:
    from tests.unit.data.test_real import _resnet

    images, labels = _some_of_cifar10(shared)
    classifier = _resnet(shared, 20)
    with torch.no_grad():
        x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
        sound, upside_down = (classifier(each).softmax(1).numpy() for each in (x, x.flip(2)))
    assert noisy_labels(sound, labels) == ""
    assert noisy_labels(upside_down, labels) == ""
    assert "seem to belong to other images" in noisy_labels(sound, shuffled(labels, 0.4))


def _some_of_cifar10(shared: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Every tenth test image."""
    from PIL import Image

    mosaic = np.asarray(Image.open(shared / "data" / "cifar10" / "test.webp").convert("RGB"))
    tiles = mosaic.reshape(100, 32, 100, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3)
    with np.load(shared / "data" / "cifar10" / "labels.npz", allow_pickle=False) as file:
        return np.ascontiguousarray(tiles[::10]), file["test"][::10].astype(np.int64)
