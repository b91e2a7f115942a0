"""What a reset would lose is named before the first image, and nothing else is."""

from __future__ import annotations

import copy
import functools
import logging
import warnings
from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler as schedules
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn

import ttabench
from tests.cases import each
from ttabench.classifier import Classifier
from ttabench.conformance import conform
from ttabench.conformance.nets import images, nets
from ttabench.errors import UserError
from ttabench.method import Method, Needs, NoConfig, SourceData
from ttabench.method.unrestored import unrestored
from ttabench.nn import entropy

NET = nets()["BN CNN"]


class Learner(Method[NoConfig]):
    """Learns all parameters; `more` is what a test adds to its setup."""

    name = "learner"
    needs = Needs(gradient=True)

    def setup(self, source: SourceData | None) -> None:
        self.model.requires_grad_(True)
        self.weight = self.model.linear.weight
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)
        self.more()

    def more(self) -> None:
        pass

    def hook(self, layer: nn.Module, given: Any, output: Tensor) -> None:
        self.hooked = True

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        self.optimizer.zero_grad()
        entropy(logits).mean().backward()
        self.optimizer.step()
        return logits.detach()


class Sam(torch.optim.Optimizer):
    """As official code writes it: an optimiser around another one."""

    def __init__(self, parameters: Any, rate: float) -> None:
        super().__init__(parameters, {"lr": rate})
        self.base_optimizer = torch.optim.SGD(self.param_groups, rate)
        self.param_groups = self.base_optimizer.param_groups

    def step(self, closure: Any = None) -> None:
        self.base_optimizer.step()


class WholeSam(Sam):
    def __getstate__(self) -> dict[str, Any]:
        return vars(self)


def with_setup(more: Callable[[Any], object]) -> Any:
    return type("Learner", (Learner,), {"more": lambda self: more(self) and None})


def found(more: Callable[[Any], object], net: Classifier = NET) -> str:
    with warnings.catch_warnings(action="ignore"):  # of schedulers
        made = with_setup(more)(net)
        made.prepare()
        return unrestored(made, net)


# ---- what is lost


def a_hook_of_a_parameter(m: Any) -> None:
    m.weight.register_hook(torch.zeros_like)


def a_hook_after_the_gradient(m: Any) -> None:
    m.weight.register_post_accumulate_grad_hook(lambda p: None)


def an_attribute_of_a_parameter(m: Any) -> None:
    m.weight.anchor = m.weight.detach().clone()


def a_hook_of_an_optimiser(m: Any) -> None:
    m.optimizer.register_step_pre_hook(lambda *_: None)


def an_attribute_of_an_optimiser(m: Any) -> None:
    m.optimizer = Sam(m.model.parameters(), 0.1)


def an_optimiser_of_torch_that_needs_its_attributes(m: Any) -> None:
    m.optimizer = torch.optim.LBFGS(m.model.parameters())


def another_step(m: Any) -> None:
    m.optimizer.step = lambda: None


def parameters_in_a_closure(m: Any) -> None:
    ps = list(m.model.parameters())
    m.norm = lambda: sum(p.norm() for p in ps)


def a_dictionary_in_a_hook(m: Any) -> None:
    seen: dict[str, int] = {}
    m.model.linear.register_forward_hook(lambda *_: seen.update(n=1))


def a_number_that_changes(m: Any) -> None:
    n = 0

    def count() -> int:
        nonlocal n
        n += 1
        return n

    m.count = count


def a_number_that_an_inner_function_changes(m: Any) -> None:
    n = 0

    def outer() -> Callable[[], None]:
        def inner() -> None:
            nonlocal n
            n += 1

        return inner

    m.outer = outer


def a_default_value(m: Any) -> None:
    m.note = lambda x, seen=[]: seen.append(x)


def a_function_in_a_function(m: Any) -> None:
    layer = m.model.linear
    inner = lambda x: layer(x)  # noqa: E731
    m.score = torch.no_grad()(lambda x: inner(x))


def a_decorated_forward(m: Any) -> None:
    m.score = torch.no_grad()(m.model.forward)


def a_compiled_forward(m: Any) -> None:
    m.score = torch.compile(m.model.forward, backend="eager")


def a_forward_around_another(m: Any) -> None:
    old = m.model.linear.forward

    @functools.wraps(old)
    def forward(x: Tensor) -> Tensor:
        result: Tensor = old(x)
        return result

    m.model.linear.forward = forward


def a_function_bound_to_a_layer(m: Any) -> None:
    seen: list[Tensor] = []

    def forward(layer: nn.Module, x: Tensor) -> Tensor:
        seen.append(x)
        return x

    m.model.linear.forward = MethodType(forward, m.model.linear)


def a_method_of_a_list(m: Any) -> None:
    m.seen = []
    m.note = m.seen.append


def a_cached_function(m: Any) -> None:
    scale = torch.ones(1)
    m.scaled = functools.lru_cache(lambda n: n * scale)


def an_object_of_ones_own(m: Any) -> None:
    class Features:
        def __init__(self, layer: nn.Module) -> None:
            self.seen: list[int] = []
            layer.register_forward_hook(lambda *_: self.seen.append(1))

    m.features = Features(m.model.linear)


LOST = {
    a_hook_of_a_parameter: "loses the hooks of the parameter `weight`; change gradients in adapt()",
    a_hook_after_the_gradient: "loses the hooks of the parameter `weight`;",
    an_attribute_of_a_parameter: "loses `weight.anchor`, an attribute of a parameter; make it",
    a_hook_of_an_optimiser: "loses the hooks of the optimiser `optimizer`; do in adapt() what they do",
    an_attribute_of_an_optimiser: "loses `optimizer.base_optimizer`, as a copy of an optimiser has only its",
    an_optimiser_of_torch_that_needs_its_attributes: "loses `optimizer._params`, as a copy",
    another_step: "loses `optimizer.step`, as a copy",
    parameters_in_a_closure: "does not restore `ps` (list), which the function `norm` holds; make",
    a_dictionary_in_a_hook: "does not restore `seen` (dict), which the function `model.net.fc._forward_",
    a_number_that_changes: "does not restore `n` (int), which the function `count` holds",
    a_number_that_an_inner_function_changes: "does not restore `n` (int), which the function `outer` holds",
    a_default_value: "does not restore `seen` (list), which the function `note` holds",
    a_function_in_a_function: "does not restore `layer` (Linear), which the function `score` holds",
    a_decorated_forward: "does not restore `func` (Classifier), which the function `score` holds",
    a_compiled_forward: "(Classifier), which the function `score` holds",
    a_forward_around_another: "does not restore `old` (Linear), which the function `model.net.fc.forward`",
    a_function_bound_to_a_layer: "does not restore `seen` (list), which the function `model.net.fc.forward`",
    a_method_of_a_list: "does not restore the list that the function `note` holds",
    a_cached_function: "does not restore `scale` (Tensor), which the function `scaled` holds",
    an_object_of_ones_own: "does not restore `self` (Features), which the function `model.net.fc.",
}  # fmt: skip


@each("more", LOST)
def test_what_a_reset_loses_is_named_with_its_place(more: Callable[[Any], object]) -> None:
    said = found(more)
    assert said.startswith("reset() ")
    assert LOST[more] in said
    assert said.count(";") == 1  # what, and how to write it


def test_these_methods_learn_something_else_after_a_reset_or_nothing() -> None:
    """The faults are real: a copy has no hook and no anchor."""
    made = with_setup(a_hook_of_a_parameter)(NET)
    made.prepare()
    before = made.weight.detach().clone()
    made.adapt(images(8, seed=1))
    assert torch.equal(made.weight, before)  # the hook made its gradient zero
    made.reset()
    made.adapt(images(8, seed=1))
    assert not torch.equal(made.weight, before)


# ---- what is restored


def methods_of_the_class(m: Any) -> None:
    m.handles = [layer.register_forward_hook(m.hook) for layer in m.model.modules()]
    m.partial = functools.partial(m.hook, m.model.linear)


def functions_that_hold_nothing_that_changes(m: Any) -> None:
    factor, loss, config = 3, nn.CrossEntropyLoss(), m.config
    m.scaled = lambda x, n=2: x * factor * n
    m.loss = lambda z, y: (loss(z, y), config)
    m.softmax = functools.partial(nn.functional.softmax, dim=1)
    m.decorated = torch.no_grad()(m.scaled)
    m.mapped, m.relu, m.entropy = torch.vmap(m.scaled), torch.relu, entropy
    m.cached = functools.lru_cache(m.scaled)


def a_function_that_holds_the_method(m: Any) -> None:
    """A reset changes the attributes of the method, which stays the same object."""
    m.score = lambda x: m.model(x)


def attributes_of_other_tensors(m: Any) -> None:
    m.model.net.stem[1].running_mean.note = [1]
    m.weight._is_initialised = True  # so do libraries mark parameters


def a_compiled_network(m: Any) -> None:
    m.fast = torch.compile(m.model, backend="eager")
    m.fast(images(2, seed=1))
    m.fast_hook = torch.compile(m.hook, backend="eager")
    m.fast_softmax = torch.compile(nn.functional.softmax, backend="eager")


def a_network_that_compiles_itself(m: Any) -> None:
    m.model.compile(backend="eager")
    m.model(images(2, seed=1))


def parametrised_layers(m: Any) -> None:
    nn.utils.parametrizations.weight_norm(m.model.net.stem[0])
    nn.utils.parametrizations.spectral_norm(m.model.net.fc)


def a_traced_network(m: Any) -> None:
    m.traced = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))


def many_optimisers(m: Any) -> None:
    m.others = [
        torch.optim.Adam(m.model.parameters(), fused=True),
        torch.optim.AdamW(m.model.parameters(), foreach=True),
        torch.optim.Adadelta(m.model.parameters()),
        torch.optim.Rprop(m.model.parameters()),
        WholeSam(m.model.parameters(), 0.1),
    ]
    m.scaler = torch.amp.GradScaler("cpu")


def an_average_of_the_network(m: Any) -> None:
    m.average = AveragedModel(m.model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    m.schedule = SWALR(m.optimizer, 0.05)


def a_logger(m: Any) -> None:
    """A copy of it is the same logger."""
    m.log = logging.getLogger("test_unrestored")
    m.log.addFilter(lambda record, seen=[]: True)


SCHEDULES: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "step": lambda o: schedules.StepLR(o, 3),
    "lambda": lambda o: schedules.LambdaLR(o, lambda t: 0.9**t),
    "multiplicative": lambda o: schedules.MultiplicativeLR(o, lambda t: 0.9),
    "linear": schedules.LinearLR,
    "exponential": lambda o: schedules.ExponentialLR(o, 0.9),
    "cosine": lambda o: schedules.CosineAnnealingLR(o, 10),
    "restarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, 10),
    "plateau": schedules.ReduceLROnPlateau,
    "cyclic": lambda o: schedules.CyclicLR(o, 0.01, 0.1),
    "scaled cyclic": lambda o: schedules.CyclicLR(o, 0.01, 0.1, scale_fn=lambda x: 1 / (x + 1)),
    "one cycle": lambda o: schedules.OneCycleLR(o, 0.1, 10),
    "one after the other": lambda o: schedules.SequentialLR(
        o, [schedules.ConstantLR(o), schedules.ExponentialLR(o, 0.9)], [3]
    ),
    "chained": lambda o: schedules.ChainedScheduler([schedules.ConstantLR(o), schedules.StepLR(o, 3)]),
}


@each(
    "more",
    [
        methods_of_the_class, functions_that_hold_nothing_that_changes, a_function_that_holds_the_method,
        attributes_of_other_tensors, a_compiled_network, a_network_that_compiles_itself, parametrised_layers,
        a_traced_network, many_optimisers, an_average_of_the_network, a_logger,
    ],
)  # fmt: skip
def test_what_a_reset_restores_is_no_fault(more: Callable[[Any], object]) -> None:
    assert found(more) == ""


@each("name", SCHEDULES)
def test_schedules_of_torch_are_restored(name: str) -> None:
    assert found(lambda m: setattr(m, "schedule", SCHEDULES[name](m.optimizer))) == ""


def test_functions_of_the_network_are_not_the_methods() -> None:
    net = copy.deepcopy(NET)
    seen: list[int] = []
    net.linear.register_forward_hook(lambda *_: seen.append(1))
    assert found(lambda m: None, net) == ""
    assert "`seen` (dict)" in found(a_dictionary_in_a_hook, net)


def test_an_optimiser_whose_copy_is_whole_learns_the_same_after_a_reset() -> None:
    made = with_setup(lambda m: setattr(m, "optimizer", WholeSam(m.model.parameters(), 0.1)))(NET)
    made.prepare()
    x, runs = images(8, seed=1), []
    for _ in range(3):
        runs.append(torch.cat([made.adapt(x), made.adapt(x)]))
        made.reset()
    assert torch.equal(runs[0], runs[1])
    assert torch.equal(runs[0], runs[2])
    assert not torch.equal(runs[0][:8], runs[0][8:])


# ---- where a method is prepared


def test_conform_says_it_once() -> None:
    checks = conform(with_setup(a_hook_of_a_parameter))
    assert [check.name for check in checks if not check.ok] == ["is prepared and adapts to a batch"]
    assert checks[-1].detail.startswith("BN CNN: reset() loses the hooks of the parameter")


def test_adapt_refuses_such_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttabench.api.adapt.get_method", lambda name: with_setup(parameters_in_a_closure))
    with pytest.raises(UserError, match=r"^learner: reset\(\) does not restore `ps`.*\.$"):
        ttabench.adapt(NET, "learner", image_size=16)
