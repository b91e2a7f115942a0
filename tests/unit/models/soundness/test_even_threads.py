"""Threads share batches evenly where torch would overwrite memory otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from tests.cases import each
from ttabench.models.soundness.even_threads import even_threads


@pytest.fixture(autouse=True)
def _four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def projection(channels: int = 8, size: int = 1, stride: int = 2) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, 16, size, stride=stride))


@each("net, images, threads", [
    (projection(), 18, 3), (projection(), 16, 4), (projection(), 17, 1), (projection(), 1, 1),
    (projection(channels=16), 17, 4), (projection(size=3), 17, 4), (projection(stride=1), 17, 4),
])  # fmt: skip
def test_threads_divide_the_batch_of_a_network_with_such_a_layer(
    net: nn.Module, images: int, threads: int
) -> None:
    with even_threads(net, images):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 4
