"""Long streams: which images come when, the path of a ccc stream, windows, and scoring."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.cases import each
from tests.one_set import evaluate
from tests.unit.measure.test_scoring import CLASSES, Toy, toy
from tests.unit.prepared_methods import ready
from ttabench.cell import Cell
from ttabench.cell.protocol import Protocol
from ttabench.cell.stream_spec import RAMP
from ttabench.corruptions.corruption_names import ALL_CORRUPTIONS, CORRUPTIONS
from ttabench.corruptions.engine import corrupt
from ttabench.corruptions.fractional import corrupt_between
from ttabench.data.dataset import Dataset, Labelled
from ttabench.errors import UnusableModel
from ttabench.measure import scoring
from ttabench.measure.image_stream import FOREIGN
from ttabench.measure.scoring import Evaluation, Progress, step
from ttabench.measure.streams import source_accuracy
from ttabench.measure.streams.ccc_path import BOUND, LAST
from ttabench.measure.streams.ccc_path import Path as StreamPath
from ttabench.measure.streams.checkpoint import Checkpoint
from ttabench.measure.streams.images import (
    PathStream,
    Point,
    corrupt_at,
    corrupted_parts,
    part_seed,
    shifts,
)
from ttabench.measure.streams.source_accuracy import SourceAccuracy
from ttabench.observe.accuracy_windows import MOST, window_length, windows
from ttabench.observe.label_free_scores import Collected
from ttabench.provenance import Code
from ttabench.run.stream_of_cell import _path, checkpoint_of, path_key

SIZE = 12


class Coded(Dataset):
    """Images whose first pixel holds the class, the second the number, and the third the shift."""

    name, num_classes, image_size = "coded", CLASSES, 8
    mean = std = (0.5, 0.5, 0.5)
    corruptions = CORRUPTIONS

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def fingerprint(self) -> str:
        return "f"

    def train(self) -> Labelled:
        return self.test()

    def test(self) -> Labelled:
        images = np.zeros((SIZE, 8, 8, 3), np.uint8)
        labels = np.arange(SIZE) % CLASSES
        images[:, 0, 0, 0] = labels * 10
        images[:, 0, 1, 0] = np.arange(SIZE)
        return Labelled(images, labels)

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        self.asked.append((corruption, severity))
        data = self.test()
        data.images[:, 0, 2] = CORRUPTIONS.index(corruption), severity, 0
        return data


def protocol(stream: str, **changed: Any) -> Protocol:
    return Protocol(**{"batch_size": 5, "reset": "continual", "stream": stream, **changed})


def seen(stream: str, names: tuple[str, ...] = ("fog", "snow"), **changed: Any) -> NDArray[np.uint8]:
    """(total, 4): class, number, corruption and severity of each image of a stream."""
    made = corrupted_parts(Coded(), names, 5, protocol(stream, **changed), seed=0)
    images = made.read(0, made.total).images
    return np.stack(
        [images[:, 0, 0, 0] // 10, images[:, 0, 1, 0], images[:, 0, 2, 0], images[:, 0, 2, 1]], axis=1
    )


# ---- what comes when


def test_a_recurring_stream_repeats_the_same_corruptions() -> None:
    result = seen("recurring(3)")
    rounds = result[:, 2:].reshape(3, 2 * SIZE, 2)
    assert (rounds == rounds[0]).all()
    assert [CORRUPTIONS[k] for k in rounds[0, ::SIZE, 0]] == ["fog", "snow"]
    assert set(result[:, 3]) == {5}


def test_every_part_has_every_image_once_and_an_order_of_its_own() -> None:
    numbers = seen("recurring(3)")[:, 1].reshape(6, SIZE)
    for part in numbers:
        assert sorted(part) == list(range(SIZE))
    assert len({tuple(part) for part in numbers}) == 6


def test_a_gradual_stream_goes_up_and_down_in_each_corruption() -> None:
    result = seen("gradual")[::SIZE, 2:]
    assert [(CORRUPTIONS[c], s) for c, s in result] == [(c, s) for c in ("fog", "snow") for s in RAMP]
    assert RAMP == (1, 2, 3, 4, 5, 4, 3, 2, 1)


def test_a_limit_takes_the_first_images_of_every_part() -> None:
    assert set(seen("recurring(2)", limit=5)[:, 1]) == set(range(5))
    assert len(seen("recurring(2)", limit=5)) == 2 * 2 * 5


def test_streams_are_the_same_in_every_release() -> None:
    # Stored results name their stream by its text alone: these may never change.
    def digest(stream: str, **changed: Any) -> str:
        return hashlib.sha256(seen(stream, **changed).tobytes()).hexdigest()[:16]

    assert [
        digest("recurring(2)"), digest("gradual"), digest("recurring(2)", order="dirichlet(0.1)"),
    ] == PINNED  # fmt: skip


PINNED = ["cbc26d29801036d7", "dd99bf7f0ee427e8", "e17e9cb86e6830e3"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 4 * SIZE), max_size=8), st.sampled_from(["", "noise(0.25)"]))
def test_any_part_can_be_read(cuts: list[int], contamination: str) -> None:
    made = corrupted_parts(
        Coded(), ("fog", "snow"), 5, protocol("recurring(2)", contamination=contamination), seed=1
    )
    whole = made.read(0, made.total)
    edges = sorted({0, made.total, *(cut for cut in cuts if cut < made.total)})
    parts = [made.read(a, b) for a, b in pairwise(edges)]
    assert (np.concatenate([part.images for part in parts]) == whole.images).all()
    assert (np.concatenate([part.labels for part in parts]) == whole.labels).all()


def test_labels_belong_to_their_images_and_foreign_images_have_none() -> None:
    made = corrupted_parts(Coded(), ("fog",), 5, protocol("recurring(2)", contamination="noise(0.25)"), 0)
    batch = made.read(0, made.total)
    ours = batch.labels != FOREIGN
    assert (batch.images[ours, 0, 0, 0] // 10 == batch.labels[ours]).all()
    assert (made.scored, made.total, ours.sum()) == (2 * SIZE, 2 * SIZE + 2 * SIZE // 3, 2 * SIZE)


def test_one_test_set_at_a_time_is_in_memory() -> None:
    data = Coded()
    made = corrupted_parts(data, ("fog", "snow"), 3, protocol("recurring(2)"), 0)
    for start in range(0, made.total, 5):
        made.read(start, min(start + 5, made.total))
    assert len(data.asked) == 4  # each part is read once
    assert data.asked == [*shifts("recurring", 2, ("fog", "snow"), 3)]


# ---- severities in between

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), np.uint8)


@each("name", ALL_CORRUPTIONS)
def test_a_severity_in_between_is_the_mean_of_its_neighbours(name: str) -> None:
    low, between, high = (corrupt_between(PIXELS, name, s, seed=3).astype(float) for s in (2.0, 2.25, 3.0))
    assert np.abs(between - (0.75 * low + 0.25 * high)).max() <= 0.5001
    half = corrupt_between(PIXELS, name, 0.5, seed=3).astype(float)
    one = corrupt_between(PIXELS, name, 1.0, seed=3).astype(float)
    assert np.abs(half - (PIXELS + one) / 2).max() <= 0.5001


@each("name", ["gaussian_noise", "glass_blur", "fog", "frost", "pixelate"])
def test_pixels_depend_on_the_position_and_not_on_the_batch(name: str) -> None:
    whole = corrupt_between(PIXELS, name, 1.75, seed=3, start=50)
    pieces = [corrupt_between(PIXELS[a : a + 7], name, 1.75, seed=3, start=50 + a) for a in range(0, 40, 7)]
    assert (np.concatenate(pieces) == whole).all()
    if name != "pixelate":
        assert (corrupt_between(PIXELS, name, 1.75, seed=3, start=82) != whole).any()
        assert (corrupt_between(PIXELS, name, 1.75, seed=4, start=50) != whole).any()


@pytest.mark.parametrize("name", ["defocus_blur", "contrast", "jpeg_compression"])
def test_whole_severities_are_the_published_ones(name: str) -> None:
    for severity in (1, 5):
        assert (corrupt_between(PIXELS, name, severity, 0) == corrupt(PIXELS, name, severity, 0)).all()
    assert (corrupt_between(PIXELS, name, 0, 0) == PIXELS).all()


# ---- the path of a ccc stream


class Sloped:
    """An accuracy that falls linearly with both severities, at a slope of each corruption."""

    def __init__(self, **slopes: float) -> None:
        self.slopes, self.asked = slopes, list[Point]()

    def __call__(self, point: Point) -> float:
        self.asked.append(point)
        fall = self.slopes[point.first] * point.first_severity
        return 100 - fall - self.slopes[point.second] * point.second_severity


SLOPES = {"fog": 20.0, "snow": 15.0, "frost": 30.0, "contrast": 13.0}


def points(path: StreamPath, count: int) -> list[Point]:
    return [path(step) for step in range(count)]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([40.0, 50.0, 70.0]))
def test_the_path_keeps_the_accuracy(seed: int, target: float) -> None:
    measure = Sloped(**SLOPES)
    path = StreamPath(measure, target, tuple(SLOPES), seed)
    # a step changes the accuracy by a quarter of the steepest slope at most
    for point in points(path, 150):
        assert abs(measure(point) - target) <= max(SLOPES.values()) / 4
    assert path.accuracy(7) == measure(path(7))


def test_one_severity_changes_at_a_time_by_a_quarter() -> None:
    path = StreamPath(Sloped(**SLOPES), 50, tuple(SLOPES), 1)
    before, *rest = points(path, 200)
    for now in rest:
        if (now.first, now.second) == (before.first, before.second):
            change = (
                now.first_severity - before.first_severity,
                now.second_severity - before.second_severity,
            )
            assert change in ((-0.25, 0.0), (0.0, 0.25))
        else:  # the second corruption goes on alone, and meets a third
            assert now.first == before.second
            assert now.second_severity == 0.0
            there = (before.first_severity, before.second_severity - now.first_severity)
            assert there in ((0.25, 0.0), (0.0, -0.25))
        before = now
    used = {(p.first, p.first_severity) for p in points(path, 200)}
    assert {name for name, _ in used} == set(SLOPES)


def test_the_path_is_the_same_for_a_seed() -> None:
    made = [points(StreamPath(Sloped(**SLOPES), 50, tuple(SLOPES), seed), 60) for seed in (0, 0, 1)]
    assert made[0] == made[1] != made[2]


def test_what_is_known_is_not_measured_again() -> None:
    first = StreamPath(Sloped(**SLOPES), 50, tuple(SLOPES), 0)
    expected = points(first, 300)
    silent = Sloped(**SLOPES)
    again = StreamPath(silent, 50, tuple(SLOPES), 0, json.loads(json.dumps(first.to_json())))
    assert points(again, 300) == expected
    assert silent.asked == []


def test_work_and_memory_do_not_grow_with_the_length() -> None:
    measure = Sloped(**SLOPES)
    path = StreamPath(measure, 50, tuple(SLOPES), 0)
    points(path, 2000)
    asked = len(measure.asked)
    assert asked < 4 * 10 + 12 * 4 * LAST  # each corruption alone, then each pair
    points(path, 4000)
    assert len(measure.asked) == asked


def test_corruptions_that_are_too_weak_are_left_out() -> None:
    slopes = {**SLOPES, "brightness": 1.0}
    path = StreamPath(Sloped(**slopes), 50, tuple(slopes), 0)
    assert path.usable() == tuple(SLOPES)
    assert 100 - 5 * slopes["brightness"] > 50 + BOUND


def test_an_accuracy_that_is_out_of_reach_is_named() -> None:
    weak = {"fog": 1.0, "snow": 2.0, "frost": 20.0}
    with pytest.raises(UnusableModel, match=r"40 % needs two corruptions .* fog 95 %, snow 90 %, frost 40 %"):
        StreamPath(Sloped(**weak), 40, tuple(weak), 0)(0)


def test_a_ccc_stream_changes_at_its_speed_and_goes_through_all_images() -> None:
    data = Labelled(PIXELS, np.arange(40) % 4)
    steps: list[int] = []

    def at(step: int) -> Point:
        steps.append(step)
        return Point("contrast", step / 4, "fog", 0.0)

    made = PathStream(data, protocol("ccc(40,length=100,speed=30)"), 0, at)
    assert (made.total, made.scored) == (100, 100)
    batch = made.read(0, 100)
    assert steps == [0, 1, 2, 3]
    assert (
        batch.images[:30].reshape(30, -1).std(axis=1) > batch.images[90:].reshape(10, -1).std(axis=1).max()
    ).all()
    pieces = [made.read(a, a + 20) for a in range(0, 100, 20)]
    assert (np.concatenate([p.images for p in pieces]) == batch.images).all()
    assert np.bincount(batch.labels[:80]).tolist() == [20] * 4  # two passes over ten images of each


def test_a_path_is_followed_to_its_end_and_says_where_another_pair_of_corruptions_begins() -> None:
    pairs = [("fog", "snow"), ("fog", "snow"), ("snow", "frost"), ("frost", "fog"), ("frost", "snow")]
    steps: list[int] = []

    def at(step: int) -> Point:
        steps.append(step)
        return Point(pairs[step][0], 1.0, pairs[step][1], 1.0)

    data = Labelled(PIXELS, np.arange(40) % 4)
    made = PathStream(data, protocol("ccc(40,length=130,speed=30)"), 0, at)
    assert list(made.follow_path()) == [0, 60, 90, 120]
    assert steps == [0, 1, 2, 3, 4]


def test_noise_along_a_path_does_not_depend_on_the_batches() -> None:
    made = PathStream(
        Labelled(PIXELS, np.arange(40) % 4), protocol("ccc(40,length=80,speed=30)"), 0,
        lambda step: Point("gaussian_noise", 2.0, "shot_noise", 1.25),
    )  # fmt: skip
    whole = made.read(0, 80).images
    pieces = [made.read(a, min(a + 11, 80)).images for a in range(0, 80, 11)]
    assert (np.concatenate(pieces) == whole).all()


def test_at_a_point_the_first_corruption_comes_before_the_second() -> None:
    at = Point("contrast", 2.0, "gaussian_noise", 3.0)
    by_hand = corrupt_between(corrupt_between(PIXELS, "contrast", 2.0, 5, 7), "gaussian_noise", 3.0, 5, 7)
    assert (corrupt_at(PIXELS, at, seed=5, start=7) == by_hand).all()


def test_the_accuracy_of_the_source_is_that_of_its_images_and_of_the_scored_classes() -> None:
    n = 40
    images, labels = np.zeros((n, 32, 32, 3), np.uint8), np.arange(n) * 7 % n % CLASSES
    images[:, 0, 0, 0] = labels * 10
    clean, clear = Labelled(images, labels), Point("fog", 0.0, "snow", 0.0)
    assert SourceAccuracy(toy().model, clean, "cpu")(clear) == 100.0
    share = 100 * float(np.isin(labels, (1, 3)).mean())
    assert SourceAccuracy(toy().model, clean, "cpu", (1, 3))(clear) == share
    assert SourceAccuracy(toy().model, Labelled(images, labels * 0), "cpu", (0, 1))(clear) > share


# ---- windows


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30_000), st.integers(0, 2**32 - 1))
def test_windows_average_to_the_accuracy(count: int, seed: int) -> None:
    correct = np.random.default_rng(seed).random(count) < 0.4
    result = windows(correct)
    length, accuracy = result["length"], result["accuracy"]
    assert len(accuracy) <= MOST
    sizes = [min(length, count - start) for start in range(0, count, length)]
    assert np.average(accuracy, weights=sizes) == pytest.approx(100 * correct.mean(), abs=1e-4)


def test_windows_do_not_depend_on_the_batch_size() -> None:
    assert [window_length(n) for n in (1, 10_000, 10_001, 1_000_000)] == [100, 100, 101, 10_000]


# ---- scoring


def follow(method: Any, stream: str = "recurring(3)", **changed: Any) -> Any:
    asked = protocol(stream, **changed)
    return scoring.evaluate(method, corrupted_parts(Coded(), ("fog", "snow"), 5, asked, 0), asked, 0)


def test_a_long_stream_is_scored_in_its_order() -> None:
    done = follow(toy())
    assert (done.accuracy, len(done.correct), done.alarm) == (100.0, 6 * SIZE, "")
    assert sum(done.calibration["count"]) == 6 * SIZE
    assert follow(toy(shift=1)).accuracy == 0.0
    assert follow(toy(), contamination="noise(0.25)").accuracy == 100.0


def test_batches_have_their_size_until_the_last() -> None:
    method = toy()
    follow(method)
    assert method.seen == [5] * (6 * SIZE // 5) + [6 * SIZE % 5]


def test_one_part_without_a_change_is_scored_as_a_cell_is() -> None:
    """A stream of one corruption, in the order of the cell: the same numbers as without a stream."""
    asked = protocol("recurring(1)")
    stream = corrupted_parts(Coded(), ("fog",), 5, asked, 0)
    plain = evaluate(toy(), Coded().corrupted("fog", 5), Protocol(batch_size=5), part_seed(0, 0))
    along = scoring.evaluate(toy(), stream, asked, 0)
    assert along.accuracy == plain.accuracy
    assert along.calibration == plain.calibration


@pytest.mark.parametrize("scored", [(), (1, 3), (2, 0)])
def test_classes_that_are_not_scored_are_left_out_of_a_stream_as_of_a_cell(scored: tuple[int, ...]) -> None:
    asked = protocol("recurring(1)")
    stream = corrupted_parts(Coded(), ("fog",), 5, asked, 0)
    of_cell, of_stream = Collected(), Collected()
    shifted = Coded().corrupted("fog", 5)
    plain = evaluate(
        toy(), shifted, Protocol(batch_size=5), part_seed(0, 0), scored_classes=scored, on_logits=of_cell.add
    )
    along = scoring.evaluate(toy(), stream, asked, 0, scored_classes=scored, on_logits=of_stream.add)
    assert along.accuracy == plain.accuracy
    assert of_stream.scores() == of_cell.scores()


def test_counts_of_a_cell_before_are_not_those_of_a_stream() -> None:
    method = random()
    for _ in range(2):
        method.reset()
        follow(method)
        assert method.counts["batches"] == -(-6 * SIZE // 5)


class Spoils(Toy):
    """Right for the first batches after a reset, wrong from then on."""

    name = "spoils"

    def adapt(self, x: torch.Tensor) -> torch.Tensor:
        logits = super().adapt(x)
        return logits if self.bias <= 3 else logits.roll(1, dims=1)


def spoils() -> Spoils:
    return ready(Spoils(toy().model, toy().config))


@each(
    ("reset", "right"),
    [("continual", 3), ("episodic", 12), ("every(3)", 12), ("every(4)", 9), ("every(6)", 6)],
)
def test_a_method_is_reset_every_so_many_batches(reset: str, right: int) -> None:
    done = follow(spoils(), "recurring(2)", reset=reset, batch_size=4)
    assert done.correct.reshape(12, 4).all(axis=1).sum() == right
    plain = evaluate(
        spoils(),
        Coded().test(),
        Protocol(batch_size=1, reset=reset.replace("continual", "per_corruption")),
        0,
    )
    assert plain.correct.sum() == right


# ---- limited compute


@each(
    ("pace", "ratio", "every"),
    [(0, 1, 1), (1, 1, 1), (1, 0.3, 1), (1, 3, 3), (1, 3.1, 4), (0.5, 3.1, 2), (2, 3.1, 7), (0.1, 3, 1),
     (1 / 3, 3, 1), (0.1, 30, 3), (1, 167, 167)],
)  # fmt: skip
def test_a_method_adapts_on_every_kth_batch(pace: float, ratio: float, every: int) -> None:
    ratio = ratio if pace else 1.0
    asked = Protocol(pace=pace, pace_ratio=ratio)
    assert asked.adapts_every == every
    method = toy()
    for number in range(10):
        step(method, torch.zeros(1, 3, 8, 8), number, asked)
    assert method.bias == len(range(0, 10, every))


def test_the_model_as_it_is_scores_the_other_batches() -> None:
    method = spoils()
    paced = evaluate(method, Coded().test(), Protocol(batch_size=1, pace=1, pace_ratio=3), 0)
    assert method.bias == 4  # of twelve batches; the fourth update spoils what adapt returns, not predict
    assert paced.correct.sum() == 11
    assert evaluate(spoils(), Coded().test(), Protocol(batch_size=1, pace=1), 0).correct.sum() == 3


def test_a_paced_number_is_the_same_every_time() -> None:
    for asked in (
        Protocol(batch_size=2, pace=1, pace_ratio=2.5),
        Protocol(batch_size=2, pace=2, pace_ratio=1.2),
    ):
        runs = [evaluate(spoils(), Coded().test(), asked, 7).correct for _ in range(2)]
        assert (runs[0] == runs[1]).all()


# ---- a stream that is stopped goes on


class Stopped(Exception):
    pass


def interrupted(
    make: Callable[[], Any], file: Path, after: int, asked: Protocol, device: str = "cpu"
) -> tuple[Any, int]:
    """A run that ends after some batches, then a second one; and where the second one was after a batch."""
    stream = corrupted_parts(Coded(), ("fog", "snow"), 5, asked, 0)
    beginnings: list[int] = []

    def report(seen: int, scored: int, right: int) -> None:
        beginnings.append(seen)
        if len(beginnings) == after:
            raise Stopped

    keep = {"identity": {"cell": "c"}, "seconds": 0.0}
    with pytest.raises(Stopped):
        scoring.evaluate(make(), stream, asked, 0, device, report, saved=Checkpoint(file, **keep))
    beginnings.clear()
    again = make()
    again.reset()
    done = scoring.evaluate(
        again,
        stream,
        asked,
        0,
        device,
        lambda s, *_: beginnings.append(s),
        saved=Checkpoint(file, **keep),
    )
    return done, beginnings[0]


class Random(Toy):
    """Draws: a wrong state of the generator changes predictions."""

    name = "random"

    def adapt(self, x: torch.Tensor) -> torch.Tensor:
        self.counts["batches"] += 1
        self.memory = [*getattr(self, "memory", []), torch.rand(1)][-3:]
        return super().adapt(x).roll(int(4 * torch.stack(self.memory).mean()), dims=1)


def random() -> Random:
    return ready(Random(toy().model, toy().config))


@pytest.mark.parametrize("after", [2, 3, 9])
def test_a_stopped_stream_goes_on_where_it_was(tmp_path: Path, after: int) -> None:
    asked = protocol("recurring(3)", reset="every(7)")
    whole = follow(random(), reset="every(7)")
    assert 0 < whole.accuracy < 100
    done, first = interrupted(random, tmp_path / "state.npz", after, asked)
    assert first == 5 * after
    assert (done.correct == whole.correct).all()
    assert (done.accuracy, done.calibration, done.windows) == (
        whole.accuracy,
        whole.calibration,
        whole.windows,
    )


def test_a_path_whose_file_was_changed_is_computed_again(cell: Cell, tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text("{}")
    cell = replace(cell, protocol=Protocol(stream="ccc(60)", reset="continual"))
    measured: list[Point] = []

    def accuracy(point: Point) -> float:
        measured.append(point)
        return 100 - 10 * point.first_severity - 12 * point.second_severity

    def points() -> list[Point]:
        measured.clear()
        path = _path(cell, ("fog", "snow", "frost"), accuracy, tmp_path)
        return [path(step) for step in range(40)]

    first = points()
    assert measured
    assert points() == first
    assert not measured  # all of it was read
    (file,) = tmp_path.glob("streams/ccc-*.json")
    file.write_bytes(file.read_bytes().replace(b"fog", b"frg"))
    assert points() == first
    assert measured
    file.write_bytes(re.sub(rb"\d+\.\d", b"59.9", file.read_bytes(), count=1))
    assert points() == first
    assert measured


CCC = Protocol(stream="ccc(60)", reset="continual")


def test_each_seed_has_a_path_of_its_own_over_the_same_accuracies(cell: Cell, tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text("{}")

    def points(seed: int) -> list[Point]:
        one = replace(cell, protocol=CCC, seed=seed)
        path = _path(one, tuple(SLOPES), Sloped(**SLOPES), tmp_path)
        return [path(step) for step in range(60)]

    assert len({tuple(points(seed)) for seed in range(4)}) > 1
    assert points(0) == points(0)


def test_accuracies_of_a_path_are_kept_for_what_they_depend_on(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = replace(cell, protocol=CCC)
    named = replace(one, baseline="cct@c1")
    assert path_key(replace(one, method="cotta", config=(), label="cotta", seed=3)) == path_key(one)
    assert path_key(replace(named, arch="cct", checkpoint="d" * 64)) == path_key(named)
    keys = {
        path_key(each)
        for each in (
            one, named, replace(named, baseline="cct@c2"), replace(one, checkpoint="d" * 64),
            replace(one, fingerprint="0" * 64), replace(one, protocol=replace(CCC, stream="ccc(50)")),
        )
    }  # fmt: skip
    monkeypatch.setattr("ttabench.run.stream_of_cell.current_code", lambda *_: Code("2"))
    assert len(keys | {path_key(one)}) == 7


def test_a_saved_state_is_of_one_cell_code_and_machine(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state of another one would give other numbers."""
    (tmp_path / "sweep.json").write_text("{}")

    def kept(cell: Cell = cell, device: str = "cpu") -> Checkpoint:
        made = checkpoint_of(cell, tmp_path, device)
        assert made is not None
        return made

    first = kept()
    assert (kept().file, kept().identity) == (first.file, first.identity)
    assert kept(replace(cell, seed=1)).file != first.file
    others = [kept(replace(cell, seed=1)), kept(device="cuda")]
    for name, value in (
        ("ttabench.run.stream_of_cell.code_of", Code("2")),
        ("ttabench.run.stream_of_cell.versions", {"torch": "1.0"}),
        ("torch.get_num_threads", 77),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(name, lambda *_, value=value: value)
            others.append(kept())
    for other in others:
        assert other.identity != first.identity
    assert checkpoint_of(cell, tmp_path / "no results folder", "cpu") is None


def test_all_that_was_scored_and_measured_comes_back(tmp_path: Path) -> None:
    before = Progress.start(10, CLASSES)
    classes, labels = np.array([0, 1, 1]), np.array([0, 1, 2])
    before.add(classes, np.array([0.5, 0.75, 1.0], np.float32), labels)
    before.number, before.position, before.seconds, before.worked = 3, 15, 12.5, 7.25
    Checkpoint(tmp_path / "s.npz", {}).save(random(), before, "cpu")
    after = Progress.start(10, CLASSES)
    assert Checkpoint(tmp_path / "s.npz", {}).load(random(), after, "cpu")
    for name, value in vars(before).items():
        assert np.array_equal(getattr(after, name), value), name


def test_a_state_that_fits_in_part_leaves_a_method_that_has_seen_nothing(tmp_path: Path) -> None:
    adapted, fresh = random(), random()
    adapted.adapt(torch.zeros(2, 3, 8, 8))
    Checkpoint(tmp_path / "s.npz", {}, beside={"more": Collected()}).save(
        adapted, Progress.start(10, CLASSES), "cpu"
    )
    kept = Checkpoint(tmp_path / "s.npz", {}, beside={"more": toy()})
    with pytest.warns(UserWarning, match="this stream starts from its first image"):
        assert not kept.load(fresh, Progress.start(10, CLASSES), "cpu")
    assert (fresh.bias, hasattr(fresh, "memory")) == (0, False)


def test_the_time_of_a_stopped_stream_and_what_was_right_in_it_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at a clock is a second later."""
    asked = protocol("recurring(3)")
    stream = corrupted_parts(Coded(), ("fog", "snow"), 5, asked, 0)
    kept = {"file": tmp_path / "s.npz", "identity": {}, "seconds": 0.0}
    ticks, told = count(), list[tuple[int, int]]()

    def report(seen: int, scored: int, right: int) -> None:
        told.append((scored, right))
        if len(told) == 9:
            raise Stopped

    def saved() -> Progress:
        progress = Progress.start(stream.scored, CLASSES)
        assert Checkpoint(**kept).load(toy(), progress, "cpu")  # type: ignore[arg-type]
        return progress

    def run() -> Evaluation:
        checkpoint = Checkpoint(**kept)  # type: ignore[arg-type]
        return scoring.evaluate(toy(), stream, asked, 0, on_batch=report, saved=checkpoint)

    with monkeypatch.context() as patch:
        patch.setattr(scoring.time, "perf_counter", lambda: float(next(ticks)))
        patch.setattr(scoring, "clock", lambda device: float(next(ticks)))
        with pytest.raises(Stopped):
            run()
        first = saved()
        done = run()
    last = saved()
    assert done.seconds > last.seconds > first.seconds > 0
    assert last.worked > first.worked > 0
    assert told[-1] == (len(done.correct), int(done.correct.sum()))


def test_a_state_is_due_every_half_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, kept = [time.monotonic()], Checkpoint(tmp_path / "s.npz", {})
    monkeypatch.setattr("ttabench.measure.streams.checkpoint.time.monotonic", lambda: now[0])
    due = []
    for seconds in (29, 2):
        now[0] += seconds
        due.append(kept.due())
    kept.try_to_save(random(), Progress.start(10, CLASSES), "cpu")
    due.append(kept.due())
    now[0] += 31
    assert [*due, kept.due()] == [False, True, False, True]


def test_ccc_streams_are_the_same_in_every_release() -> None:
    made = points(StreamPath(Sloped(**SLOPES), 50, tuple(SLOPES), 0), 60)
    text = repr([(p.first, p.first_severity, p.second, p.second_severity) for p in made])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "611da8204fd4f833"
    stream = PathStream(
        Labelled(PIXELS, np.arange(40) % 4), protocol("ccc(40,length=80,speed=30)"), 0,
        lambda step: Point("contrast", 2.0, "fog", 1.25),
    )  # fmt: skip
    labels = stream.read(0, 80).labels.astype("<i8")
    assert hashlib.sha256(labels.tobytes()).hexdigest()[:16] == "8a20641dac23bfb3"
    assert source_accuracy.CALIBRATION_IMAGES == 256
