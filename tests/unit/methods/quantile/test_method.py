"""Quantile matching as a method: its pieces, and the whole on shifts with a known cure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.cases import each
from tests.unit.made_quantile import MEAN, QUICK, STD, classifier, images, prepared, shifted, source, to_bytes
from ttabench.classifier import Classifier
from ttabench.measure.order_and_batches import Stream
from ttabench.nn import channel_statistics
from ttabench_methods.quantile import Quantile, QuantileConfig
from ttabench_methods.quantile.bank import mean_unit
from ttabench_methods.quantile.geometric import quantile_index
from ttabench_methods.quantile.regulariser import channel_penalty
from ttabench_methods.quantile.sampling import high_confidence_uniform
from ttabench_methods.quantile.stopping import EarlyStopping
from ttabench_methods.shot import information_maximisation

# ---- sampling, regulariser, early stopping


def test_points_are_balanced_over_predicted_classes_and_confident() -> None:
    torch.manual_seed(0)
    logits = 3 * torch.randn(1000, 4)
    logits[:, 3] -= 6  # a rare class
    chosen = high_confidence_uniform(logits, per_class=20, keep=0.25)
    assert len(chosen.unique()) == len(chosen)
    confidence, predicted = logits.softmax(1).max(1)
    counts = torch.bincount(predicted[chosen], minlength=4)
    members = torch.bincount(predicted, minlength=4)
    assert counts[:3].tolist() == [20, 20, 20]
    assert counts[3] == min(20, members[3])
    for c in range(3):
        bound = confidence[predicted == c].quantile(0.75 - 2 / members[c])
        assert (confidence[chosen[predicted[chosen] == c]] >= bound).all()
    again = high_confidence_uniform(logits, per_class=20, keep=0.25)
    assert not torch.equal(again, chosen)  # a sample, not the top


def test_channel_penalty_is_the_squared_distance_of_channel_statistics() -> None:
    torch.manual_seed(0)
    mean, std = torch.tensor([0.2, 0.5, 0.7]), torch.tensor([0.1, 0.2, 0.3])
    x = torch.randn(8, 3, 5, 5)
    x = (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), correction=0, keepdim=True)
    x = x * std.view(1, 3, 1, 1) + mean.view(1, 3, 1, 1)
    assert channel_penalty(x, mean, std) < 1e-10
    moved = x + torch.tensor([0.1, 0.0, -0.2]).view(1, 3, 1, 1)
    assert channel_penalty(moved, mean, std).item() == pytest.approx(0.05, rel=1e-4)
    wider = mean.view(1, 3, 1, 1) + 2 * (x - mean.view(1, 3, 1, 1))
    assert channel_penalty(wider, mean, std).item() == pytest.approx(0.14, rel=1e-4)
    grey = torch.full((1, 3, 4, 4), 0.5, requires_grad=True)
    channel_penalty(grey, mean, std).backward()
    assert grey.grad is not None
    assert grey.grad.isfinite().all()


def test_early_stopping_keeps_the_lowest_loss() -> None:
    module = nn.Linear(1, 1, bias=False)
    stopping = EarlyStopping(module, patience=2, loss=5.0)
    stops = []
    for value, loss in [(1.0, 4.0), (2.0, 3.0), (3.0, 3.5), (4.0, 3.0), (5.0, 1.0)]:
        nn.init.constant_(module.weight, value)
        stops.append(stopping.stop(loss))
    assert stops == [False, False, False, True, False]
    assert stopping.settle(lambda: 1.0) == 1.0
    assert module.weight.item() == 5.0
    patient = EarlyStopping(module, patience=0, loss=0.0)
    nn.init.zeros_(module.weight)
    assert not any(patient.stop(1.0) for _ in range(50))
    assert patient.settle(lambda: 1.0) == 0.0
    assert module.weight.item() == 5.0


@pytest.mark.parametrize(
    ("exact", "kept"), [((9.0, 1.0, 2.0), 1.0), ((9.0, 3.0, 2.0), 2.0), ((1.0, 3.0, 2.0), 0.0)]
)
def test_what_is_kept_goes_by_exact_losses(exact: tuple[float, float, float], kept: float) -> None:
    """Of the start (weight 0), the epoch whose loss seemed lowest (1) and the last (2)."""
    module = nn.Linear(1, 1, bias=False)
    nn.init.constant_(module.weight, 0.0)
    stopping = EarlyStopping(module, patience=0, loss=exact[0])
    for value, seeming in [(1.0, 0.5), (2.0, 0.7)]:
        nn.init.constant_(module.weight, value)
        stopping.stop(seeming)
    assert stopping.settle(lambda: exact[int(module.weight.item())]) == min(exact)
    assert module.weight.item() == kept


@pytest.mark.parametrize(
    ("losses", "passes"), [((4.0, 3.0, 2.0), 0), ((4.0, 2.0, 2.05), 0), ((4.0, 2.0, 3.0), 2), ((4.0, 3.0), 1)]
)
def test_exact_losses_are_asked_for_only_in_doubt(losses: tuple[float, ...], passes: int) -> None:
    """Not where the last of at least three epochs has the lowest loss or almost; the start has 5."""
    module, asked = nn.Linear(1, 1, bias=False), []
    stopping = EarlyStopping(module, patience=0, loss=5.0)
    for value, loss in enumerate(losses):
        nn.init.constant_(module.weight, value)
        stopping.stop(loss)

    def exact() -> float:
        asked.append(module.weight.item())
        return losses[int(asked[-1])]

    kept = stopping.settle(exact)
    assert len(asked) == passes
    assert kept == losses[int(module.weight.item())]
    assert kept == pytest.approx(min(losses), abs=0.05)


@pytest.mark.parametrize(
    ("settings", "within"),
    [({"epochs": 1, "minibatch": 60}, 1e-4), ({"epochs": 2, "lr": 0.1}, 1e-4), ({"epochs": 6}, 0.1)],
)
def test_the_loss_that_is_told_is_that_of_what_is_kept(settings: dict[str, Any], within: float) -> None:
    """Exactly, or where that was not in doubt, as the bank estimates it."""
    method = prepared(settings)
    stream = Stream(shifted(130)[0], np.arange(130), 100)
    torch.manual_seed(1)
    method.fit(stream)
    with torch.no_grad():
        z = torch.cat([method.model.features(method.decorruptor(x)) for x in stream])
    whole = quantile_index(method.matching.points, z / method.matching.unit)
    assert method.kept == pytest.approx(
        float((whole - method.matching.index).square().sum(1).mean()), rel=within
    )
    assert method.kept <= method.losses[0]


# ---- the method


def accuracy(method: Quantile, stream: Stream, labels: Tensor) -> float:
    guesses = torch.cat([method.predict(x).argmax(1) for x in stream])
    return float((guesses == labels).float().mean())


@pytest.mark.parametrize("bank", ["step", "epoch", "optimal", "none"])
def test_offline_matching_undoes_a_shift(bank: str) -> None:
    x, labels = shifted(130)  # minibatches of 20 and 15
    method = prepared({"bank": bank, "bank_on_cpu": True, "start": "identity"})
    stream = Stream(x, np.arange(130), 100)
    before = accuracy(method, stream, labels)
    frozen = [p.clone() for p in method.model.parameters()]
    torch.manual_seed(1)
    method.fit(stream)
    assert before < 0.8
    assert accuracy(method, stream, labels) > 0.95
    assert method.losses[-1] < 0.2 * method.losses[0]
    assert len(method.losses) == 9
    assert all(torch.equal(a, b) for a, b in zip(frozen, method.model.parameters(), strict=True))
    assert not any(p.requires_grad for p in method.model.parameters())


def test_online_matching_undoes_a_shift_as_it_goes() -> None:
    x, labels = shifted(600)
    method = prepared({"recent": 64, "steps": 10, "online_lr": 1e-3, "start": "identity"})
    guesses = [method.adapt(batch).argmax(1) for batch in Stream(x, np.arange(600), 20)]
    right = (torch.cat(guesses) == labels).float()
    assert accuracy(prepared({}), Stream(x, np.arange(600), 600), labels) < 0.8
    assert right.mean() > 0.9
    assert right[-200:].mean() > 0.95
    assert len(method.stream.features) == 64


@each("batch", [1, 16, 200])
@each("clean", [False, True])
def test_online_matching_does_no_harm_as_it_comes(batch: int, clean: bool) -> None:
    count = 60 if batch == 1 else 200  # one by one, each image takes as long as a batch
    x, labels = (to_bytes(images(count, 2)[0]), torch.arange(count) % 4) if clean else shifted(count)
    method = Quantile(classifier(), QuantileConfig())
    torch.manual_seed(0)
    method.prepare(source())
    stream = Stream(x, np.arange(count), batch)
    before = float((torch.cat([classifier()(some).argmax(1) for some in stream]) == labels).float().mean())
    right = (torch.cat([method.adapt(some).argmax(1) for some in stream]) == labels).float()
    assert right.mean() >= before - 0.01


@pytest.mark.parametrize("mode", ["offline", "online"])
def test_the_better_start_is_taken(mode: str) -> None:
    """A change of the channels' means and spreads is undone before training; the source is left as it is."""
    for clean in (False, True):
        x = images(400, 1)[0] if clean else 0.1 * images(400, 2)[0] + np.array([0.3, 0.6, 0.2])
        method, stream = prepared({"lr": 1e-9, "online_lr": 1e-9}), Stream(to_bytes(x), np.arange(400), 400)
        if mode == "offline":
            method.fit(stream, epochs=1)
        else:
            for batch in stream:
                method.adapt(batch)
        batch = next(iter(stream))
        with torch.no_grad():
            started = method.decorruptor(batch)
        if clean:
            torch.testing.assert_close(started, batch, rtol=0, atol=1e-6)
        else:
            for have, wanted in zip(channel_statistics([started]), method.standard, strict=True):
                torch.testing.assert_close(have, wanted, rtol=0, atol=1e-3)


def test_before_adapting_it_is_the_classifier() -> None:
    method, x = prepared({}), torch.rand(5, 3, 8, 8)
    with torch.no_grad():
        assert torch.equal(method.predict(x), classifier()(x))


def test_same_seed_same_result_and_reset_goes_back() -> None:
    x, _ = shifted(60)
    probe, runs = torch.rand(4, 3, 8, 8), []
    method = prepared({"epochs": 2})
    at_start = method.predict(probe)
    for _ in range(2):
        method.reset()
        torch.manual_seed(3)
        method.fit(Stream(x, np.arange(60), 60))
        runs.append(method.predict(probe))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], at_start)
    method.reset()
    assert torch.equal(method.predict(probe), at_start)


@pytest.mark.parametrize("n", [1, 21])
def test_few_images_are_enough_to_run(n: int) -> None:
    x, _ = shifted(n)
    method = prepared({"epochs": 1})
    method.fit(Stream(x, np.arange(n), 20))
    assert method.adapt(torch.rand(1, 3, 8, 8)).isfinite().all()


def test_early_stopping_sees_no_labels_and_stops() -> None:
    """On the source itself there is nothing to gain: the identity is kept, or something no worse."""
    x = to_bytes(images(400, 1)[0])
    method = prepared({"epochs": 40, "patience": 2, "lr": 1e-1})
    method.fit(Stream(x, np.arange(400), 400))
    assert len(method.losses) < 41
    assert accuracy(method, Stream(x, np.arange(400), 400), torch.from_numpy(images(400, 1)[1])) > 0.95


def test_bfloat16_learns_too() -> None:
    x, labels = shifted(100)
    method, stream = prepared({}), Stream(x, np.arange(100), 100)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        method.fit(stream)
        assert accuracy(method, stream, labels) > 0.95
    assert all(p.dtype == torch.float32 for p in method.decorruptor.parameters())


def test_what_it_says_about_itself() -> None:
    method = prepared({})
    assert method.adapted() == "small decorruptor before the classifier (26,735 parameters)"
    assert method.alarms() == {}
    method.fit(Stream(shifted(20)[0], np.arange(20), 20), epochs=1)
    assert len(method.alarms()["quantile_loss"]) == 2


def test_without_source_features_it_cannot_start() -> None:
    with pytest.raises(ValueError, match="features of source data"):
        Quantile(classifier(), QuantileConfig()).prepare(None)


def test_indices_within_classes_count_only_features_of_the_class() -> None:
    """√weight × C × (share of the class) × the index among the features that are predicted as the class."""
    method = prepared({"per_class": 4.0})
    features = torch.randn(50, method.matching.points.shape[1]) + method.matching.points[:50]
    result = mean_unit(method.matching.points, features, method.matching.weigh)
    number = len(method.matching.points) // 2
    plain = quantile_index(method.matching.points[:number], features)
    torch.testing.assert_close(result[:number], plain, rtol=1e-4, atol=1e-5)
    of_points = method.model.head(method.matching.points[number:] * method.matching.unit).argmax(1)
    of_features = method.model.head(features * method.matching.unit).argmax(1)
    for c in range(4):
        points, mine = method.matching.points[number:][of_points == c], features[of_features == c]
        expected = 2.0 * 4 * len(mine) / 50 * quantile_index(points, mine)
        torch.testing.assert_close(result[number:][of_points == c], expected, rtol=1e-4, atol=1e-5)
    assert len(method.matching.index) == 2 * number


def test_matching_within_classes_undoes_a_shift() -> None:
    x, labels = shifted(130)
    method = prepared({"per_class": 1.0, "start": "identity", "epochs": 24})
    stream = Stream(x, np.arange(130), 100)
    torch.manual_seed(1)
    method.fit(stream)
    assert accuracy(method, stream, labels) > 0.95


@pytest.mark.parametrize("mode", ["offline", "online"])
def test_information_maximisation_leaves_predictions_surer_and_diverse(mode: str) -> None:
    x, labels = shifted(120)
    stream = Stream(x, np.arange(120), 40)
    result = []
    for weight in (0.0, 1.0):
        method = prepared({"information": weight, "epochs": 12, "online_lr": 1e-3, "steps": 20})
        torch.manual_seed(1)
        if mode == "offline":
            method.fit(stream)
        else:
            for batch in stream:
                method.adapt(batch)
        logits = torch.cat([method.predict(batch) for batch in stream])
        result.append(float(information_maximisation(logits)))
    assert result[1] < result[0]
    assert accuracy(method, stream, labels) > (0.9 if mode == "offline" else 0.25)


def test_batch_norm_of_the_target_is_undone_by_reset_and_needs_batch_norm() -> None:
    config = QuantileConfig(**{**QUICK, "batch_norm": "target", "epochs": 1})
    assert Quantile.needs_of(config).norm_layers == ("batch",)
    assert Quantile.needs_of(QuantileConfig()).norm_layers == ()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 4))
    method = Quantile(Classifier(net, last="3", mean=MEAN, std=STD), config)
    method.prepare(source())
    (norm,) = (m for m in method.model.modules() if isinstance(m, nn.BatchNorm2d))
    assert torch.equal(norm.running_mean, torch.zeros(4))
    method.fit(Stream(shifted(60)[0], np.arange(60), 60))
    assert not torch.equal(norm.running_mean, torch.zeros(4))
    method.reset()
    (norm,) = (m for m in method.model.modules() if isinstance(m, nn.BatchNorm2d))
    assert torch.equal(norm.running_mean, torch.zeros(4))


@pytest.mark.parametrize("batch", [49, 50])
def test_online_batch_norm_of_the_target_says_when_it_did_nothing(batch: int) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 4))
    config = QuantileConfig(**{**QUICK, "batch_norm": "target"})
    method = Quantile(Classifier(net, last="3", mean=MEAN, std=STD), config)
    method.prepare(source())
    for x in Stream(shifted(100)[0], np.arange(100), batch):
        method.adapt(x)
    norm: Any = next(m for m in method.model.modules() if isinstance(m, nn.BatchNorm2d))
    changed = not torch.equal(norm.running_mean, torch.zeros(4))
    assert changed == (batch == 50)
    assert ("batch norm" in method.adapted()) == changed
    assert ("49 images" in method.alarms().get("alarm", "")) == (not changed)
    method.reset()
    assert "alarm" not in method.alarms()


def test_online_it_takes_smaller_batches() -> None:
    assert Quantile.native_batch_size(10, "online") == 50
    assert Quantile.native_batch_size(10, "offline") == 512
