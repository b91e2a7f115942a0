"""What docs/imagenet.md says of methods with few images of each of 1,000 classes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from ttabench.classifier import Architecture, Classifier
from ttabench_methods.memory import CSTU, Item
from ttabench_methods.t3a import T3A
from ttabench_methods.ttac import TTAC, TTACConfig

CLASSES = 1000


@pytest.fixture(scope="module")
def net() -> Classifier:
    torch.manual_seed(0)
    return Classifier.wrap(nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.Linear(8, CLASSES)), 4)


def test_prototypes_of_classes_without_a_prediction_are_the_rows_of_the_last_layer(net: Classifier) -> None:
    method, x = T3A(net), torch.rand(50, 3, 4, 4)
    method.prepare(None)
    logits, predicted = method.adapt(x), net(x).argmax(1)
    rows = normalize(net.linear.weight, dim=1)
    others = sorted({*range(CLASSES)} - {*predicted.tolist()})
    expected = net.features(x) @ rows.T
    assert torch.allclose(logits[:, others], expected[:, others], atol=1e-5)


def test_a_memory_of_64_has_one_image_of_a_class_at_most() -> None:
    memory, draw = CSTU(64, CLASSES), torch.Generator().manual_seed(0)
    for arrival, label in enumerate(torch.randint(CLASSES, (500,), generator=draw).tolist()):
        memory.insert(Item(torch.zeros(3, 1, 1), arrival, 0.5), label)
    assert max(map(len, memory.classes)) == 1
    assert len(memory) == 64


@pytest.mark.parametrize(("features", "whole_alone"), [(447, False), (448, True)])
def test_ttac_leaves_classes_out_where_their_covariances_are_large(features: int, whole_alone: bool) -> None:
    settings = TTAC.for_architecture(Architecture(num_classes=CLASSES, num_features=features))
    assert settings == ({"classes": False} if whole_alone else {})
    assert TTACConfig().class_min == 16
