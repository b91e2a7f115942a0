"""The cost of a cell: passes in images as the methods' descriptions say, and counting changes no number."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.conformance.test_all_methods import LIGHTER, imported, net_of, others_at_night
from ttabench.classifier import Classifier
from ttabench.conformance.case import Case
from ttabench.conformance.nets import nets
from ttabench.method import Method, NoConfig
from ttabench.method.settings import make_config
from ttabench.observe import cost
from ttabench.observe.cost import (
    Passes,
    adapted_parameters,
    compute_ratio,
    count_passes,
    measured,
    source_forward,
)
from ttabench.registry import method_names

pytestmark = pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")  # thresholds wrong for tiny nets
BATCHES = torch.rand(3, 6, 3, 16, 16, generator=torch.Generator().manual_seed(0))
N = BATCHES.shape[0] * BATCHES.shape[1]


def prepared(name: str, net: str = "BN CNN", **settings: str) -> Method[Any]:
    method, classifier = imported(name), nets()[net]
    return Case(method, config_of(method, classifier, settings), net, classifier).fresh()


def config_of(method: type[Method[Any]], classifier: Classifier, settings: dict[str, str]) -> Any:
    return make_config(method, settings, method.for_architecture(classifier.architecture()))


def passes(method: Method[Any], batches: Tensor = BATCHES) -> tuple[int, int]:
    with count_passes() as counted:
        for x in batches:
            method.adapt(x)
    return counted.forward, counted.backward


@pytest.mark.parametrize(
    ("name", "settings", "forward", "backward"),
    [
        ("source", {}, 1, 0),
        ("bn_stats", {}, 1, 0),
        ("t3a", {}, 1, 0),
        ("tent", {}, 1, 1),
        ("tent", {"steps": "3"}, 3, 3),
        ("cotta", {"threshold": "2"}, 34, 1),  # anchor, 32 views by the teacher, student
        ("cotta", {"threshold": "0"}, 3, 1),  # anchor, teacher, student
        ("memo", {}, 33, 32),  # 32 views, then the image
        ("actmad", {}, 2, 1),  # its loss depends on inner layers only
        ("coral", {}, 2, 1),  # its loss depends on features only
        ("aqr", {}, 1, 0),
    ],
)
def test_passes_per_image(name: str, settings: dict[str, str], forward: int, backward: int) -> None:
    assert passes(prepared(name, **settings)) == (forward * N, backward * N)


def test_filtered_images_have_no_backward_pass() -> None:
    method = prepared("eata", d_margin="1")
    forward, backward = passes(method)
    assert forward == N
    assert backward == method.counts["kept"]
    assert 0 < backward < N


def test_an_offline_method_counts_every_epoch() -> None:
    class Twice:
        count, batch_size = N, len(BATCHES[0])

        def __iter__(self) -> Any:
            return iter(BATCHES)

        def __len__(self) -> int:
            return len(BATCHES)

    method = prepared("tent")
    with count_passes() as counted:
        for _ in range(2):
            method.fit(Twice())  # type: ignore[arg-type]
        method.predict(BATCHES[0])
    assert (counted.forward, counted.backward) == (2 * N + len(BATCHES[0]), 2 * N)


class Half(Method[NoConfig]):
    """Adapts a copy of its model, made during adaptation, on half of the images."""

    name = "half"

    def adapt(self, x: Tensor) -> Tensor:
        import copy

        student = copy.deepcopy(self.model).requires_grad_(True)
        with torch.enable_grad():
            student(x[: len(x) // 2]).square().sum().backward()
        return self.predict(x)


class LastLayer(Method[NoConfig]):
    """Learns the last layer, with features that need no gradient."""

    name = "last_layer"

    def adapt(self, x: Tensor) -> Tensor:
        self.model.linear.requires_grad_(True)
        with torch.enable_grad():
            self.model(x).square().sum().backward()
        return self.predict(x)


def made(cls: type[Method[Any]], classifier: Classifier) -> Method[Any]:
    method = cls(classifier, cls.Config())
    method.prepare()
    return method


def test_copies_made_during_adaptation_and_parts_of_a_batch_count_as_their_images() -> None:
    assert passes(made(Half, nets()["GN CNN"])) == (N + N // 2, N // 2)


def test_learning_the_last_layer_alone_is_a_backward_pass() -> None:
    assert passes(made(LastLayer, nets()["GN CNN"])) == (2 * N, N)


def test_a_classifier_around_another_one_counts_once() -> None:
    inner = nets()["GN CNN"]
    outer = Classifier(nn.Sequential(inner, nn.Linear(5, 5)), last="1")
    with count_passes() as counted:
        outer(BATCHES[0])
    assert counted.forward == len(BATCHES[0])


def test_nothing_is_counted_before_and_after_and_inner_blocks_count_for_themselves() -> None:
    net = nets()["BN CNN"]
    net(BATCHES[0])
    with count_passes() as outer:
        net(BATCHES[0])
        with count_passes() as inner:
            net(BATCHES[1])
        net(BATCHES[2])
    net(BATCHES[0])
    assert (outer.forward, inner.forward) == (N, len(BATCHES[1]))
    assert "__call__" not in vars(Classifier)


def test_counting_ends_with_an_exception() -> None:
    with pytest.raises(RuntimeError), count_passes():
        raise RuntimeError
    assert "__call__" not in vars(Classifier)


# What is counted in different ways: no backward pass, one for all images or for some, one that starts at
# inner layers or features, one of a network beside the classifier, and passes within another method.
COUNTED = ("source", "bn_stats", "tent", "eata", "sar", "cotta", "actmad", "t3a", "foa", "quantile", "come")


@pytest.mark.parametrize("name", others_at_night(COUNTED))
def test_counting_changes_no_number(name: str) -> None:
    counting_changes_no_number(name, net_of(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", method_names())
def test_counting_changes_no_number_on_any_net(name: str) -> None:
    counting_changes_no_number(name, nets())


def counting_changes_no_number(name: str, some: dict[str, Classifier]) -> None:
    method = imported(name)
    for net, classifier in some.items():
        config = config_of(method, classifier, LIGHTER.get(name, {}))
        if method.needs_of(config).unmet(classifier.architecture()):
            continue
        runs = []
        for count in (False, True):
            fresh = Case(method, config, net, classifier).fresh()
            torch.manual_seed(1)
            if count:
                with measured("cpu"):
                    logits = [fresh.adapt(x.clone()) for x in BATCHES]
            else:
                logits = [fresh.adapt(x.clone()) for x in BATCHES]
            runs.append([*logits, *fresh.model.state_dict().values(), torch.get_rng_state()])
            assert hooks_of(fresh.model) == hooks_of(classifier)  # group norm has one of its own
        assert all(torch.equal(plain, counted) for plain, counted in zip(*runs, strict=True)), net


def hooks_of(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@pytest.mark.parametrize("name", others_at_night(COUNTED))
def test_adapted_parameters_are_those_that_the_method_states(name: str) -> None:
    for net in ("BN CNN", "LN ViT"):
        method, classifier = imported(name), nets()[net]
        config = config_of(method, classifier, LIGHTER.get(name, {}))
        if not method.needs_of(config).unmet(classifier.architecture()):
            fresh = Case(method, config, net, classifier).fresh()
            output = re.findall(r"([\d,]+) (?:parameters|numbers)", fresh.adapted())
            stated = sum(int(text.replace(",", "")) for text in output)
            if name in ("rmt", "spa"):  # what else they learn is no part of the network
                assert adapted_parameters(fresh) > stated
            else:
                assert adapted_parameters(fresh) == stated


def test_a_cell_has_its_costs() -> None:
    method = prepared("tent")
    with measured("cpu") as meter:
        for x in BATCHES:
            method.adapt(x)
    cost = meter.cost(method, N, 0.9, meter.seconds / N / 4)
    assert cost["images"] == N
    assert cost["ms_per_image"] == pytest.approx(900 / N)
    assert (cost["forward"], cost["backward"]) == (N, N)
    assert cost["compute_ratio"] == pytest.approx(4)
    assert cost["adapted_parameters"] == sum(p.numel() for p in method.parameters.values())


@pytest.mark.skipif("sys.platform != 'linux'", reason="resident memory is read from /proc")
def test_host_memory_is_the_peak_above_what_was_resident() -> None:
    held = torch.ones(20_000_000)  # 80 MB that were there before
    with measured("cpu") as meter:
        torch.ones(50_000_000).sum()  # 200 MB, freed at once
    assert 190 < meter.memory["host_mb"] < 260
    with measured("cpu") as meter:
        held.sum()
    assert meter.memory["host_mb"] < 40
    known = {"host_mb": 7.0}
    with measured("cpu", known) as meter:
        torch.ones(50_000_000).sum()
    assert meter.memory == known == {"host_mb": 7.0}


def test_a_method_that_learns_takes_longer_than_source_and_is_reset() -> None:
    method, classifier = prepared("tent"), nets()["BN CNN"]
    before = [value.clone() for value in method.model.state_dict().values()]
    batches = [(x.permute(0, 2, 3, 1).numpy() * 255).astype(np.uint8) for x in BATCHES]
    assert compute_ratio(method, classifier, batches) > 1
    assert all(map(torch.equal, before, method.model.state_dict().values()))
    with pytest.raises(ValueError, match="at least one batch"):
        compute_ratio(method, classifier, [])


class Timed(Method[NoConfig]):
    """Takes `per_image` seconds of `now` for each image of its first batch, its second batch …"""

    name = "timed"
    per_image = (9.0, 2.0, 3.0, 4.0)

    def setup(self, source: Any) -> None:
        self.batches = 0

    def adapt(self, x: Tensor) -> Tensor:
        now[0] += self.per_image[self.batches] * len(x)
        self.batches += 1
        logits = self.predict(x)
        precisions.append(logits.dtype)
        return logits


now = [0.0]
precisions: list[torch.dtype] = []


def test_the_compute_ratio_is_the_time_per_image_without_the_first_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[Any, ...]] = []

    def source_forward(*given: Any) -> float:
        asked.append(given)
        return 0.5

    monkeypatch.setattr(cost, "clock", lambda device: now[0])
    monkeypatch.setattr(cost, "source_forward", source_forward)
    classifier = nets()["GN CNN"]
    batches = [np.zeros((6, 16, 16, 3), np.uint8)] * 4
    ratio = compute_ratio(made(Timed, classifier), classifier, batches, precision="bfloat16")
    assert ratio == 3.0 / 0.5
    assert set(precisions) == {torch.bfloat16}
    assert [given[2:] for given in asked] == [(6, "cpu", "bfloat16")]


class TwoOptimizers(Method[NoConfig]):
    """Two optimisers have the last layer, and one of them its bias alone."""

    name = "two_optimizers"

    def setup(self, source: Any) -> None:
        layer = self.model.linear.requires_grad_(True)
        self.both = [torch.optim.SGD(layer.parameters(), lr=0.1), torch.optim.SGD([layer.bias], lr=0.1)]

    def adapt(self, x: Tensor) -> Tensor:
        return self.predict(x)


def test_a_parameter_of_two_optimisers_is_one_parameter() -> None:
    method = made(TwoOptimizers, nets()["GN CNN"])
    assert adapted_parameters(method) == sum(p.numel() for p in method.model.linear.parameters())


def test_source_is_timed_on_a_batch_and_learns_nothing() -> None:
    classifier = nets()["BN CNN"]
    before = [value.clone() for value in classifier.state_dict().values()]
    seconds = source_forward(classifier, np.zeros((9, 16, 16, 3), np.uint8), 4)
    assert 0 < seconds < 1
    assert all(map(torch.equal, before, classifier.state_dict().values()))


@pytest.mark.parametrize("least", [0.1, 0.0])
def test_a_clock_whose_ticks_are_longer_than_a_pass_gives_times_too(
    monkeypatch: pytest.MonkeyPatch, least: float
) -> None:
    """As the clock of a process whose CPU time is limited."""
    looks = itertools.count()  # half a millisecond after each other
    monkeypatch.setattr(cost, "clock", lambda device: next(looks) // 21 / 100)
    monkeypatch.setattr(cost, "SOURCE_SECONDS", least)
    method, images = prepared("bn_stats"), np.zeros((4, 16, 16, 3), np.uint8)
    assert source_forward(method.model, images, 4) > 0
    assert compute_ratio(method, method.model, [images]) > 0


def test_rows_that_are_zero_do_not_count() -> None:
    counted = Passes()
    gradient = torch.zeros(4, 3)
    gradient[1, 2] = -1e-30
    gradient[3] = float("nan")
    counted.add_backward(gradient, 4)
    assert counted.backward == 2
    counted.add_backward(gradient.flatten(), 4)  # not one row per image
    assert counted.backward == 6
