"""Channels that are constant on all source images, as real networks have them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ttabench
from ttabench.classifier import Classifier
from ttabench.measure import any_network, source_statistics
from ttabench.measure.source_access import BATCH
from ttabench.method import Needs
from ttabench_methods.aqr import levels, recalibrate

CONSTANT = (0.0, 1.5, -3e4, 1e-42)


class Net(nn.Module):
    """Batch norm whose first channels are constant: their weight is 0, or their input is."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.bn, self.fc = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 5)
        with torch.no_grad():
            self.bn.weight[: len(CONSTANT)] = 0
            self.bn.bias[: len(CONSTANT)] = torch.tensor(CONSTANT)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.bn(self.conv(x)).relu().mean((2, 3)))
        return logits


def images(seed: int) -> Tensor:
    return torch.rand(16, 3, 12, 12, generator=torch.Generator().manual_seed(seed))


def test_quantiles_of_a_constant_channel_are_its_value() -> None:
    net = Net().eval()
    found = any_network.quantiles(Classifier(net, last="fc"), lambda: [images(0), images(1)], levels())[
        "net.bn"
    ]
    assert torch.equal(found[: len(CONSTANT)], torch.tensor(CONSTANT)[:, None].expand(-1, len(levels())))
    assert found.isfinite().all()
    assert (found[len(CONSTANT) :].diff(dim=1) >= 0).all()


@pytest.mark.parametrize("method", ["aqr", "quantile_aqr"])
def test_networks_with_constant_channels_run(method: str) -> None:
    adapted = ttabench.adapt(Net(), method, source=[images(0)], image_size=12)
    assert adapted(images(2)).isfinite().all()


def test_the_other_channels_are_mapped_as_without_constant_ones() -> None:
    x = torch.randn(8, 6, 49)
    quantiles = torch.randn(6, len(levels())).sort(dim=1).values
    alone = recalibrate(x.clone(), quantiles, 128, 2048)
    with_constant = torch.cat([x, torch.tensor(CONSTANT)[None, :, None].expand(8, -1, 49)], dim=1)
    every = torch.cat([quantiles, torch.randn(len(CONSTANT), len(levels())).sort(dim=1).values])
    mapped = recalibrate(with_constant.clone(), every, 128, 2048)
    assert torch.equal(mapped[:, :6], alone)
    assert torch.equal(mapped[:, 6:], with_constant[:, 6:])


def test_quantiles_of_channels_that_vary_are_the_same_bit_for_bit() -> None:
    net = Net().eval()
    torch.nn.init.normal_(net.bn.weight)
    batches = [images(0), images(1)]
    one, other = (
        of(Classifier(net, last="fc"), lambda: batches, levels())
        for of in (any_network.quantiles, source_statistics.quantiles)
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


class Recorded(any_network.SourceOfAnyNetwork):
    """It notes the sizes of the batches that it reads."""

    def __init__(self, side: int, count: int) -> None:
        super().__init__(lambda: np.zeros((count, side, side, 3), np.uint8), Needs(source_data="images"))
        self.sizes: list[int] = []

    def _take(self, batch_size: int, limit: int, shuffle: bool = False) -> Iterator[Tensor]:
        for x in super()._take(batch_size, limit, shuffle):
            self.sizes.append(len(x))
            yield x


@pytest.mark.parametrize(("side", "most"), [(64, 500), (224, 40), (1449, 1)])
def test_a_summary_reads_as_many_images_at_once_as_their_size_allows(side: int, most: int) -> None:
    source = Recorded(side, most + 1)
    mean, _ = source.channels()
    assert mean.abs().max() == 0
    assert source.sizes == [most, 1]


def test_a_method_that_asks_for_batches_of_images_gets_them_whole() -> None:
    source = Recorded(224, BATCH)
    (batch,) = source.batches(BATCH)
    assert len(batch) == BATCH
