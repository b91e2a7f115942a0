"""Layers that look like norm layers: reported where a method leaves them out, and named by the user."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttabench
from tests.cases import each
from ttabench.errors import UserError
from ttabench.models.soundness.norm_lookalikes import left_out, lookalikes


class LayerNorm(nn.Module):
    """Over the channels of (B, C, H, W)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        x = (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, unbiased=False) + 1e-6).sqrt()
        return x * self.weight[:, None, None] + self.bias[:, None, None]


LayerNorm2d = type("LayerNorm2d", (LayerNorm,), {})  # the same, with a name that ttabench knows
RmsNorm = type("RmsNorm", (LayerNorm,), {})


class Whitened(nn.Module):
    """The same, with names that say nothing."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        x = (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, unbiased=False) + 1e-6).sqrt()
        return x * self.gamma[:, None, None] + self.beta[:, None, None]


class Last(nn.Module):
    """Over the last dimension of (B, H, W, C), by the root of the mean square."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)
        x = self.scale * x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        return x.permute(0, 3, 1, 2)


class Frozen(nn.Module):
    """Batch norm with statistics that never change."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.running_mean[:, None, None]) / self.running_var[:, None, None].sqrt()  # type: ignore[index]


class Scale(nn.Module):
    """No norm layer: its output grows with its input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma[:, None, None]


class Normalise(nn.Module):
    """No norm layer, but the normalisation of the images."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return x - self.mean  # type: ignore[operator]


class Net(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(i, 16, 3), kind(16), nn.GELU()) for i in (3, 16, 16))
        )
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.body(x).mean((2, 3))))
        return logits


X = torch.rand(16, 3, 12, 12, generator=torch.Generator().manual_seed(0))


def adapted(net: nn.Module, method: str = "tent") -> ttabench.Adapted:
    return ttabench.adapt(
        net, method, image_size=12, **({"norms": "all", "lr": 0.01} if method == "tent" else {})
    )


@each("kind", [LayerNorm, RmsNorm, Whitened, Last, Frozen])
def test_lookalikes_are_reported_where_they_are_left_out(kind: Any) -> None:
    says = (
        f"tent: 3 layers look like norm layers .* \\(3 {kind.__name__}; the first is body.0.1\\), so methods"
    )
    with pytest.warns(UserWarning, match=says):
        assert "adapts 1 LayerNorm (32 parameters)" in repr(adapted(Net(kind)))
    with warnings.catch_warnings(action="error"):
        adapted(Net(kind), "source")  # does not adapt norm layers


@each("kind", [LayerNorm2d, nn.BatchNorm2d, Scale, Normalise, lambda n: nn.GroupNorm(4, n)])
def test_known_layers_and_other_layers_are_not_reported(kind: Any) -> None:
    net = Net(kind).train()
    before = [module.training for module in net.modules()]
    assert left_out(lookalikes(net, 12)) == ""
    assert [module.training for module in net.modules()] == before


@pytest.mark.parametrize("kind", [LayerNorm, Whitened])
@pytest.mark.parametrize("by_layer", [False, True])
def test_named_layers_are_adapted_as_known_ones(kind: Any, by_layer: bool) -> None:
    net = Net(kind)
    names = [f"body.{i}.1" for i in range(3)] if by_layer else [kind.__name__]
    named = ttabench.name_norm_layers(net, names, image_size=12)
    assert torch.equal(named(X), net(X))
    assert type(net.body[0][1]) is kind  # type: ignore[index]
    assert [name for name, _ in net.named_parameters()] == [n for n, _ in Net(kind).named_parameters()]
    with warnings.catch_warnings(action="error"):
        ours, theirs = adapted(named), adapted(Net(LayerNorm2d))
    assert f"{4 if kind is LayerNorm else 3} {kind.__name__}" in repr(ours)
    for _ in range(3):
        assert torch.equal(ours(X), theirs(X))
    source = [X]
    for method in ("actmad", "aqr", "sar"):
        got, want = (
            ttabench.adapt(each, method, image_size=12, source=None if method == "sar" else source)(X)
            for each in (named, Net(LayerNorm2d))
        )
        assert torch.equal(got, want)


def test_a_norm_over_the_last_dimension_can_be_named() -> None:
    class Channels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.fc = nn.Conv2d(3, 16, 3), TokenNorm(16), nn.Linear(16, 5)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.fc(self.norm(self.conv(x).flatten(2).mT).mean(1))
            return logits

    class TokenNorm(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.g = nn.Parameter(torch.ones(channels))

        def forward(self, x: Tensor) -> Tensor:
            return self.g * x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()

    named = ttabench.name_norm_layers(Channels(), "TokenNorm", image_size=12)
    ours = adapted(named)
    assert "adapts 1 TokenNorm (16 parameters)" in repr(ours)
    first = ours(X)
    assert not torch.equal(ours(X), first)


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        (
            LayerNorm,
            "LayerNrom",
            "'LayerNrom' is no layer, and no class of layers, of Net; expected names such as LayerNorm",
        ),
        (Frozen, "Frozen", r"body.0.1 \(Frozen\) has running statistics, as batch norm has"),
        (Normalise, "Normalise", r"body.0.1 \(Normalise\) has no weight or bias of one value per channel"),
    ],
)
def test_what_cannot_be_named_is_said(kind: Any, name: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        ttabench.name_norm_layers(Net(kind), name, image_size=12)
