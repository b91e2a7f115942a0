"""What quantile matching is made of is put together as its settings say: points, bank, loss, schedule."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from tests.unit.made_quantile import MEAN, QUICK, STD, classifier, images, prepared, shifted, source, to_bytes
from ttabench.classifier import Classifier
from ttabench.measure.order_and_batches import Stream
from ttabench.measure.source_access import SourceImages
from ttabench.method import Needs
from ttabench_methods.quantile import Quantile, QuantileConfig
from ttabench_methods.quantile import matching as module
from ttabench_methods.quantile.bank import mean_unit
from ttabench_methods.quantile.geometric import quantile_index
from ttabench_methods.quantile.regulariser import channel_penalty
from ttabench_methods.quantile.sampling import high_confidence_uniform
from ttabench_methods.shot import information_maximisation

CLASSES, K = 4, 12  # of the classifier


def units(points: Tensor, x: Tensor) -> Tensor:
    """Unit vectors (Q, n, k) from x to points, 0 where they are equal; in float64."""
    difference = points.double()[:, None] - x.double()[None]
    distance = difference.norm(dim=-1, keepdim=True)
    return torch.where(distance > 0, difference / distance, 0.0)


def stream(n: int, batch_size: int) -> Stream:
    return Stream(shifted(n)[0], np.arange(n), batch_size)


# ---- what is matched


@pytest.mark.parametrize("standardise", [False, True])
def test_points_are_chosen_by_hus_and_indices_are_among_all_source_features(
    standardise: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def noted(*args: Any) -> Tensor:
        asked.append((*args, high_confidence_uniform(*args)))
        return asked[-1][-1]

    monkeypatch.setattr(module, "high_confidence_uniform", noted)
    method = prepared(
        {"standardise": standardise, "quantiles_per_class": 7, "confident": 0.3, "source_features": 300}
    )
    ((logits, per_class, confident, chosen),) = asked
    features = source().features(classifier(), 300)
    with torch.no_grad():
        torch.testing.assert_close(logits, classifier().head(features))
    assert (per_class, confident) == (7, 0.3)
    if standardise:
        features = features / features.std(0, correction=0)
    torch.testing.assert_close(method.matching.points, features[chosen])
    # Each point is one of the features, and left out.
    index = units(method.matching.points, features).sum(1) / (len(features) - 1)
    torch.testing.assert_close(method.matching.index.double(), index, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(method.standard, source().channels(300))


def test_a_feature_that_is_constant_on_the_source_gets_a_unit_of_its_size() -> None:
    """A tenth of the mean standard deviation, so that it stays finite on the target."""
    x = images(400, 1)[0]
    x[..., 2] = 0.5
    method = Quantile(classifier(), QuantileConfig(**QUICK))
    method.prepare(SourceImages(lambda: to_bytes(x), Needs(source_data="features")))
    spread = method.matching.unit[:8].sum() / K
    torch.testing.assert_close(method.matching.unit[8:], (0.1 * spread).expand(4), rtol=1e-3, atol=0)


def test_indices_within_classes_are_among_the_source_features_of_the_class() -> None:
    method = prepared({"per_class": 4.0})
    points, again = method.matching.points.chunk(2)
    assert torch.equal(points, again)
    features = source().features(classifier()) / method.matching.unit
    torch.testing.assert_close(method.matching.index[: len(points)], quantile_index(points, features))
    of_points, of_features = (
        method.model.head(z * method.matching.unit).argmax(1) for z in (points, features)
    )
    for c in range(CLASSES):
        within = units(points[of_points == c], features[of_features == c]).sum(1) / len(features)
        result = method.matching.index[len(points) :][of_points == c]
        torch.testing.assert_close(result.double(), 2.0 * CLASSES * within, rtol=1e-4, atol=1e-5)


def test_loss_is_of_all_indices_and_within_classes_the_sum_of_both_halves() -> None:
    torch.manual_seed(0)
    for per_class in (0.0, 2.0):
        method = prepared({"per_class": per_class})
        estimate = torch.randn_like(method.matching.index)
        separate = (estimate - method.matching.index).square().sum(1)
        halves = [half.mean() for half in separate.chunk(2 if per_class else 1)]
        torch.testing.assert_close(method.matching.loss(estimate), sum(halves))
        torch.testing.assert_close(method.matching.loss(estimate, plain=True), halves[0])


def test_penalties_are_weighed_by_the_settings() -> None:
    x = next(iter(stream(20, 20)))
    for settings in ({"regulariser": 3.0, "proximity": 0.0}, {"regulariser": 0.0, "proximity": 5.0}):
        method = prepared(settings)
        method.decorruptor.standardise((torch.full((3,), 0.4), torch.full((3,), 0.2)), method.standard)
        decorrupted = x + 0.1 * torch.randn_like(x)
        start = method.decorruptor.before(x)
        expected = settings["regulariser"] * channel_penalty(decorrupted, *source().channels())
        expected = expected + settings["proximity"] * (decorrupted - start).square().mean()
        torch.testing.assert_close(method._penalty(x, decorrupted), expected)


def test_information_is_of_the_predictions_of_the_features() -> None:
    z = torch.randn(30, K, generator=torch.Generator().manual_seed(0))
    method = prepared({"information": 0.5})
    expected = 0.5 * information_maximisation(method.model.head(z * method.matching.unit))
    torch.testing.assert_close(method.matching.information(z), expected)
    assert prepared({}).matching.information(z) == 0


# ---- the bank


@pytest.mark.parametrize("bank", ["step", "epoch", "optimal", "none"])
def test_the_bank_is_the_one_that_is_named(bank: str) -> None:
    """Its estimates at two batches that overlap, by hand."""
    method, draw = prepared({"bank": bank}), torch.Generator().manual_seed(0)
    then = method.matching.points.mean(0) + torch.randn(30, K, generator=draw)
    now = then + 1.5 * torch.randn(30, K, generator=draw)
    first, second = torch.arange(10), torch.arange(5, 15)
    made = method.matching.bank(then.clone())

    def h(x: Tensor) -> Tensor:
        return units(method.matching.points, x).mean(1)

    mean, moved = h(then), h(now[first]) - h(then[first])
    expected = h(now[first]) if bank == "none" else moved + mean
    torch.testing.assert_close(made.estimate(first, now[first]).double(), expected, rtol=1e-4, atol=1e-5)

    beta: float | Tensor = 0.0 if bank == "none" else 1.0
    if bank == "optimal":  # β* of the batch before
        c = (
            (units(method.matching.points, now[first]) * units(method.matching.points, then[first]))
            .sum(-1)
            .mean(1)
        )
        beta = (c - ((mean + moved) * mean).sum(1)) / (1 - mean.square().sum(1))
        assert 0.1 < beta.min() < beta.max() < 0.9
        beta = beta.unsqueeze(1)
    seen = then.clone()
    seen[first] = now[first]
    if bank == "step":
        mean = h(seen)
    expected = h(now[second]) + beta * (mean - h(seen[second]))
    torch.testing.assert_close(made.estimate(second, now[second]).double(), expected, rtol=1e-4, atol=1e-5)


def test_the_bank_weighs_by_class() -> None:
    method, x = prepared({"per_class": 4.0}), torch.randn(30, K)
    everything = method.matching.bank(torch.randn(30, K)).estimate(torch.arange(30), x)
    torch.testing.assert_close(
        everything, mean_unit(method.matching.points, x, method.matching.weigh), rtol=1e-4, atol=1e-5
    )
    assert (
        everything[: len(method.matching.points) // 2] - everything[len(method.matching.points) // 2 :]
    ).abs().max() > 0.1


@pytest.mark.parametrize("on_cpu", [False, True])
def test_the_bank_is_on_the_cpu_if_asked_for(on_cpu: bool) -> None:
    class OnDevice(Tensor):
        """Stands for features on a GPU."""

        def cpu(self, *_: Any) -> Tensor:  # type: ignore[override]
            return self.as_subclass(Tensor)

    bank = prepared({"bank_on_cpu": on_cpu}).matching.bank(torch.randn(5, K).as_subclass(OnDevice))
    assert isinstance(bank.features, OnDevice) != on_cpu


@pytest.mark.parametrize("settings", [{"start": "identity"}, {"start": "auto"}, {"batch_norm": "target"}])
def test_the_bank_starts_from_the_features_at_the_start(settings: dict[str, str]) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 4))
    method = Quantile(Classifier(net, last="3", mean=MEAN, std=STD), QuantileConfig(**{**QUICK, **settings}))
    method.prepare(source())
    x = stream(60, 25)
    features = method._start(x)
    with torch.no_grad():
        now = (
            torch.cat([method.model.features(method.decorruptor(batch)) for batch in x])
            / method.matching.unit
        )
    torch.testing.assert_close(features, now)
    started = not torch.equal(method.decorruptor.before(next(iter(x))), next(iter(x)))
    assert started == (settings.get("start") != "identity")


# ---- the schedule


Update = tuple[float, Tensor]  # learning rate, parameters after


def updates(method: Quantile) -> list[Update]:
    """Filled with every update of the decorruptor from now on."""
    seen: list[Update] = []

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        parameters = parameters_to_vector(method.decorruptor.parameters()).detach().clone()
        seen.append((optimizer.param_groups[0]["lr"], parameters))

    method.optimizer.register_step_post_hook(note)
    return seen


@pytest.mark.parametrize("warmup", [0.0, 0.25, 1.0])
def test_the_learning_rate_rises_on_a_line_and_falls_on_a_cosine(warmup: float) -> None:
    method = prepared({"lr": 0.02, "warmup": warmup})
    seen = updates(method)
    method.fit(stream(60, 40), epochs=4)  # 3 updates of 20 images each
    done = [i / 12 for i in range(12)]
    rise = [min(1.0, (p + 1e-3) / warmup) if warmup else 1.0 for p in done]
    fall = [(1 + math.cos(math.pi * p)) / 2 for p in done]
    assert [lr for lr, _ in seen] == pytest.approx([0.02 * a * b for a, b in zip(rise, fall, strict=True)])


def test_online_the_learning_rate_is_constant_and_steps_are_counted() -> None:
    method = prepared({"online_lr": 0.02, "steps": 3})
    seen = updates(method)
    for batch in stream(60, 20):
        method.adapt(batch)
    assert [lr for lr, _ in seen] == [0.02] * 9


def test_online_indices_within_classes_are_left_out() -> None:
    ways = []
    for settings in ({}, {"per_class": 4.0}, {"information": 1.0}):
        method = prepared(settings)
        seen = updates(method)
        for batch in stream(60, 20):
            method.adapt(batch)
        ways.append(seen[-1][1])
    torch.testing.assert_close(ways[1], ways[0], rtol=0, atol=1e-5)
    assert (ways[2] - ways[0]).abs().max() > 1e-5


@pytest.mark.parametrize("looks", [{"per_class": 4.0}, {"information": 1.0}])
def test_the_loss_looks_at_predictions_after_a_third_of_the_epochs(looks: dict[str, float]) -> None:
    ways = []
    for settings in ({}, looks):
        method = prepared({**settings, "start": "identity"})
        seen = updates(method)
        torch.manual_seed(1)
        method.fit(stream(60, 60), epochs=6)
        ways.append(torch.stack([parameters for _, parameters in seen]))
    separate = (ways[0] - ways[1]).abs().amax(1)
    assert separate[:6].max() < 1e-5  # two epochs of 3 updates
    assert separate[6] > 1e-4


def test_minibatches_are_about_equal_and_a_pass_over_all_images() -> None:
    x, _ = shifted(130)
    parts = list(prepared({})._minibatches(Stream(x, np.arange(130), 100)))
    assert [len(part) for _, part in parts] == [20] * 5 + [15] * 2
    positions = torch.cat([at for at, _ in parts])
    assert positions.sort().values.tolist() == list(range(130))
    assert positions.tolist() != list(range(130))
    for at, part in parts:
        assert torch.equal(part, torch.from_numpy(x[at.numpy()]).permute(0, 3, 1, 2).float().div(255))


def test_online_the_stream_keeps_what_was_scored() -> None:
    method = prepared({"recent": 50})
    for batch in stream(60, 20):
        logits = method.adapt(batch)
        torch.testing.assert_close(logits, method.predict(batch))
        with torch.no_grad():
            z = method.model.features(method.decorruptor(batch)) / method.matching.unit
        last = [(method.stream.seen - 20 + i) % 50 for i in range(20)]
        torch.testing.assert_close(method.stream.features[last], z)
    assert method.stream.seen == 60


def test_the_gradient_is_clipped() -> None:
    method, norms = prepared({"clip": 0.01}), list[float]()

    def note(optimizer: torch.optim.Optimizer, *_: object) -> None:
        gradients = [p.grad.flatten() for group in optimizer.param_groups for p in group["params"]]
        norms.append(float(torch.cat(gradients).norm()))

    method.optimizer.register_step_pre_hook(note)
    method.fit(stream(40, 40), epochs=1)
    assert norms
    assert norms == pytest.approx([0.01] * len(norms), rel=1e-3)  # without the bound they are above 1
