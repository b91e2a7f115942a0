"""The streams cdc(δ), continual dynamic change, and ccc(0), the hard form of CCC."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.cases import each
from tests.unit.conftest import Run
from tests.unit.measure.streams.test_streams import SIZE, Coded, protocol
from ttabench.cell import Cell
from ttabench.cell.stream_spec import ALL_STREAMS
from ttabench.data.dataset import Labelled
from ttabench.measure.image_stream import ImageStream
from ttabench.measure.streams import source_accuracy
from ttabench.measure.streams.ccc_hard import HardPath
from ttabench.measure.streams.dynamic import DynamicStream, visits
from ttabench.measure.streams.images import Point
from ttabench.provenance import current_code
from ttabench.run.cell_images import MAKERS
from ttabench.run.stream_of_cell import _hard_key
from ttabench.store import load_frame
from ttabench_reports.words import naming

NAMES = ("fog", "snow", "frost")


def made(concentration: float = 1.0, rounds: int = 3, seed: int = 0, **changed: object) -> DynamicStream:
    data = Coded()
    return DynamicStream(
        len(NAMES), lambda part: data.corrupted(NAMES[part], 5), protocol("cdc", **changed), seed, SIZE,
        concentration, rounds,
    )  # fmt: skip


def seen(stream: ImageStream) -> np.ndarray:
    """(total, 3): class, number and corruption of each image."""
    images = stream.read(0, stream.total).images
    return np.stack([images[:, 0, 0, 0] // 10, images[:, 0, 1, 0], images[:, 0, 2, 0]], axis=1)


# ---- cdc


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 50), st.sampled_from([1e-6, 0.05, 1.0, 1e6]), st.integers(1, 9),
       st.integers(0, 2**32))  # fmt: skip
def test_every_image_comes_once_and_each_part_is_visited_once_a_round(
    parts: int, images: int, concentration: float, rounds: int, seed: int
) -> None:
    found = visits(parts, images, concentration, rounds, seed)
    for part in range(parts):
        mine = [visit for visit in found if visit.part == part]
        assert len(mine) <= rounds
        assert [visit.first for visit in mine] == [0, *(visit.last for visit in mine[:-1])]
        assert mine[-1].last == images
    assert found == visits(parts, images, concentration, rounds, seed)


def test_the_concentration_rules_the_lengths() -> None:
    def lengths(concentration: float) -> np.ndarray:
        """(60, 3) images of each part in each round; a visit without images has 0."""
        found = np.zeros((20, 3, 3), int)
        for seed in range(20):
            for visit in visits(3, 999, concentration, 3, seed):
                found[seed, visit.part, np.count_nonzero(found[seed, visit.part])] = visit.last - visit.first
        return found.reshape(60, 3)

    equal, drawn, few = lengths(1e9), lengths(1.0), lengths(1e-3)
    assert (np.abs(equal - 333) <= 1).all()
    # Of Dirichlet(1, 1, 1), each share has the mean 1/3 and the variance 1/18.
    assert drawn.std() / 999 == pytest.approx(1 / 18**0.5, abs=0.05)
    assert np.median(few.max(axis=1)) == 999


@pytest.mark.parametrize("limit", [0, 7])
def test_the_images_of_the_stream_are_those_of_the_test_sets(limit: int) -> None:
    stream = made(limit=limit)
    rows = seen(stream)
    count = limit or SIZE
    assert len(rows) == stream.total == stream.scored == 3 * count
    for part in set(rows[:, 2]):
        assert sorted(rows[rows[:, 2] == part, 1]) == list(range(count))
    assert (stream.read(0, stream.total).labels == rows[:, 0]).all()
    assert (np.diff(rows[:, 2].astype(int)) != 0).sum() > 2  # corruptions come back


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 3 * SIZE - 1), max_size=5))
def test_any_part_of_it_can_be_read(cuts: list[int]) -> None:
    stream = made(0.7)
    whole = stream.read(0, stream.total)
    edges = [0, *sorted(set(cuts)), stream.total]
    pieces = [stream.read(a, b) for a, b in pairwise(edges)]
    assert (np.concatenate([piece.images for piece in pieces]) == whole.images).all()
    assert (np.concatenate([piece.labels for piece in pieces]) == whole.labels).all()


def test_it_is_another_one_with_another_seed_and_the_same_in_every_release() -> None:
    assert (seen(made(seed=1)) != seen(made(seed=0))).any()
    assert visits(2, 10, 1.0, 2, 0) == GOLDEN


GOLDEN = [(0, 0, 4), (1, 0, 9), (1, 9, 10), (0, 4, 10)]


def test_classes_can_come_in_bursts() -> None:
    rows = seen(made(order="dirichlet(0.01)", rounds=1))
    mixed = seen(made(rounds=1))
    assert (np.diff(rows[:, 0].astype(int)) != 0).sum() < (np.diff(mixed[:, 0].astype(int)) != 0).sum()


def stream_of(cell: Cell, text: str, folder: Path) -> ImageStream:
    """The stream of a cell on images that say where they are from."""
    asked = protocol(text)
    kind = asked.stream.partition("(")[0].replace("ccc", "ccc_hard")
    cell = replace(cell, corruption=kind, protocol=asked)
    return MAKERS[kind](cell, Coded(), nn.Identity(), folder, "cpu")


@each(("rounds", "expected"), [("", 3), ("rounds=2,", 2)])
def test_a_cell_has_a_round_for_each_corruption_unless_it_names_a_number(
    cell: Cell, tmp_path: Path, rounds: str, expected: int
) -> None:
    stream = stream_of(cell, f"cdc(0.5,{rounds}corruptions={'+'.join(NAMES)})", tmp_path)
    assert (seen(stream) == seen(made(0.5, expected, cell.seed))).all()


# ---- ccc(0)

FALLS = {"fog": 9.0, "snow": 5.0, "contrast": 2.0}  # points of accuracy per severity


def falls(point: Point) -> float:
    return 95 - FALLS[point.first] * point.first_severity - FALLS[point.second] * point.second_severity


def test_the_hard_path_uses_every_corruption_at_its_strongest() -> None:
    path = HardPath(falls, 0.0, tuple(FALLS), 0)
    points = [path(step) for step in range(200)]
    assert {name for point in points for name in (point.first, point.second)} == set(FALLS)
    alone = [point for point in points if point.second_severity == 0]
    assert alone
    assert {point.first_severity for point in alone} == {5.0}
    both = max(points, key=lambda point: point.first_severity + point.second_severity)
    assert (both.first_severity, both.second_severity) == (5.0, 5.0)


def test_a_hard_stream_has_the_corruptions_that_are_named(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_accuracy.SourceAccuracy, "__call__", lambda self, point: falls(point))
    stream: Any = stream_of(cell, "ccc(0,length=200,speed=1,corruptions=fog+snow)", tmp_path)
    points = [stream._point_at(step) for step in range(200)]
    path = HardPath(falls, 0.0, ("fog", "snow"), cell.seed)
    assert points == [path(step) for step in range(200)]


def test_accuracies_of_a_hard_path_are_kept_for_what_they_depend_on(cell: Cell) -> None:
    named = replace(cell, baseline="cct@c1")
    assert _hard_key(replace(cell, method="cotta", config=(), label="cotta", seed=3)) == _hard_key(cell)
    assert _hard_key(replace(named, checkpoint="d" * 64)) == _hard_key(named)
    others = (
        named, replace(named, baseline="cct@c2"), replace(cell, checkpoint="d" * 64),
        replace(cell, fingerprint="0" * 64),
    )  # fmt: skip
    assert len({_hard_key(each) for each in (cell, *others)}) == 5


def test_each_step_of_the_hard_path_goes_to_the_lower_accuracy() -> None:
    path, compared = HardPath(falls, 0.0, tuple(FALLS), 3), 0
    for step in range(100):
        here, there = path(step), path(step + 1)
        if (there.first, there.second) != (here.first, here.second):
            continue
        choices = [
            Point(here.first, here.first_severity - 0.25, here.second, here.second_severity),
            Point(here.first, here.first_severity, here.second, here.second_severity + 0.25),
        ]
        possible = [p for p in choices if p.first_severity >= 0 and p.second_severity <= 5]
        assert path.accuracy(step + 1) == min(map(falls, possible))
        compared += len(possible) == 2
    assert compared > 50


def test_the_code_of_each_kind_counts() -> None:
    def files(corruption: str) -> set[str]:
        return {name.partition(":")[0] for name in current_code("tent", "digits-c", corruption).definitions}

    assert "ttabench/measure/streams/dynamic.py" in files("cdc")
    assert "ttabench/measure/streams/ccc_hard.py" in files("ccc_hard")
    for corruption in ("fog", "ccc", "recurring"):
        assert not {name for name in files(corruption) if name.endswith(("dynamic.py", "hard.py"))}
    assert set(MAKERS) <= set(ALL_STREAMS)


SMALL = ("--methods", "tent", "--archs", "resnet18", "--batch-size", "20", "--workers", "0")


@pytest.mark.parametrize(
    ("stream", "images"),
    [
        ("cdc(0.5,rounds=2,corruptions=fog+snow)", 60),
        # Tests of sweeps and of verify follow such a stream at each commit.
        pytest.param("ccc(0,length=50,speed=10,corruptions=fog+snow)", 50, marks=pytest.mark.slow),
    ],
)
def test_they_are_swept_verified_and_reported(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: str, images: int
) -> None:
    monkeypatch.setattr(source_accuracy, "CALIBRATION_IMAGES", 16)
    output = ttabench("sweep", *SMALL, "--limit", "30", "--stream", stream, "--out", tmp_path / "r")
    assert output.code == 0, output.err
    cells = load_frame(tmp_path / "r")
    assert (cells["n_images"] == images).all()
    assert set(cells["stream"]) == {stream}
    assert ttabench("verify", tmp_path / "r", "--workers", "0").code == 0
    assert ttabench("report", tmp_path / "r", "--format", "csv").code == 0
    assert ttabench("status", tmp_path / "r").code == 0
    assert (tmp_path / "r/report/stability.csv").is_file()
    paths = list(tmp_path.glob("r/streams/ccc-*.json"))
    assert len(paths) == stream.startswith("ccc")


def test_a_dataset_is_corrupted_for_the_hard_form_and_needs_its_corruptions_for_cdc(
    ttabench: Run, tmp_path: Path
) -> None:
    output = ttabench("sweep", *SMALL, "--stream", "cdc(corruptions=fogg)", "--out", tmp_path / "r")
    assert (output.code, "did you mean 'fog'" in output.err) == (2, True)
    output = ttabench("sweep", *SMALL, "--stream", "ccc(0,corruptions=fog)", "--out", tmp_path / "r")
    assert (output.code, "name at least two" in output.err) == (2, True)


def test_headings_name_them() -> None:
    assert naming.stream("cdc(0.5,rounds=4)") == "CDC stream, δ = 0.5, rounds 4"
    assert naming.stream("ccc(0,length=100,speed=10)") == "CCC stream, 0\u00a0%, length 100, speed 10"


def test_labels_of_a_part_are_those_of_its_images() -> None:
    """Also where an own dataset has other labels in each corrupted set."""

    def load(part: int) -> Labelled:
        return Labelled(np.full((6, 2, 2, 3), part, np.uint8), np.full(6, part))

    stream = DynamicStream(3, load, protocol("cdc"), 0, 6, 1.0, 3)
    images, labels = stream.read(0, stream.total)
    assert (images[:, 0, 0, 0] == labels).all()
