"""Layer norms for images have many classes; methods that look at channels find these in each of them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

import ttabench
from tests.cases import each
from ttabench.classifier import Classifier
from ttabench.models.external.image_norms import name_image_norms
from ttabench.nn import by_channel, norm_modules
from ttabench.registry import method as find
from ttabench.run.prepared_method import prepared_method


class LayerNorm2d(nn.LayerNorm):
    """As timm's, whose name ttabench knows."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class LayerNorm2dNoBias(LayerNorm2d):
    """As in timm's CAFormer."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, bias=False)


class RMSNorm(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(x, dim=1) * self.weight[:, None, None]


class OneWeight(RMSNorm):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(x, dim=-1) * self.weight


OneWeight.__name__ = "RMSNorm"


class OfTokens(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 1


class Net(nn.Module):
    def __init__(self, norm: Any, channels: int = 6) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, channels, 3), norm(channels), nn.Linear(channels, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.norm(self.conv(x)).relu().mean((2, 3)))  # type: ignore[no-any-return]


def images() -> Tensor:
    x = torch.rand(6, 3, 10, 12, generator=torch.Generator().manual_seed(0))
    return x.contiguous(memory_format=torch.channels_last)


def test_aqr_maps_the_channels_of_images_whatever_the_class_of_the_layer_norm() -> None:
    torch.manual_seed(0)
    known = Net(LayerNorm2d)
    other = copy.deepcopy(known)
    other.norm.__class__ = type("Other", (LayerNorm2d,), {})
    found = [
        ttabench.adapt(net, "aqr", image_size=12, source=[images().flip(0) / 2])(images())
        for net in (known, other)
    ]
    assert torch.equal(found[0], found[1])
    assert type(other.norm).__name__ == "Other"  # the user's network is as it was


@each("norm, channels", [(LayerNorm2d, 6), (LayerNorm2dNoBias, 6), (LayerNorm2dNoBias, 2), (RMSNorm, 6)])
def test_channels_of_images_are_found(norm: Any, channels: int) -> None:
    net = Net(norm, channels)
    before = net(images())
    name_image_norms(net)
    ((_, layer),) = norm_modules(net)
    assert by_channel(layer, layer(net.conv(images()))).shape == (6, channels, 80)
    assert torch.equal(net(images()), before)
    assert type(layer).__module__ == __name__


@each(
    "norm", [nn.LayerNorm(6), OfTokens(6), OfTokens((2, 6)), OneWeight(1), nn.RMSNorm(6), nn.GroupNorm(2, 6)]
)
def test_other_layers_keep_their_class(norm: nn.Module) -> None:
    kind = type(norm)
    name_image_norms(nn.Sequential(norm))
    assert type(norm) is kind


def test_the_row_of_a_table_has_the_name_of_the_class() -> None:
    adapted = ttabench.adapt(Net(LayerNorm2dNoBias), "tent", image_size=12)
    assert adapted.method.adapted() == "1 LayerNorm2dNoBias (6 parameters)"


def test_a_sweep_prepares_methods_on_such_a_network() -> None:
    cls: Any = find("tent")
    nothing: Any = None
    classifier = Classifier(Net(LayerNorm2dNoBias), last="fc")
    method = prepared_method(cls, classifier, cls.Config(norms="all"), 0, nothing, "cpu")
    ((_, layer),) = norm_modules(method.model)
    assert by_channel(layer, torch.ones(2, 6, 4, 5)).shape == (2, 6, 20)
