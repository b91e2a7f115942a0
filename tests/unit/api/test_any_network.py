"""Networks that compute the same function get the same logits under every method, or are refused."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttabench
from tests.cases import each
from tests.unit.network_variants import SIZE, VARIANTS, plain, shared_affine
from ttabench.errors import UserError

QUICK = ("source", "bn_stats", "tent")
SLOW = ("compiled", "scripted", "traced", "fx", "pickled")
ROUNDING = {"channels last": 1e-5, "double": 1e-5, "bfloat16": 5e-2, "half": 5e-3}

REFUSED = {
    "functional batch norm": "cannot run with batch norm that normalises by the statistics of a batch",
    "layers in a list": r"reaches its batch norm \S+ and 2 more in another way than by attributes",
    "body in a list": "computes with 12 parameters that it does not list",
    "forward is a function": "a copy of Plain runs layers of Plain itself",
    "forward of a block is a function": r"a copy of Plain runs layers of Plain itself \(net.blocks.1",
    "autocast around forward": "a copy of Plain runs layers of Plain itself",
    "hook that keeps the network": "a copy of Plain runs layers of Plain itself",
    "compiled forward": "a copy of Plain runs layers of Plain itself",
    "not copied": "a copy of NotCopied runs layers of NotCopied itself",
    "weak reference": "a copy of KeepsItself runs layers of KeepsItself itself",
    "forward of another": "Plain does not compute with its own parameters: its forward belongs to another",
    "layers by class": r"does not run what a method puts in the place of its batch norm \S+ and 2 more",
    "a little noise": "gives other logits for the same images in eval mode",
    "always training": r"changes net.blocks.0.1.running_mean and \d more in eval mode",
    "parametrised norm": "the weight of the norm layer net.blocks.0.1 of Plain is computed from other",
    "scripted": "is a scripted or traced network",
    "traced": "is a scripted or traced network",
}
"""Variant → why no method runs on it."""

WITHOUT_GRADIENT = {
    "re-entrant checkpointing of two": "it uses gradient checkpointing in its re-entrant form",
    "re-entrant checkpointing": "it uses gradient checkpointing in its re-entrant form",
    "no_grad": "no gradient reaches what it should learn",
    "no_grad body": "no gradient reaches what it should learn",
    "inference_mode": "no gradient reaches what it should learn",
    "inference_mode body": "no gradient reaches what it should learn",
}
"""Variant → why TENT does not run on it, and Source does."""


SETTINGS: dict[str, dict[str, float]] = {"coral": {"lr": 1e-9}, "ttac": {"lr": 1e-9}}
"""Small steps: those for networks that were trained diverge here."""

OF_ITS_COORDINATES = "learns all parameters, and these are others here"
OF_ITS_DRAWS = "draws as many random numbers as it learns parameters"
OF_DOUBLES = "draws random numbers of the type of the network"
DIFFERENT = {
    ("parametrised convolution", "adacontrast"): OF_ITS_COORDINATES,
    ("parametrised convolution", "cotta"): OF_ITS_COORDINATES,
    ("parametrised convolution", "rmt"): OF_ITS_COORDINATES,
    ("parametrised convolution", "stack"): OF_ITS_COORDINATES,  # its second method is CoTTA
    ("auxiliary head", "cotta"): OF_ITS_DRAWS,
    ("auxiliary head", "stack"): OF_ITS_DRAWS,
    ("double", "adacontrast"): OF_DOUBLES,
    ("double", "rmt"): OF_DOUBLES,
    ("double", "tea"): OF_DOUBLES,
    ("checkpointing", "adacontrast"): "moves running statistics in each forward pass, the repeated one too",
}
"""(Variant, method) → why its logits are not those on the plain network."""

NEEDS_ALL_GRADIENTS = ("eata",)
"""Methods that need a gradient of each parameter that they adapt."""

NOT_REPEATED = ("actmad", "coral", "ttac")
"""Methods that change layers for one forward pass, which checkpointing does not repeat."""


HALVES = ("bfloat16", "half")


def batches(seed: int, count: int) -> list[Tensor]:
    """Images of different colours: the features of plain noise are so alike that a step of CORAL diverges."""
    generator = torch.Generator().manual_seed(seed)
    colours = torch.rand(2, count, 3, 1, 1, generator=generator)
    return [colour * torch.rand(count, 3, SIZE, SIZE, generator=generator) for colour in colours]


def needs_of(name: str) -> Any:
    cls = ttabench.get_method(name)
    return cls.needs_of(cls.Config())


def logits(net: nn.Module, method: str) -> Tensor:
    """The logits of the second batch, which the first has changed if the method learns."""
    source = batches(1, 12) if needs_of(method).source_data else None
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        adapted = ttabench.adapt(net, method, source=source, image_size=SIZE, **SETTINGS.get(method, {}))
    dtype = next(adapted.method.model.parameters()).dtype
    return [adapted(x.to(dtype)) for x in batches(2, 10)][-1].detach().float()


@cache
def right(method: str) -> Tensor:
    return logits(plain(), method)


def compare(variant: str, method: str) -> None:
    net = VARIANTS[variant]()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    modes = [module.training for module in net.modules()]
    reason = REFUSED.get(variant) or (needs_of(method).gradient and WITHOUT_GRADIENT.get(variant))
    if method in NOT_REPEATED and variant == "checkpointing":
        reason = "cannot work with gradient checkpointing"
    if variant == "auxiliary head" and method in NEEDS_ALL_GRADIENTS:
        reason = "does not run in eval mode, such as an auxiliary head"
    if reason:
        with pytest.raises(UserError, match=reason):
            logits(net, method)
    else:
        got, want = logits(net, method), right(method)
        differs = float((got - want).norm()) > ROUNDING.get(variant, 1e-6) * float(want.norm())
        assert differs is ((variant, method) in DIFFERENT)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert [module.training for module in net.modules()] == modes
    assert all(p.grad is None for p in net.parameters())


@pytest.mark.parametrize("variant", [v for v in VARIANTS if not v.startswith(SLOW)])
@each("method", QUICK)
def test_the_same_function_gets_the_same_logits_or_is_refused(variant: str, method: str) -> None:
    compare(variant, method)


@pytest.mark.slow
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.startswith(SLOW)])
@each("method", QUICK)
def test_compiled_and_scripted_networks_too(variant: str, method: str) -> None:
    compare(variant, method)


def others() -> list[str]:
    """The other methods that run on a convolutional network, one form of each."""
    return [
        name for name in ttabench.list_methods()
        if name not in (*QUICK, "quantile_paper", "quantile_strict", "actmad_vit") and not needs_of(name).tags
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("variant", [v for v in VARIANTS if not v.startswith(SLOW) and v not in HALVES])
@each("method", others())
def test_under_every_method(variant: str, method: str) -> None:
    compare(variant, method)


def test_methods_differ_here() -> None:
    """Otherwise equal logits would show nothing."""
    source, statistics, tent = map(right, QUICK)
    assert (source - statistics).norm() > 0.1 * source.norm()
    assert (statistics - tent).norm() > 1e-4 * source.norm()


# ---- copies


class Patched(nn.Module):
    """Calls a function that may keep a network."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function, self.fc = function, nn.Linear(3, 5)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.function(x).mean((2, 3)))
        return logits


def test_a_resized_forward_is_refused_and_the_same_as_a_module_is_not() -> None:
    net = plain()
    inner = net.forward
    net.forward = lambda x: inner(nn.functional.interpolate(x, 2 * SIZE))  # type: ignore[method-assign]
    with pytest.raises(UserError, match=r"Write it as a module around the network"):
        logits(net, "source")


def test_a_function_that_keeps_layers_is_refused() -> None:
    layer = nn.Conv2d(3, 3, 3)
    with pytest.raises(UserError, match=r"2 parameters that it does not list, the first of shape \(3,"):
        logits(Patched(lambda x: layer(x)), "source")
    norm = nn.BatchNorm2d(3).eval()
    with pytest.raises(UserError, match="computes with 2 parameters that it does not list"):
        logits(Patched(lambda x: norm(x)), "source")
    assert logits(Patched(torch.sin), "source").shape == (10, 5)


def test_a_network_that_cannot_be_copied_is_refused() -> None:
    net = plain()
    net.cached = net.fc.weight * 2  # type: ignore[assignment]
    with pytest.raises(UserError, match=r"Plain cannot be copied \(.+\), and a method works on a copy"):
        logits(net, "source")


class Random(nn.Module):
    def __init__(self, random: Any) -> None:
        super().__init__()
        self.random, self.fc = random, nn.Linear(3 * SIZE * SIZE, 5)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.random(x.flatten(1)))
        return logits


class Counts(nn.Module):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


@pytest.mark.parametrize(
    "random",
    [nn.functional.dropout, lambda x: x + torch.rand_like(x), Counts()],
    ids=["dropout", "noise", "counts"],
)
def test_a_network_that_is_random_in_eval_mode_is_refused(random: Any) -> None:
    state = torch.get_rng_state()
    with pytest.raises(UserError, match="gives other logits for the same images in eval mode"):
        logits(Random(random), "source")
    assert logits(Random(nn.Dropout()), "source").shape == (10, 5)
    torch.set_rng_state(state)


# ---- names


@pytest.mark.parametrize("method", ["tent", "medbn", "roid"])
def test_a_layer_with_two_names_counts_once(method: str) -> None:
    for variant in ("two names", "one name each"):
        adapted = ttabench.adapt(VARIANTS[variant](), method, image_size=SIZE)
        assert adapted.method.adapted() == ttabench.adapt(plain(), method, image_size=SIZE).method.adapted()


def test_shot_puts_layers_back_under_all_names() -> None:
    images = (torch.stack(batches(2, 10)).flatten(0, 1).permute(0, 2, 3, 1).numpy() * 255).astype("uint8")
    labels = torch.arange(20).numpy() % 5
    correct = []
    for net in (plain(), VARIANTS["two names"](), VARIANTS["one name each"]()):
        adapted = ttabench.adapt(net, "shot", image_size=SIZE)
        correct.append(ttabench.evaluate(adapted, images, labels, batch_size=10, mode="offline", epochs=2))
        assert type(adapted.method.model.get_submodule(next(
            name for name, layer in adapted.method.model.named_modules() if isinstance(layer, nn.BatchNorm2d)
        ))) is nn.BatchNorm2d  # fmt: skip
    weights = [one.correct.tolist() for one in correct]
    assert weights[0] == weights[1] == weights[2]


def test_layers_that_share_a_parameter_are_refused() -> None:
    net = plain()
    shared_affine(net)
    with pytest.raises(UserError, match="tent cannot run on Plain: two of its layers share a parameter"):
        logits(net, "tent")
    assert logits(net, "bn_stats").shape == (10, 5)


# ---- gradients


def test_a_head_that_does_not_run_is_named_and_changes_nothing() -> None:
    with pytest.warns(
        UserWarning, match=r"tent: 2 of 8 adapted .* first is auxiliary.0.weight: its layer does"
    ):
        ttabench.adapt(VARIANTS["auxiliary head"](), "tent", image_size=SIZE)


def test_a_head_that_does_not_run_is_refused_where_each_parameter_needs_a_gradient() -> None:
    with pytest.raises(UserError, match="does not run in eval mode, such as an auxiliary head; remove"):
        ttabench.adapt(VARIANTS["auxiliary head"](), "eata", image_size=SIZE, source=batches(1, 12))


def test_a_part_without_gradients_is_named() -> None:
    class Half(type(plain())):  # type: ignore[misc]
        def body(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                x = self.blocks[0](x)
            return self.blocks[2](self.blocks[1](x))

    net = Half().eval()
    with pytest.warns(UserWarning, match="2 of 6 .* blocks.0.1.weight: its layer runs without gradients"):
        ttabench.adapt(net, "tent", image_size=SIZE)
    with warnings.catch_warnings(action="error"):
        ttabench.adapt(plain(), "tent", image_size=SIZE)
        ttabench.adapt(net, "bn_stats", image_size=SIZE)


@pytest.mark.parametrize("method", ["cotta", "shot", "quantile", "actmad", "eata"])
def test_methods_that_need_gradients_are_refused_without(method: str) -> None:
    compare("no_grad", method)


# ---- batches


@pytest.mark.parametrize("method", ["source", "actmad", "lame", "neo", "roid", "ttac", "tent"])
def test_a_batch_of_no_images_changes_nothing(method: str) -> None:
    source = batches(1, 12) if needs_of(method).source_data else None
    first, again = (ttabench.adapt(plain(), method, image_size=SIZE, source=source) for _ in range(2))
    x = batches(2, 10)[0]
    assert first(x[:0]).shape == first.predict(x[:0]).shape == (0, 5)
    assert torch.equal(first(x), again(x))


class OnePixel(nn.Sequential):
    def __init__(self) -> None:
        torch.manual_seed(0)
        layers = [
            layer for i, o in ((3, 8), (8, 8), (8, 8), (8, 6))
            for layer in (nn.Conv2d(i, o, 3, 2, 1), nn.BatchNorm2d(o), nn.ReLU())
        ]  # fmt: skip
        super().__init__(*layers, nn.Flatten(), nn.Linear(6, 5))
        with torch.no_grad():
            for _ in range(30):
                self(torch.cat(batches(1, 60)))


@pytest.mark.parametrize("method", ["coral", "ttac"])
def test_one_image_with_maps_of_one_pixel_is_refused_with_a_way_out(method: str) -> None:
    adapted = ttabench.adapt(OnePixel(), method, image_size=SIZE, source=batches(1, 60))
    assert adapted(batches(2, 10)[0]).isfinite().all()
    with pytest.raises(UserError, match="choose another batch size or limit, so that no batch has one image"):
        adapted(batches(2, 1)[0])
    adapted.reset()
    assert adapted(batches(3, 10)[0]).isfinite().all()


# ---- messages


def test_logits_that_are_nan_are_called_so() -> None:
    net = plain()
    net.blocks[1][1].running_var.fill_(-1)  # type: ignore[index]
    with pytest.raises(
        UserError, match=r"Plain returns logits that are NaN .*, first after blocks.1.1; check"
    ):
        logits(net, "tent")
