"""Networks that compute activations again in the backward pass: the same bits, with less memory."""

from __future__ import annotations

import copy
import weakref
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from tests.cases import each
from tests.unit.network_variants import plain
from ttabench.classifier import Classifier
from ttabench.conformance.case import Case, Run
from ttabench.conformance.nets import CLASSES, SIZE, images, nets, settle
from ttabench.method import Method
from ttabench.method.settings import usual_settings
from ttabench.models.architectures.build import build
from ttabench.models.architectures.resnet import cifar_resnet
from ttabench.models.recomputed_activations import blocks_of, recompute_activations
from ttabench.registry import method, methods

SHORTER = {"warmup_images": 64, "source_images": 64, "capacity": 32, "epochs": 1, "views": 4, "size": "small"}
"""Settings that make a method quicker."""


def networks() -> dict[str, Classifier]:
    """A residual network with batch norm, and a vision transformer; both with several blocks."""
    return copy.deepcopy(trained())


@cache
def trained() -> dict[str, Classifier]:
    torch.manual_seed(0)
    residual = Classifier.wrap(cifar_resnet(CLASSES, 8).eval(), SIZE)
    return {"ResNet": settle(residual.eval(), images(256, seed=1)), "ViT": nets()["LN ViT"]}


def logits(cls: type[Method[Any]], config: Any, name: str, net: Classifier) -> Tensor:
    case = Case(cls, config, name, net)
    return torch.cat(Run(case.fresh(), case.stream).logits)


@each("name", sorted(methods()))
@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")
def test_each_method_has_the_same_bits(name: str) -> None:
    cls, tried = method(name), 0
    for kind, net in networks().items():
        facts = net.architecture()
        settings = usual_settings(cls, "cifar10-c", CLASSES, facts)
        settings |= {"lr": 1e-4} if name == "actmad" else {}  # random weights are far from all others
        settings |= {key: value for key, value in SHORTER.items() if key in cls.Config.__dataclass_fields__}
        config = cls.Config(**settings)
        if cls.needs_of(config).unmet(facts):
            continue
        usual, tried = logits(cls, config, kind, net), tried + 1
        assert torch.isfinite(usual).all()
        assert recompute_activations(net) > 1
        torch.testing.assert_close(logits(cls, config, kind, net), usual, rtol=0, atol=0)
    assert tried


@pytest.mark.parametrize("recompute", [False, True])
def test_activations_live_until_the_backward_pass_only_where_they_are_kept(recompute: bool) -> None:
    net = networks()["ResNet"]
    if recompute:
        recompute_activations(net)
    seen: list[weakref.ref[Tensor]] = []
    block = next(iter(blocks_of(net)))
    for layer in block.children():
        layer.register_forward_hook(lambda _layer, _inputs, out: seen.append(weakref.ref(out)))
    loss = net(images(4, seed=2)).logsumexp(1).sum()
    alive = [ref() is not None for ref in seen]
    assert len(alive) > 2
    assert any(alive) != recompute
    loss.backward()


def gradients(net: nn.Module, loss: Tensor) -> list[Tensor]:
    return list(
        torch.autograd.grad(loss, [p for p in net.parameters() if p.requires_grad], retain_graph=True)
    )


@each("train", [True, False])
def test_running_statistics_are_updated_once(train: bool) -> None:
    usual, x = networks()["ResNet"], images(24, seed=2, shift=0.4)
    again = copy.deepcopy(usual)
    recompute_activations(again)
    found = []
    for net in (usual.train(train), again.train(train)):
        loss = net(x).logsumexp(1).sum()
        found.append([*gradients(net, loss), *gradients(net, loss), *net.buffers()])
    assert all(map(torch.equal, *found))


def test_the_backward_pass_sees_the_parameters_and_hooks_of_the_forward_pass() -> None:
    usual, x = networks()["ResNet"], images(8, seed=2)
    again = copy.deepcopy(usual)
    recompute_activations(again)
    found = []
    for net in (usual, again):
        others = {name: (1.1 * p).detach().requires_grad_() for name, p in net.named_parameters()}
        block = next(iter(blocks_of(net)))
        inner = next(layer for layer in block.modules() if isinstance(layer, nn.BatchNorm2d))
        hook = inner.register_forward_hook(lambda _layer, _inputs, out: 0.5 * out + 1)
        loss = functional_call(net, others, (x,)).logsumexp(1).sum()
        hook.remove()
        found.append(torch.autograd.grad(loss, list(others.values())))
    assert all(map(torch.equal, *found))


class Notes:
    """Notes outputs of layers in a list, how many there were, and the last one."""

    def __init__(self) -> None:
        self.means: list[Tensor] = []
        self.count = 0
        self.last: Tensor | None = None

    def note(self, _layer: nn.Module, _inputs: Any, out: Tensor) -> None:
        self.means.append(out.mean((0, 2, 3)))
        self.count += 1
        self.last = out


def test_a_hook_notes_each_output_once() -> None:
    net, x = networks()["ResNet"], images(8, seed=2)
    recompute_activations(net)
    notes, listed = Notes(), list[Tensor]()
    norms = [layer for layer in net.modules() if isinstance(layer, nn.BatchNorm2d)]
    for layer in norms:
        layer.register_forward_hook(notes.note)
        layer.register_forward_hook(partial(Notes.note, notes))
        layer.register_forward_hook(lambda *inputs: listed.append(inputs[-1].mean()))
        layer.register_forward_hook(lambda *inputs: notes.note(*inputs))
    loss = net(x).logsumexp(1).sum() + sum(mean.square().sum() for mean in notes.means) + sum(listed)
    notes.means, last = [], notes.last
    listed.clear()
    loss.backward()
    assert (notes.means, listed, notes.count) == ([], [], 3 * len(norms))
    assert notes.last is last


def test_a_copy_computes_with_its_own_weights() -> None:
    net, x = networks()["ResNet"], images(8, seed=2)
    recompute_activations(net)
    mine, before = copy.deepcopy(net), net(x)
    with torch.no_grad():
        for parameter in mine.parameters():
            parameter.zero_()
    assert torch.equal(net(x), before)
    assert not mine(x).any()


class Stage(nn.Module):
    """Blocks of one class behind another layer, as the stages of ConvNeXt and Swin are."""

    def __init__(self) -> None:
        super().__init__()
        self.downsample = nn.Conv2d(4, 4, 1)
        self.blocks = nn.Sequential(Residual(), Residual(), Residual())

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.blocks(self.downsample(x))
        return y


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.branch(x)
        return y


def made(arch: str) -> Classifier:
    return build(arch, dataset="cifar10-c", num_classes=10, image_size=32, mean=(0.0,) * 3, std=(1.0,) * 3)


@each(
    ("net", "blocks"),
    [
        (made("resnet18"), 8),
        (made("cct_2_3x2"), 4),
        (made("vit_2_4"), 3),
        (plain(), 3),  # a list of Sequentials
        (nn.Sequential(Stage(), Stage()), 6),
        (nn.ModuleList([nn.ModuleList([nn.Linear(2, 2)])]), 0),  # never runs
        (nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU()), 0),
        (nn.Linear(2, 2), 0),
    ],
)
def test_blocks_are_the_elements_of_lists(net: nn.Module, blocks: int) -> None:
    assert len(list(blocks_of(net))) == blocks
    names = [type(layer).__name__ for layer in net.modules()]
    assert recompute_activations(net) == recompute_activations(net) == blocks
    assert [type(layer).__name__ for layer in net.modules()] == names
