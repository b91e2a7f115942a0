"""What `evaluate` does besides scoring: it seeds, rounds, autocasts and reports as the protocol says."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.cases import each
from tests.one_set import evaluate
from tests.unit.measure.test_scoring import CLASSES, Reads, Toy, _Config, data, toy
from tests.unit.prepared_methods import ready
from ttabench.cell.protocol import Protocol
from ttabench.classifier import Classifier
from ttabench.data.dataset import Labelled
from ttabench.measure.contamination import foreign_images, interleave
from ttabench.measure.image_stream import put_in_order
from ttabench.measure.order_and_batches import arrange
from ttabench.measure.scoring import autocast
from ttabench.method import Batches
from ttabench.observe.calibration import BINS, calibration_bins


class Drawing(Toy):
    """Predicts what torch's generator says."""

    def adapt(self, x: Tensor) -> Tensor:
        return torch.rand(len(x), CLASSES)

    def predict(self, x: Tensor) -> Tensor:
        return torch.rand(len(x), CLASSES)


def drawing() -> Drawing:
    return ready(Drawing(Classifier(Reads(), last="fc"), _Config()))


@pytest.mark.parametrize(
    "protocol",
    [Protocol(batch_size=7), Protocol(batch_size=7, held_out=0.5), Protocol(mode="offline")],
    ids=str,
)
def test_what_a_method_draws_is_a_function_of_the_seed(protocol: Protocol) -> None:
    def correct(seed: int, before: int) -> list[bool]:
        torch.manual_seed(before)
        result: list[bool] = evaluate(drawing(), data(60), protocol, seed).correct.tolist()
        return result

    assert correct(0, before=1) == correct(0, before=2)
    assert correct(0, before=1) != correct(1, before=1)


@each(("n", "share", "held_out"), [(10, 0.26, 3), (10, 0.24, 2), (11, 0.4, 4), (10, 0.25, 2), (10, 0.35, 4)])
@each("mode", ["online", "offline"])
def test_the_held_out_share_is_rounded_to_the_nearest_image(
    n: int, share: float, held_out: int, mode: str
) -> None:
    """Halves to the even number, as Python does: 2.5 → 2, 3.5 → 4."""
    method = toy()
    seen = evaluate(
        method, data(n), Protocol(mode=mode, batch_size=3, held_out=share, epochs=int(mode == "offline")), 0
    )
    assert len(seen.correct) == held_out
    assert sum(method.seen) == n - held_out


def test_a_limit_is_taken_before_the_share_that_is_held_out() -> None:
    method = toy()
    seen = evaluate(method, data(30), Protocol(batch_size=3, held_out=0.5, limit=10), 0)
    assert (len(seen.correct), sum(method.seen)) == (5, 5)


class Flipping(Toy):
    """Changes the sign of the last layer between two passes, as an optimiser's step might."""

    def setup(self, source: object) -> None:
        super().setup(source)
        self.model.linear.weight.requires_grad_(True)
        self.passes: list[tuple[Tensor, Tensor]] = []

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        before = self.model(x).detach()
        with torch.no_grad():
            self.model.linear.weight.neg_()
        after = self.model(x).detach()
        with torch.no_grad():
            self.model.linear.weight.neg_()
        self.passes.append((before, after))
        return before


def test_in_bfloat16_a_pass_uses_the_weights_of_its_moment() -> None:
    """autocast keeps cast weights until it ends, unless it is told not to."""
    method = ready(Flipping(Classifier(Reads(), last="fc"), _Config()))
    evaluate(method, data(), Protocol(batch_size=4, precision="bfloat16"), 0)
    assert len(method.passes) == 3
    for before, after in method.passes:
        assert before.dtype == torch.bfloat16
        assert torch.equal(after, -before)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_precision_is_that_of_the_forward_pass(precision: str) -> None:
    kinds: list[torch.dtype] = []

    class Notes(Toy):
        def adapt(self, x: Tensor) -> Tensor:
            logits: Tensor = self.model(x)
            kinds.append(logits.dtype)
            return logits

    method = ready(Notes(Classifier(Reads(), last="fc"), _Config()))
    seen = evaluate(method, data(), Protocol(batch_size=4, precision=precision), 0)
    assert set(kinds) == {getattr(torch, precision)}
    assert seen.accuracy == 100.0


def test_progress_counts_what_is_right_and_no_more() -> None:
    half = data(12)
    half.labels[:6] = (half.labels[:6] + 1) % CLASSES
    told: list[tuple[int, int, int]] = []
    seen = evaluate(toy(), half, Protocol(batch_size=5), 0, on_batch=lambda *a: told.append(a))
    order = np.random.Generator(np.random.PCG64(0)).permutation(12)
    right = np.cumsum(order >= 6)
    assert told == [(5, 5, right[4]), (10, 10, right[9]), (12, 12, right[11])]
    assert told[-1][2] == int(seen.correct.sum()) == 6


def test_progress_leaves_foreign_images_out_of_the_score() -> None:
    told: list[tuple[int, int, int]] = []
    protocol = Protocol(batch_size=8, contamination="noise(0.25)")
    evaluate(toy(), data(30), protocol, 0, on_batch=lambda *a: told.append(a))
    assert told[-1] == (40, 30, 30)


@pytest.mark.parametrize(("mode", "passes"), [("offline", 2), ("online", 1)])
def test_progress_before_scoring_counts_images_seen(mode: str, passes: int) -> None:
    told: list[tuple[int, int, int]] = []
    protocol = Protocol(mode=mode, batch_size=3, held_out=0.4)
    evaluate(toy(), data(10), protocol, 0, on_batch=lambda *a: told.append(a))
    before = [(3 * (i + 1), 0, 0) for i in range(2 * passes)]
    assert told[: len(before)] == before
    assert [t[1:] for t in told[len(before) :]] == [(3, 3), (4, 4)]


def test_offline_the_number_of_epochs_is_the_protocols() -> None:
    asked: list[int] = []

    class Noting(Toy):
        def fit(self, batches: Batches, epochs: int = 0) -> None:
            asked.append(epochs)

    for epochs in (0, 5):
        method = ready(Noting(Classifier(Reads(), last="fc"), _Config()))
        evaluate(method, data(), Protocol(mode="offline", epochs=epochs), 0)
    assert asked == [0, 5]


@pytest.mark.parametrize("seed", [0, 7])
def test_foreign_images_and_their_places_are_a_function_of_the_seed(seed: int) -> None:
    given = data(30)
    order = put_in_order(given, Protocol(contamination="noise(0.25)"), seed)
    foreign = order.images[np.arange(30, 40)]
    assert np.array_equal(foreign, foreign_images("noise(0.25)", given.images, seed))
    places = interleave(arrange("iid", given.labels, seed), 30, 10, seed)
    assert order.scored.tolist() == order.adapted.tolist() == places.tolist()


class Sure(Toy):
    """Right and sure where the class is even, else wrong and unsure."""

    def predict(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        even = logits.argmax(dim=1) % 2 == 0
        return torch.where(even[:, None], 5 * logits, logits.roll(1, dims=1))


def test_of_images_held_out_each_has_its_own_confidence() -> None:
    method = ready(Sure(Classifier(Reads(), last="fc"), _Config()))
    protocol = Protocol(batch_size=4, held_out=0.5)
    seen = evaluate(method, data(12), protocol, 0)
    held_out = np.sort(arrange("iid", data(12).labels, 0)[6:])
    right = data(12).labels[held_out] % 2 == 0
    sure, unsure = (float((k * torch.eye(CLASSES)[0]).softmax(0)[0]) for k in (5, 1))
    assert seen.correct.tolist() == right.tolist()
    assert seen.calibration == calibration_bins(np.where(right, sure, unsure).astype(np.float32), right)


def test_in_bfloat16_probabilities_have_the_precision_of_float32() -> None:
    seen = evaluate(toy(), data(200), Protocol(precision="bfloat16"), 0)
    expected = float(torch.eye(CLASSES)[0].softmax(0)[0])  # 0.4754; the nearest in bfloat16 is 0.4746
    assert sum(seen.calibration["confidence"]) == pytest.approx(200 * expected, abs=1e-3 * BINS)


@pytest.mark.filterwarnings("ignore:CUDA is not available")
@pytest.mark.parametrize(("device", "kind"), [("cpu", "cpu"), ("cuda:1", "cuda")])
def test_precision_is_that_of_the_device_that_computes(device: str, kind: str) -> None:
    made = autocast(Protocol(precision="bfloat16"), device)
    assert isinstance(made, torch.autocast)
    assert (made.device, made.fast_dtype) == (kind, torch.bfloat16)


def test_foreign_images_of_a_dataset_are_different_ones_while_there_are_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = np.arange(10, dtype=np.uint8).repeat(8 * 8 * 3).reshape(10, 8, 8, 3)
    opened = SimpleNamespace(test=lambda: Labelled(others, np.zeros(10, np.int64)))
    monkeypatch.setattr("ttabench.data.catalog.dataset", lambda name: opened)
    few = foreign_images("others(0.4)", np.zeros((15, 8, 8, 3), np.uint8), 3)
    assert sorted(few[:, 0, 0, 0]) == [*range(10)]
    assert len(foreign_images("others(0.4)", np.zeros((30, 8, 8, 3), np.uint8), 3)) == 20
