"""Channels that are constant on all source images, as real networks have them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ttabench
from ttabench.classifier import Classifier
from ttabench.measure import source_statistics
from ttabench_methods.aqr import AQR, levels, recalibrate, table

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
    found = source_statistics.quantiles(Classifier(net, last="fc"), lambda: [images(0), images(1)], levels())[
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


def test_a_channel_that_is_constant_but_for_rounding_is_not_changed() -> None:
    x = torch.full((4, 1, 9), 1e-42)
    x[0, 0, 0] = 2e-42
    quantiles = torch.randn(1, len(levels())).sort(dim=1).values
    scale, shift, entries = table(x.flatten(1)[:1], quantiles, AQR.Config().cells)
    assert all(each.isfinite().all() for each in (scale, shift, entries))
    assert recalibrate(x.clone(), quantiles, 128, 2048).abs().max() < 1e-41
