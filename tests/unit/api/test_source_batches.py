"""Source images that a user hands over, against those that a sweep serves."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from tests.cases import each
from ttabench.api.source_batches import SourceBatches
from ttabench.classifier import Classifier
from ttabench.measure.source_access import SourceImages
from ttabench.method import Needs

NEEDS = Needs(source_data="images")
IMAGES = np.random.default_rng(0).integers(0, 256, (50, 4, 4, 3), dtype=np.uint8)
TENSORS = torch.from_numpy(IMAGES).permute(0, 3, 1, 2).float() / 255


def loader(shuffle: bool = False) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(TENSORS, torch.zeros(50)), 16, shuffle=shuffle)


def served(provider: SourceBatches | SourceImages, limit: int, shuffle: bool) -> Tensor:
    torch.manual_seed(3)
    return torch.cat(list(provider.batches(8, limit, shuffle)))


@each("batches", [lambda: TENSORS.split(7), loader])
@each("limit", [0, 20, 50, 80])
@each("shuffle", [False, True])
def test_a_request_gets_the_images_that_a_sweep_serves(
    batches: Callable[[], Iterable[object]], limit: int, shuffle: bool
) -> None:
    in_sweep = SourceImages(lambda: IMAGES, NEEDS)
    given = SourceBatches(batches(), NEEDS)
    assert torch.equal(served(given, limit, shuffle), served(in_sweep, limit, shuffle))
    assert given.served == in_sweep.served


@pytest.mark.parametrize("batches", [lambda: TENSORS.contiguous().split(7), loader])
@pytest.mark.parametrize("limit", [0, 20])
def test_the_images_have_the_layout_of_a_sweep(batches: Callable[[], Iterable[object]], limit: int) -> None:
    """In another one, convolutions round differently, and so do accuracies after many updates."""
    in_sweep = next(SourceImages(lambda: IMAGES, NEEDS).batches(8, limit))
    assert next(SourceBatches(batches(), NEEDS).batches(8, limit)).stride() == in_sweep.stride()


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_loader_leaves_the_random_numbers_of_the_method_as_they_are(shuffle: bool) -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    assert SourceBatches(loader(shuffle), NEEDS)._count(0) == 50
    assert torch.equal(torch.rand(3), expected)


def test_the_seed_decides_the_order_of_a_shuffled_loader() -> None:
    orders = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        orders.append(torch.cat(list(SourceBatches(loader(shuffle=True), NEEDS).batches(50))))
    assert torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[0], orders[2])


def test_entropies_are_those_of_the_last_layer_as_it_is_now() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 4), torch.nn.Flatten(), torch.nn.Linear(4, 3))
    classifier = Classifier(net, last="2").eval()
    given = SourceBatches(loader(), Needs(source_data="statistics"))
    before = given.entropies(classifier)
    with torch.no_grad():
        classifier.linear.weight.mul_(100)
    assert given.entropies(classifier).mean() < before.mean() / 2
