"""Group norm with frozen convolutions, on images whose channels come last, as in every sweep."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import ttabench
from tests.cases import each
from ttabench.classifier import Classifier
from ttabench.models.soundness.gradient_flow import gradient_problem
from ttabench.models.soundness.group_norm import guard_group_norm
from ttabench.registry import method as find
from ttabench.run.prepared_method import prepared_method


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(8, 3))


def batch() -> Tensor:
    return torch.rand(8, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def test_the_gradient_of_the_weights_does_not_depend_on_the_memory_format() -> None:
    """Torch ends the process there without the guard."""
    net = network().requires_grad_(False)
    norm = net.get_submodule("1").requires_grad_(True)
    guard_group_norm(net)
    found = []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        norm.zero_grad()
        loss = net(batch().contiguous(memory_format=memory_format)).square().sum()
        alone = torch.autograd.grad(loss, list(norm.parameters()), retain_graph=True)
        loss.backward()
        found.append([p.grad.clone() for p in norm.parameters() if p.grad is not None])
        assert all(map(torch.equal, alone, found[-1]))
    assert len(found[0]) == 2
    torch.testing.assert_close(found[0], found[1])


@each("method", ["tent", "roid", "spa", "eata"])
def test_methods_learn_on_a_network_of_your_own(method: str) -> None:
    model, source = network(), [batch()] if method == "eata" else None
    adapted = ttabench.adapt(model, method, image_size=16, source=source)
    logits = adapted(batch().contiguous(memory_format=torch.channels_last))
    assert np.isfinite(logits.detach().numpy()).all()
    assert not any(module._forward_pre_hooks for module in model.modules())  # the user's network is as it was


def test_a_second_guard_changes_nothing() -> None:
    net = network()
    guard_group_norm(net)
    guard_group_norm(net)
    assert len(net.get_submodule("1")._forward_pre_hooks) == 1


def test_a_network_whose_own_layout_has_the_channels_last_is_tried_for_gradients() -> None:
    """Its layers give such outputs for every image. Torch ended the process of `adapt` and `sweep`."""
    net = network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert gradient_problem(Classifier(net, last="5"), 16) == ""
    assert ttabench.adapt(net, "tent", image_size=16)(batch()).isfinite().all()


def test_figures_and_comparisons_of_code_prepare_methods_that_can_learn() -> None:
    cls: Any = find("tent")
    nothing: Any = None
    method = prepared_method(cls, Classifier(network(), last="5"), cls.Config(norms="all"), 0, nothing, "cpu")
    assert method.adapt(batch().contiguous(memory_format=torch.channels_last)).isfinite().all()


class Named(nn.Module):
    """Computes group norm, and is of no class that ttabench knows."""

    def __init__(self) -> None:
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.group_norm(x, 2, self.gamma, self.beta)


class ByKeyword(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.norm(input=self.conv(input=x)).relu().mean((2, 3)))  # type: ignore[no-any-return]


def own() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), Named(), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
    return ttabench.name_norm_layers(nn.Sequential(*layers), "Named", image_size=16)


@each("make", [own, ByKeyword])
def test_layers_that_are_named_or_called_by_keyword_learn_too(make: Any) -> None:
    adapted = ttabench.adapt(make(), "tent", image_size=16)
    assert adapted(batch().contiguous(memory_format=torch.channels_last)).isfinite().all()
