"""Errors of torch that have a meaning for a network and a method are said in a sentence."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils.prune import l1_unstructured

import ttabench
from ttabench.errors import UserError
from ttabench.measure.source_statistics import quantiles
from ttabench.models.returned_logits import as_classifier
from ttabench.models.soundness.torch_errors import explained


class Net(nn.Module):
    """Its first channel is constant: the weight of its norm layer is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc = nn.BatchNorm2d(3), nn.Linear(3, 2)
        with torch.no_grad():
            self.norm.weight[0] = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.norm(x).mean((2, 3)))  # type: ignore[no-any-return]


def test_quantiles_of_a_constant_channel() -> None:
    classifier = as_classifier(Net().eval(), 8, name="net")
    images = [torch.rand(4, 3, 8, 8)]
    with pytest.raises(UserError, match="has the same value on all source images"), explained():
        quantiles(classifier, lambda: iter(images), (0.5,))


def test_a_batch_of_one_image() -> None:
    with pytest.raises(UserError, match="a batch of one image has no variance"), explained():
        nn.BatchNorm2d(3)(torch.rand(1, 3, 1, 1))


@pytest.mark.parametrize(
    "layer",
    [nn.Conv2d(3, 3, 1), nn.Linear(3, 3), nn.Linear(3, 3, bias=False), nn.LayerNorm(3), nn.BatchNorm2d(3)],
)
def test_a_network_of_another_type(layer: nn.Module) -> None:
    x = torch.rand(1, 3, 3, 3)
    with pytest.raises(UserError, match=r"weights of torch.float16; .* model"), explained(torch.half):
        layer.eval().half()(x)
    with pytest.raises(RuntimeError), explained():
        layer(x)


@pytest.mark.parametrize("method", ["cotta", "rotta"])
def test_a_method_that_makes_float32_images(method: str) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net.append(nn.Linear(4, 2)).bfloat16()
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        adapted = ttabench.adapt(net, method, image_size=8)
    with pytest.raises(UserError, match=r"the method makes float32 numbers, .* weights of torch.bfloat16"):
        adapted(torch.rand(64, 3, 8, 8).bfloat16())


def test_a_batch_norm_layer_with_a_computed_weight() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net.append(nn.Linear(4, 2))
    l1_unstructured(net[1], "weight", 0.5)  # type: ignore[no-untyped-call]
    with pytest.raises(UserError, match=r"a batch norm layer is computed .* prune.remove on the layer"):
        ttabench.adapt(net, "tent", image_size=8)


class Keeping(nn.Module):
    """In eval mode, it computes its biases once, as networks of timm do with those of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc = nn.BatchNorm2d(3), nn.Linear(3, 2)
        self.biases, self.kept = nn.Parameter(torch.rand(3)), torch.empty(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not len(self.kept) or (self.biases.requires_grad and not self.kept.requires_grad):
            self.kept = self.biases.square()
        return self.fc(self.norm(x).mean((2, 3)) + self.kept)  # type: ignore[no-any-return]


def test_values_that_are_kept_for_later_forward_passes() -> None:
    adapted = ttabench.adapt(Keeping(), "shot", image_size=8)
    with pytest.raises(UserError, match=r"keeps what it has computed from adapted parameters for later"):
        [adapted(torch.rand(8, 3, 8, 8)) for _ in range(2)]


def test_other_errors_stay_as_they_are() -> None:
    with pytest.raises(ValueError, match="other"), explained():
        raise ValueError("other")
