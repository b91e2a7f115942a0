from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from tests.cases import each
from tests.one_set import evaluate
from tests.unit.prepared_methods import ready
from ttabench.cell.protocol import Protocol
from ttabench.classifier import Classifier
from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench.data.dataset import Labelled
from ttabench.data.mixed import mixed
from ttabench.errors import UnusableModel, UserError
from ttabench.measure.contamination import interleave
from ttabench.measure.image_stream import Part
from ttabench.measure.order_and_batches import Stream, arrange
from ttabench.measure.scoring import predictions
from ttabench.measure.source_access import SourceImages
from ttabench.method import Batches, Method, Needs
from ttabench.models.clean_accuracy import clean_accuracy
from ttabench.nn.pixels import to_tensor
from ttabench.observe.collapse import alarm_of_counts, effective_number, number_in_draws

CLASSES = 4


def data(n: int = 10) -> Labelled:
    """The class of an image is written in its first pixel, so that a net can be exactly right."""
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (n, 8, 8, 3), np.uint8)
    labels = np.arange(n) % CLASSES
    images[:, 0, 0, 0] = labels * 10
    return Labelled(images, labels)


class Reads(nn.Module):
    """Logits that name the class written in the first pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(CLASSES, CLASSES)
        with torch.no_grad():
            self.fc.weight.copy_(torch.eye(CLASSES))
            self.fc.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        label = (x[:, 0, 0, 0] * 25.5).round().long().clamp(0, CLASSES - 1)
        out: Tensor = self.fc(nn.functional.one_hot(label, CLASSES).float())
        return out


@dataclass(frozen=True)
class _Config:
    shift: int = 0


class Toy(Method[_Config]):
    """Right, but for a shift of the class; notes what it is shown."""

    name = "toy"
    Config = _Config

    def setup(self, source: Any) -> None:
        self.seen: list[int] = []
        self.bias = 0

    def adapt(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        self.bias += 1
        return self.predict(x).roll(self.config.shift, dims=1)

    def fit(self, batches: Batches, epochs: int = 0) -> None:
        for _ in range(epochs or 2):
            for where, x in batches.shuffled():
                assert len(where) == len(x)
                self.seen.append(len(x))


def toy(**config: int) -> Toy:
    return ready(Toy(Classifier(Reads(), last="fc"), _Config(**config)))


def test_labels_meet_their_images_whatever_the_order() -> None:
    for seed in range(5):
        assert evaluate(toy(), data(), Protocol(batch_size=3), seed).accuracy == 100.0
        assert evaluate(toy(shift=1), data(), Protocol(batch_size=3), seed).accuracy == 0.0


def test_a_permutation_of_the_labels_is_noticed() -> None:
    good = data()
    wrong = Labelled(good.images, np.roll(good.labels, 1))
    assert evaluate(toy(), wrong, Protocol(), 0).accuracy == 0.0


def test_correctness_is_kept_in_the_order_of_the_test_set() -> None:
    mixed = data()
    mixed.labels[[2, 5]] = (mixed.labels[[2, 5]] + 1) % CLASSES
    seen = evaluate(toy(), mixed, Protocol(batch_size=4), 3)
    assert np.flatnonzero(~seen.correct).tolist() == [2, 5]
    assert seen.accuracy == 80.0


def test_online_sees_every_image_once_and_offline_as_often_as_it_likes() -> None:
    online, offline = toy(), toy()
    evaluate(online, data(), Protocol(batch_size=4), 0)
    assert online.seen == [4, 4, 2]
    evaluate(offline, data(), Protocol(mode="offline", batch_size=4, epochs=3), 0)
    assert offline.seen == [4, 4, 2] * 3


def test_episodic_resets_before_every_batch() -> None:
    method = toy()
    evaluate(method, data(), Protocol(batch_size=4, reset="episodic"), 0)
    assert method.bias == 1


def test_counts_are_those_of_one_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is reset: an episodic stream counts all its batches, a continual one those of each cell."""
    adapt = Toy.adapt

    def counting(self: Toy, x: Tensor) -> Tensor:
        self.counts["images"] += len(x)
        return adapt(self, x)

    monkeypatch.setattr(Toy, "adapt", counting)
    method = toy()
    for reset in ("episodic", "continual", "continual"):
        evaluate(method, data(), Protocol(batch_size=4, reset=reset), 0)
        assert method.counts == {"images": 10}


def test_the_limit_takes_the_first_images() -> None:
    seen = evaluate(toy(), data(), Protocol(limit=7), 0)
    assert len(seen.correct) == 7
    assert len(evaluate(toy(), data(), Protocol(limit=70), 0).correct) == 10


def test_foreign_images_are_seen_and_not_scored() -> None:
    method = toy()
    seen = evaluate(method, data(30), Protocol(batch_size=8, contamination="noise(0.25)"), 0)
    assert sum(method.seen) == 40
    assert len(seen.correct) == 30
    assert seen.accuracy == 100.0


@given(n=st.integers(1, 50), foreign=st.integers(0, 50), seed=st.integers(0, 100))
@settings(max_examples=30, deadline=None)
def test_interleaving_keeps_the_order_and_loses_nothing(n: int, foreign: int, seed: int) -> None:
    mixed = interleave(np.arange(n)[::-1].copy(), n, foreign, seed)
    assert sorted(mixed) == list(range(n + foreign))
    assert mixed[mixed < n].tolist() == list(range(n))[::-1]


@each(
    ("logits", "message"),
    [
        (torch.full((10, 4), float("nan")), "NaN"),
        (torch.full((10, 4), float("inf")), "infinite"),
        (torch.zeros(3, 4), r"returned \(3, 4\)"),
        (torch.zeros(10, 5), r"returned \(10, 5\); expected logits \(10, 4\)"),
        (torch.zeros(10), r"returned \(10,\)"),
        (None, "returned NoneType"),
        ([[0.0] * 4] * 10, "returned list"),
    ],
)
def test_unusable_logits_are_named(logits: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Toy, "adapt", lambda self, x: logits)
    with pytest.raises(UnusableModel, match=message):
        evaluate(toy(), data(), Protocol(), 0)


def test_a_collapse_raises_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    assert evaluate(toy(), data(), Protocol(), 0).alarm == ""
    constant = torch.eye(CLASSES)[:1]
    monkeypatch.setattr(Toy, "adapt", lambda self, x: constant.expand(len(x), -1))
    assert "1.0 effective classes and labels have 4.0" in evaluate(toy(), data(12), Protocol(), 0).alarm


def _alarm(predicted: NDArray[np.int64], labels: NDArray[np.int64]) -> str:
    return alarm_of_counts(np.bincount(predicted), np.bincount(labels))


@given(classes=st.integers(2, 1000), of=st.integers(0, 999), rarest=st.floats(0.2, 1))
@settings(deadline=None)
def test_a_collapse_to_one_class_is_one_whatever_their_number(classes: int, of: int, rarest: float) -> None:
    labels = np.repeat(np.arange(classes), np.linspace(10 * rarest, 10, classes).astype(int))
    assert "predictions have 1.0 effective classes" in _alarm(np.full(len(labels), of % classes), labels)
    assert _alarm(labels, labels) == ""


@pytest.mark.parametrize(("used", "collapsed"), [(5, True), (7, False)])
def test_a_collapse_is_to_less_than_half_of_the_classes_the_first_not_counted(
    used: int, collapsed: bool
) -> None:
    """Of eleven classes: five are four more than one, and half of ten is five."""
    labels = np.arange(2310) % 11
    assert bool(_alarm(np.arange(2310) % used, labels)) == collapsed


@pytest.mark.parametrize("each", [1, 10])
def test_random_mistakes_are_no_collapse_where_there_are_few_images_of_each_class(each: int) -> None:
    """One image of each of 1,000 classes, few of them right: this alone halves the classes."""
    labels, draw = np.arange(1000).repeat(each), np.random.Generator(np.random.PCG64(each))
    likely = draw.dirichlet(np.ones(1000))  # some classes are taken for others more often
    wrong = draw.choice(1000, len(labels), p=likely)
    predicted = np.where(draw.random(len(labels)) < 0.2, labels, wrong)
    assert _alarm(predicted, labels) == ""
    assert "collapse" in _alarm(predicted % 250, labels)
    assert "labels have 1000.0" in _alarm(predicted % 250, labels)


def test_the_number_in_draws_is_that_of_the_classes_where_images_are_many() -> None:
    assert number_in_draws(np.full(1000, 1)) == pytest.approx(565, abs=10)
    assert number_in_draws(np.full(10, 1000)) == pytest.approx(10, rel=2e-3)
    assert number_in_draws(np.array([900, 100])) == pytest.approx(
        effective_number(np.array([900, 100])), rel=0.05
    )


def test_one_class_that_is_there_alone_is_no_collapse() -> None:
    assert _alarm(np.zeros(9, int), np.zeros(9, int)) == ""


def test_few_mistakes_between_two_classes_are_no_collapse() -> None:
    labels = np.arange(100) % 2
    assert _alarm(np.where(np.arange(100) < 40, 0, labels), labels) == ""  # 70 : 30
    assert _alarm(np.where(np.arange(100) < 80, 0, labels), labels) != ""  # 90 : 10


def test_progress_is_told() -> None:
    told: list[tuple[int, int, int]] = []
    evaluate(toy(), data(), Protocol(batch_size=4), 0, on_batch=lambda *a: told.append(a))
    assert told == [(4, 4, 4), (8, 8, 8), (10, 10, 10)]


def test_clean_accuracy_is_in_percent() -> None:
    assert clean_accuracy(Classifier(Reads(), last="fc"), data()) == 100.0


def test_the_accuracy_on_images_of_224_pixels_is_measured_in_small_batches() -> None:
    """500 of them need gigabytes in one layer."""
    batches: list[int] = []

    def network(x: Tensor) -> Tensor:
        batches.append(len(x))
        return torch.zeros(len(x), 2)

    images = Labelled(np.zeros((60, 224, 224, 3), np.uint8), np.zeros(60, np.int64))
    assert clean_accuracy(network, images) == 100.0
    assert batches == [50, 10]


@given(seed=st.integers(0, 1000), order=st.sampled_from(["iid", "dirichlet(0.1)", "dirichlet(10)"]))
@settings(max_examples=30, deadline=None)
def test_every_order_is_a_permutation_and_a_function_of_the_seed(seed: int, order: str) -> None:
    labels = np.arange(60) % CLASSES
    result = arrange(order, labels, seed)
    assert sorted(result) == list(range(60))
    assert result.tolist() == arrange(order, labels, seed).tolist()


def test_a_mixed_stream_deals_every_corruption_its_share() -> None:
    class Numbered:
        """A dataset whose images under the n-th corruption are all n."""

        def test(self) -> Labelled:
            return Labelled(np.zeros((47, 8, 8, 3), np.uint8), np.arange(47))

        def corrupted(self, corruption: str, severity: int) -> Labelled:
            number = CORRUPTIONS.index(corruption)
            return Labelled(np.full((47, 8, 8, 3), number, np.uint8), np.arange(47))

    result = mixed(Numbered(), 5, 0)  # type: ignore[arg-type]
    shares = np.bincount(result.images[:, 0, 0, 0], minlength=len(CORRUPTIONS))
    assert set(shares) <= {3, 4}
    assert result.labels.tolist() == list(range(47))
    again = mixed(Numbered(), 5, 1)  # type: ignore[arg-type]
    assert (result.images != again.images).any()


def test_small_concentration_correlates_neighbours() -> None:
    labels = np.arange(2000) % 10

    def same(order: str) -> float:
        stream = labels[arrange(order, labels, 0)]
        return float((stream[1:] == stream[:-1]).mean())

    assert same("iid") < 0.15
    assert same("dirichlet(0.01)") > 2 * same("iid")


def test_pixels_arrive_in_range_and_in_place() -> None:
    images = data().images
    x = to_tensor(images)
    assert x.shape == (10, 3, 8, 8)
    assert float(x.max()) <= 1.0
    assert torch.equal((x * 255).round().byte(), torch.from_numpy(images).permute(0, 3, 1, 2))


def test_a_shuffled_pass_pairs_positions_with_images() -> None:
    images = data().images
    stream = Stream(images, np.arange(10)[::-1].copy(), 3)
    whole = torch.cat(list(stream))
    for where, x in stream.shuffled():
        assert torch.equal(x, whole[where])


def batches(source: SourceImages) -> Iterator[Tensor]:
    return source.batches(4, limit=6, shuffle=True)


def test_source_data_is_given_only_as_declared() -> None:
    images, classifier = data().images, Classifier(Reads(), last="fc")
    nothing = SourceImages(lambda: pytest.fail("loaded without need"), Needs())
    features = SourceImages(lambda: images, Needs(source_data="features"))
    everything = SourceImages(lambda: images, Needs(source_data="images"))
    for ask in (lambda: nothing.features(classifier), lambda: batches(nothing), lambda: batches(features)):
        with pytest.raises(PermissionError, match="Needs"):
            ask()
    assert features.features(classifier).shape == (10, CLASSES)
    assert features.features(classifier, limit=4).shape == (4, CLASSES)
    assert sum(len(x) for x in batches(everything)) == 6
    assert sum(len(x) for x in everything.batches(4)) == 10


def test_source_features_are_computed_once_for_a_classifier_and_anew_for_another() -> None:
    passes = 0

    class Counted(Reads):
        def forward(self, x: Tensor) -> Tensor:
            nonlocal passes
            passes += len(x)
            return super().forward(x)

    images, needs = np.repeat(data(10).images, 4, axis=0), Needs(source_data="features")
    memo: dict[int, Any] = {}
    classifier = Classifier(Counted(), last="fc")
    first, second = (SourceImages(lambda: images, needs, memo=memo) for _ in range(2))
    result = first.features(classifier)
    once = passes
    assert torch.equal(second.features(copy.deepcopy(classifier)), result)
    assert passes < once + len(images) / 2
    result += 1  # what a method does to its features is its own affair
    other = Classifier(Counted(), last="fc", mean=(0.5, 0.5, 0.5))
    alone = SourceImages(lambda: images, needs)
    for net in (classifier, other):
        assert torch.equal(second.features(net), alone.features(net))
    assert not torch.equal(second.features(other), second.features(classifier))


def test_wrong_arrays_are_refused() -> None:
    good = data()
    with pytest.raises(UserError, match="uint8"):
        Labelled(good.images.astype(np.float32), good.labels)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="10 images but labels"):
        Labelled(good.images, good.labels[:5])


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_held_out_images_are_scored_and_never_adapted_on(mode: str) -> None:
    class Tells(Toy):
        """Wrong on exactly the images it has adapted on."""

        def setup(self, source: Any) -> None:
            super().setup(source)
            self.known: set[bytes] = set()

        def _note(self, x: Tensor) -> None:
            self.known |= {one.numpy().tobytes() for one in x}

        def adapt(self, x: Tensor) -> Tensor:
            self._note(x)
            return super().adapt(x)

        def fit(self, batches: Batches, epochs: int = 0) -> None:
            for x in batches:
                self._note(x)

        def predict(self, x: Tensor) -> Tensor:
            logits = super().predict(x)
            known = torch.tensor([one.numpy().tobytes() in self.known for one in x])
            return torch.where(known[:, None], logits.roll(1, dims=1), logits)

    method = ready(Tells(Classifier(Reads(), last="fc"), _Config()))
    seen = evaluate(method, data(11), Protocol(mode=mode, batch_size=3, held_out=0.4), seed=1)
    assert len(method.known) == 7
    assert seen.accuracy == 100.0
    assert len(seen.correct) == 4
    assert evaluate(method, data(11), Protocol(mode="offline", batch_size=3), seed=1).accuracy == 0.0


def test_held_out_images_differ_with_the_seed_and_not_with_the_method() -> None:
    def held_out(seed: int) -> list[int]:
        order = arrange("iid", data(11).labels, seed)
        return sorted(order[-4:].tolist())

    assert held_out(0) != held_out(1)
    wrong_on_class_0 = Labelled(data(11).images, np.where(data(11).labels == 0, 1, data(11).labels))
    for seed in range(3):
        chosen = np.array(held_out(seed))
        seen = evaluate(toy(), wrong_on_class_0, Protocol(batch_size=4, held_out=0.4), seed)
        assert seen.correct.tolist() == (data(11).labels[chosen] != 0).tolist()


def test_predictions_are_chosen_from_the_scored_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Class 1 and 3 are there; the logits of 0 and 2 are higher, and do not count."""
    there = data()
    there.labels[:] = np.arange(10) % 2 * 2 + 1

    def adapt(self: Toy, x: Tensor) -> Tensor:
        label = torch.round(x[:, 0, 0, 0] * 25.5).long()  # 0 … 3: the labels are 1, 3, 1, 3
        logits = torch.zeros(len(x), CLASSES)
        logits[:, 0], logits[:, 2] = 9.0, 8.0
        logits[torch.arange(len(x)), label % 2 * 2 + 1] = 1.0
        return logits

    monkeypatch.setattr(Toy, "adapt", adapt)
    told: list[tuple[int, ...]] = []
    masked = evaluate(toy(), there, Protocol(), 0, on_batch=lambda *a: told.append(a), scored_classes=(1, 3))
    assert masked.accuracy == 100
    assert told[-1] == (10, 10, 10)
    assert masked.alarm == ""
    whole = evaluate(toy(), there, Protocol(), 0)
    assert whole.accuracy == 0
    assert "1.0 effective classes and labels have 2.0" in whole.alarm


def test_confidence_is_among_the_scored_classes() -> None:
    logits = torch.tensor([[9.0, 1.0, 5.0, 2.0], [0.0, 3.0, 7.0, 1.0]])
    classes, probability = predictions(logits, 2, CLASSES, 1, (1, 3))
    assert classes.tolist() == [3, 1]
    assert probability == pytest.approx(logits[:, [1, 3]].softmax(dim=1).amax(dim=1).numpy())


def test_what_a_method_draws_depends_on_the_seed_alone() -> None:
    class Draws(Toy):
        name = "draws"

        def adapt(self, x: Tensor) -> Tensor:
            self.drawn = float(torch.rand(()))
            return super().adapt(x)

    def drawn(seed: int) -> float:
        method = ready(Draws(toy().model, _Config()))
        evaluate(method, data(), Protocol(), seed)
        return method.drawn

    torch.manual_seed(3)
    first = drawn(0)
    assert drawn(1) != first
    assert drawn(0) == first


def test_a_collapse_within_the_scored_classes_raises_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    there = data()
    there.labels[:] = np.arange(10) % 2 * 2 + 1
    monkeypatch.setattr(Toy, "adapt", lambda self, x: torch.eye(CLASSES)[:1].expand(len(x), -1))
    result = evaluate(toy(), there, Protocol(), 0, scored_classes=(1, 3))
    assert "1.0 effective classes and labels have 2.0" in result.alarm
    assert result.accuracy == 50  # class 1, the first of those that tie


def test_results_are_in_the_order_of_the_test_set_and_held_out_ones_alone_count() -> None:
    given = data()
    part = Part(given, Protocol(held_out=0.3), seed=4)
    scored = part.order.scored
    assert (part.total, part.scored) == (3, 3)
    assert scored[part.places].tolist() == sorted(scored)
    batch = part.read(0, 3)
    assert batch.labels.tolist() == given.labels[scored].tolist()
    assert (batch.images == given.images[scored]).all()


def test_images_go_to_the_device_and_the_time_ends_when_it_has_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    devices: list[str] = []
    clock = iter([100.0, 102.5])
    waits: list[float] = []

    def moved(images: Any, device: str) -> Tensor:
        devices.append(device)
        return to_tensor(images)

    monkeypatch.setattr("ttabench.measure.scoring.to_tensor", moved)
    monkeypatch.setattr("ttabench.measure.order_and_batches.to_tensor", moved)
    monkeypatch.setattr("ttabench.measure.scoring.autocast", lambda protocol, device: nullcontext())
    monkeypatch.setattr("ttabench.measure.scoring.clock", lambda device: 0.0)
    monkeypatch.setattr("ttabench.measure.scoring.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(len(list(copy.copy(clock)))))
    seen = evaluate(toy(), data(), Protocol(mode="offline", batch_size=5, epochs=1), 0, "cuda:3")
    assert devices == ["cuda:3"] * 4  # to adapt, and to score
    assert waits == [1]  # before the clock is read for the second time
    assert seen.seconds == 2.5


def test_logits_are_handed_on_as_far_as_they_are_scored() -> None:
    handed: list[Tensor] = []
    evaluate(toy(), data(), Protocol(batch_size=4), 0, scored_classes=(2, 0), on_logits=handed.append)
    assert [tuple(logits.shape) for logits in handed] == [(4, 2), (4, 2), (2, 2)]


def test_logits_of_foreign_images_are_not_handed_on() -> None:
    handed: list[Tensor] = []
    protocol = Protocol(batch_size=8, contamination="noise(0.25)")
    evaluate(toy(), data(30), protocol, 0, on_logits=handed.append)
    counts = torch.cat(handed).argmax(1).bincount(minlength=CLASSES)
    assert counts.tolist() == np.bincount(data(30).labels, minlength=CLASSES).tolist()


@pytest.mark.parametrize(("value", "kind"), [("nan", "NaN"), ("inf", "infinite")])
def test_logits_that_are_no_numbers_are_named_with_their_batch(
    monkeypatch: pytest.MonkeyPatch, value: str, kind: str
) -> None:
    monkeypatch.setattr(Toy, "adapt", lambda self, x: torch.full((len(x), CLASSES), float(value)))
    with pytest.raises(UnusableModel) as problem:
        evaluate(toy(), data(), Protocol(), 0)
    assert str(problem.value) == f"batch 1: the model returned {kind} logits"


def test_a_later_batch_is_named_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_is_nan(self: Toy, x: Tensor) -> Tensor:
        return torch.full((len(x), CLASSES), 0.0 if len(x) == 4 else torch.nan)

    monkeypatch.setattr(Toy, "adapt", last_is_nan)
    with pytest.raises(UnusableModel, match=r"^batch 3: "):  # of 4, 4 and 2 images
        evaluate(toy(), data(), Protocol(batch_size=4), 0)
