"""CoTTA, RoTTA and SoTTA: properties their papers state. Agreement with the originals: tests/golden."""

from __future__ import annotations

import copy
import warnings
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

from tests.cases import each
from tests.unit.prepared_methods import ready
from ttabench.classifier import Classifier
from ttabench.conformance.nets import images, nets
from ttabench.errors import Alarm
from ttabench.method import Method
from ttabench_methods.cotta import CoTTA
from ttabench_methods.rotta import RoTTA, timeliness
from ttabench_methods.sotta import SoTTA

M = TypeVar("M", bound=Method[Any])


def prepared(cls: type[M], net: str = "BN CNN", **settings: Any) -> M:
    return ready(cls(nets()[net], cls.Config(**settings)))


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, b[name]) for name, value in a.items())


class CountedViews:
    """Identical views, and how often one was asked for."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, x: Tensor) -> Tensor:
        self.count += 1
        return x


X = images(40, seed=2, shift=0.4)


# ---- CoTTA


def test_cotta_with_a_smoothing_of_one_keeps_its_teacher() -> None:
    method = prepared(CoTTA, smoothing=1.0, views=2)
    before = state(method.model)
    method.adapt(X)
    assert same(before, state(method.model))
    assert not same(before, state(method.student))


def test_cotta_with_a_smoothing_of_zero_copies_its_student() -> None:
    method = prepared(CoTTA, smoothing=0.0, restore=0.0, views=2)
    method.adapt(X)
    torch.testing.assert_close(state(method.model), state(method.student), rtol=1e-6, atol=1e-7)


def test_cotta_teacher_follows_by_one_minus_alpha() -> None:
    method = prepared(CoTTA, smoothing=0.9, restore=0.0, views=2)
    before = state(method.model)
    method.adapt(X)
    expected = {name: 0.9 * before[name] + 0.1 * value for name, value in state(method.student).items()}
    torch.testing.assert_close(state(method.model), expected)


def test_cotta_that_restores_everything_is_back_at_the_source() -> None:
    method = prepared(CoTTA, restore=1.0, views=2)
    before = state(method.student)
    for x in X.split(16):
        method.adapt(x)
    assert same(before, state(method.student))
    assert same(before, state(method.anchor))


def test_cotta_that_restores_nothing_and_needs_no_views_draws_nothing() -> None:
    method = prepared(CoTTA, restore=0.0, threshold=0.0)
    before = torch.get_rng_state()
    method.adapt(X)
    assert torch.equal(before, torch.get_rng_state())


def test_cotta_restores_the_given_share_of_the_weights() -> None:
    method = prepared(CoTTA, restore=0.3, threshold=0.0, lr=0.1)
    method.adapt(X[:20])
    weight, source = (m.get_parameter("net.layer4.0.weight") for m in (method.student, method.anchor))
    share = (weight == source).double().mean().item()
    assert share == pytest.approx(0.3, abs=5 * (0.3 * 0.7 / weight.numel()) ** 0.5)


@pytest.mark.parametrize(
    ("threshold", "quirks", "drawn"), [(0.0, False, 0), (0.0, True, 6), (1.1, False, 6), (1.1, True, 6)]
)
def test_cotta_looks_at_views_where_the_anchor_is_unsure(threshold: float, quirks: bool, drawn: int) -> None:
    method = prepared(CoTTA, threshold=threshold, views=6, official_quirks=quirks)
    method.view = views = CountedViews()
    plain = method.predict(X)
    torch.testing.assert_close(method.adapt(X), plain)  # the views are the batch itself
    assert views.count == drawn


def test_cotta_compares_the_anchors_confidence_and_not_the_students() -> None:
    method = prepared(CoTTA, restore=0.0, lr=0.3, threshold=0.0)
    sure = method.anchor(X).softmax(1).amax(1).mean().item()
    for _ in range(3):
        method.adapt(X)
    for threshold, expected in ((sure - 1e-3, 0), (sure + 1e-3, method.config.views)):
        method.config = CoTTA.Config(restore=0.0, threshold=threshold)
        method.view = views = CountedViews()
        method.pseudo_labels(X)
        assert views.count == expected


def test_cotta_trains_every_weight_and_bias_and_nothing_else() -> None:
    method = prepared(CoTTA, "LN ViT", restore=0.0, threshold=0.0, optimizer="sgd", lr=1.0)
    for x in X.split(8):
        method.adapt(x)
    before, after = state(method.anchor), state(method.student)
    still = {name for name in before if torch.equal(before[name], after[name])}
    assert still == {"net.cls_token", "net.pos_embed"}


def test_cotta_symmetric_loss_is_the_mean_of_both_cross_entropies() -> None:
    method = prepared(
        CoTTA, restore=0.0, threshold=0.0, symmetric=True, optimizer="sgd", momentum=0.0, lr=0.01,
        smoothing=0.9,
    )  # fmt: skip
    method.adapt(X[:20])  # at first student and teacher agree, and part from then on
    twin = copy.deepcopy(method.student)
    theta = [p for name, p in twin.named_parameters() if name in method.parameters]
    target, logits = method.predict(X[20:]), twin(X[20:])
    both = target.softmax(1) * logits.log_softmax(1) + logits.softmax(1) * target.log_softmax(1)
    gradients = torch.autograd.grad(-both.sum(1).mean() / 2, theta)
    method.adapt(X[20:])
    for now, before, gradient in zip(method.parameters.values(), theta, gradients, strict=True):
        torch.testing.assert_close(before.detach() - now.detach(), 0.01 * gradient)


# ---- RoTTA


def test_rotta_teacher_moves_by_nu() -> None:
    method = prepared(RoTTA, nu=0.25, update_every=40)
    before = {name: p.clone() for name, p in method.model.named_parameters()}
    method.adapt(X)
    students = dict(method.student.named_parameters())
    assert any(not torch.equal(before[name], students[name]) for name in method.parameters)
    for name, p in method.model.named_parameters():
        torch.testing.assert_close(p, 0.75 * before[name] + 0.25 * students[name])


def test_rotta_with_nu_zero_moves_only_its_teachers_statistics() -> None:
    method = prepared(RoTTA, nu=0.0, update_every=20)
    before = state(method.model)
    method.adapt(X)
    moved = {
        name.rpartition(".")[2] for name, v in state(method.model).items() if not torch.equal(v, before[name])
    }
    assert moved == {"running_mean", "running_var"}


def test_rotta_statistics_are_the_sources_and_a_share_of_the_memorys() -> None:
    """The first layer sees the same features before and after: its stored statistics can be told."""
    method = prepared(RoTTA, alpha=0.2, update_every=40)
    method.view = lambda x: 1 - x
    source = nets()["BN CNN"]
    method.adapt(X)
    memory = torch.stack([item.image for item in method.memory.items()])
    for net, seen in ((method.model, memory), (method.student, 1 - memory)):
        features = source.get_submodule("net.stem.0")(seen)
        old, new = (m.get_submodule("net.stem.1") for m in (source, net))
        var, mean = torch.var_mean(features, (0, 2, 3), correction=0)
        torch.testing.assert_close(new.running_mean, 0.8 * old.running_mean + 0.2 * mean.detach())
        torch.testing.assert_close(new.running_var, 0.8 * old.running_var + 0.2 * var.detach())


@pytest.mark.parametrize("batch", [1, 7, 20, 40])
def test_rotta_updates_at_the_same_images_however_the_stream_is_cut(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, seen = prepared(RoTTA, update_every=15), []
    monkeypatch.setattr(RoTTA, "update", lambda self: seen.append(self.arrived))
    for x in X.split(batch):
        method.adapt(x)
    assert seen == [15, 30]


def test_rotta_scores_a_batch_before_it_learns_from_it() -> None:
    method = prepared(RoTTA, update_every=5)
    before = method.predict(X)
    assert torch.equal(method.adapt(X), before)
    assert not torch.equal(method.predict(X), before)


def test_rotta_weighs_items_less_the_older_they_are() -> None:
    weights = timeliness(torch.tensor([0.0, 1.0, 5.0]))
    assert weights[0] == 0.5
    assert (weights.diff() < 0).all()


def test_rotta_is_for_batch_norm() -> None:
    method = RoTTA.needs_of(RoTTA.Config())
    assert [method.unmet(net.architecture()) for net in nets().values()] == ["", *["no batch norm"] * 2]


# ---- SoTTA


@pytest.mark.parametrize("batch", [1, 7, 16, 33])
def test_sotta_does_not_depend_on_how_the_stream_is_cut(batch: int) -> None:
    def run(size: int) -> Tensor:
        method = SoTTA(nets()["BN CNN"].double(), SoTTA.Config(threshold=0.5, update_every=16, capacity=12))
        method.prepare()
        torch.manual_seed(0)
        return torch.cat([method.adapt(x) for x in X.double().split(size)])

    torch.testing.assert_close(run(batch), run(len(X)))


def test_sotta_scores_a_group_before_it_learns_from_it() -> None:
    method = prepared(SoTTA, threshold=0.5, update_every=40)
    before = method.predict(X)
    assert torch.equal(method.adapt(X), before)
    assert not torch.equal(method.predict(X), before)


def test_sotta_that_admits_nothing_stays_the_source_and_says_so() -> None:
    method = prepared(SoTTA, threshold=1.0, update_every=10)
    before = state(method.model)
    with pytest.warns(Alarm, match="threshold 1 admits none of 10 images"):
        method.adapt(X)
    assert same(before, state(method.model))
    assert method.alarms() == {"alarm": "threshold 1 admits none of 40 images", "admitted": 0.0}


def test_sotta_warns_once_and_not_where_it_learns() -> None:
    method = prepared(SoTTA, threshold=1.0, update_every=10)
    with warnings.catch_warnings(record=True, action="always") as caught:
        for x in X.split(5):
            method.adapt(x)
        assert len(caught) == 1
        prepared(SoTTA, threshold=0.0, update_every=10).adapt(X)
    assert len(caught) == 1
    assert method.alarms()["alarm"]


def test_sotta_admits_by_confidence() -> None:
    method = prepared(SoTTA, update_every=1000, threshold=0.7, capacity=1000)
    confidence = method.adapt(X).softmax(1).amax(1)
    expected = {i for i, sure in enumerate(confidence.tolist()) if sure >= 0.7}
    assert 0 < len(expected) < len(X)
    assert {item.arrival for item in method.memory.items()} == expected


@pytest.mark.parametrize(("quirks", "passes"), [(False, 1), (True, 2)])
def test_sotta_moves_its_statistics_once_a_step_or_twice(quirks: bool, passes: int) -> None:
    """Weights move between the passes, but the first layer's input does not depend on what is learned."""
    source = nets()["BN CNN"]
    settings = SoTTA.Config(threshold=0.0, update_every=40, bn_momentum=0.2, official_quirks=quirks)
    method = ready(SoTTA(copy.deepcopy(source), settings))
    method.adapt(X)
    old, new = (m.get_submodule("net.stem.1") for m in (source, method.model))
    mean = source.get_submodule("net.stem.0")(X).mean((0, 2, 3)).detach()
    kept = 0.8**passes
    torch.testing.assert_close(new.running_mean, kept * old.running_mean + (1 - kept) * mean)


def test_sotta_leaves_the_top_alone() -> None:
    """Structurally, whatever its name: the last of four stages."""
    method = prepared(SoTTA, threshold=0.0, update_every=40)
    before = state(method.model)
    method.adapt(X)
    after = state(method.model)
    moved = {n for n, p in method.model.named_parameters() if not torch.equal(before[n], after[n])}
    assert moved == {f"net.{stage}.1.{leaf}" for stage in STAGES for leaf in ("weight", "bias")}


STAGES = ("stem", "layer1", "layer2", "layer3")


def test_sotta_goes_through_its_memory_in_minibatches(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Tensor] = []
    monkeypatch.setattr(SoTTA, "step", lambda self, x: steps.append(x))
    prepared(SoTTA, threshold=0.0, update_every=40, epochs=2, step_size=16).adapt(X)
    assert [len(step) for step in steps] == [16, 16, 8] * 2
    for once in (steps[:3], steps[3:]):
        assert sorted(torch.cat(once).mean((1, 2, 3)).tolist()) == sorted(X.mean((1, 2, 3)).tolist())


# ---- all three


@each(
    ("method", "classes", "expected"),
    [
        (CoTTA, 10, {}),
        (CoTTA, 100, {"threshold": 0.72}),
        (
            CoTTA,
            1000,
            {"optimizer": "sgd", "lr": 0.01, "restore": 0.001, "threshold": 0.1, "symmetric": True},
        ),
        (SoTTA, 10, {}),
        (SoTTA, 100, {"threshold": 0.66}),
        (SoTTA, 1000, {"threshold": 0.33}),
        (RoTTA, 100, {}),
    ],
)
def test_official_settings_of_a_dataset(
    method: type[Method[Any]], classes: int, expected: dict[str, object]
) -> None:
    assert dict(method.for_dataset("", classes)) == expected


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        (CoTTA, {"views": 2}),
        (RoTTA, {"update_every": 16}),
        (SoTTA, {"update_every": 16, "threshold": 0.0}),
        (SoTTA, {"update_every": 16, "threshold": 0.0, "statistics": "median"}),
    ],
)
def test_a_single_value_per_channel_is_enough(method: type[Method[Any]], settings: dict[str, Any]) -> None:
    """Batch norm on one image of one pixel, as after pooling to nothing: no error, finite logits."""

    class Narrow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Conv2d(3, 8, 16), nn.BatchNorm2d(8), nn.ReLU())
            self.more = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
            self.fc = nn.Linear(8, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.more(self.layers(x)))  # type: ignore[no-any-return]

    made = ready(method(Classifier(Narrow(), last="fc").eval(), method.Config(**settings)))
    for x in X.split(1):
        assert torch.isfinite(made.adapt(x)).all()
