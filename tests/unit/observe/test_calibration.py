"""Bins of confidence: every image is in one bin, and the sums are those of the images."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from tests.one_set import evaluate
from tests.unit.measure.test_scoring import CLASSES, Reads, data
from ttabench.cell.protocol import Protocol
from ttabench.classifier import Classifier
from ttabench.observe.calibration import BINS, calibration_bins
from ttabench_methods.source import Source
from ttabench_reports.cells.calibration import packed, reliabilities, total
from ttabench_reports.cells.frames import CALIBRATION


def test_every_image_is_counted_once_and_the_sums_are_kept() -> None:
    draw = np.random.default_rng(0)
    confidence = draw.random(1000).astype(np.float32)
    correct = draw.random(1000) < confidence
    bins = calibration_bins(confidence, correct)
    assert sum(bins["count"]) == 1000
    assert sum(bins["correct"]) == correct.sum()
    assert np.isclose(sum(bins["confidence"]), confidence.sum(), atol=1e-3 * BINS)
    mean = np.array(bins["confidence"]) / bins["count"]
    edges = np.arange(BINS + 1) / BINS
    assert (mean > edges[:-1]).all()
    assert (mean <= edges[1:]).all()


def test_the_edges_0_and_1_are_in_the_first_and_last_bin() -> None:
    bins = calibration_bins(np.array([0.0, 1.0], np.float32), np.array([False, True]))
    assert bins["count"] == [1, *[0] * (BINS - 2), 1]
    assert bins["correct"] == [0, *[0] * (BINS - 2), 1]


def test_a_cell_has_the_softmax_probability_of_its_predictions() -> None:
    result = evaluate(Source(Classifier.wrap(Reads()), Source.Config()), data(8), Protocol(batch_size=4), 0)
    expected = float(torch.eye(CLASSES)[0].softmax(0)[0])  # Reads has logit 1 for the class, else 0
    k = int(np.ceil(expected * BINS)) - 1
    assert result.calibration["count"][k] == result.calibration["correct"][k] == 8
    assert np.isclose(result.calibration["confidence"][k], 8 * expected, atol=1e-3)


def test_held_out_images_alone_are_counted() -> None:
    method = Source(Classifier.wrap(Reads()), Source.Config())
    result = evaluate(method, data(8), Protocol(batch_size=4, held_out=0.5), 0)
    assert sum(result.calibration["count"]) == 4


def test_with_scored_classes_the_probability_is_among_them() -> None:
    method = Source(Classifier.wrap(Reads()), Source.Config())
    result = evaluate(method, data(8), Protocol(batch_size=4), 0, scored_classes=[2])
    assert result.calibration["count"][-1] == 8


def test_the_calibration_error_is_by_bin_and_a_mean_over_cells() -> None:
    """Too little confidence in one bin does not make up for too much in another."""

    def cell(confidence: list[float], correct: list[int]) -> bytes:
        numbers = {"count": [10, 10], "confidence": confidence, "correct": correct}
        return packed({key: [*two, *[0] * (BINS - 2)] for key, two in numbers.items()})

    frame = pd.DataFrame({
        "row": [0, 0], "corruption": ["fog", "fog"], "accuracy": [65.0, 65.0],
        CALIBRATION: [cell([4.0, 9.0], [6, 7]), cell([6.0, 9.0], [6, 7])],
    })  # fmt: skip
    reliability = reliabilities(frame)[0]["fog"]
    assert reliability.error == pytest.approx((20 + 10) / 2)
    assert reliability.confidence[:2].tolist() == [0.5, 0.9]
    assert reliability.accuracy[:2].tolist() == [0.6, 0.7]


def test_bins_are_those_of_the_row_and_the_corruption_of_their_cell() -> None:
    """In any order of the cells; a row lacks a corruption where a cell with a number has no bins."""

    def cell(right: int) -> bytes:
        numbers = {"count": 10, "confidence": 10.0, "correct": right}
        return packed({key: [number, *[0] * (BINS - 1)] for key, number in numbers.items()})

    cells = [
        (1, "snow", 70.0, cell(9)), (0, "fog", 70.0, cell(8)), (1, "fog", 70.0, b""),
        (1, "snow", 70.0, cell(7)), (0, "snow", 70.0, cell(5)), (1, "fog", 70.0, cell(6)),
        (0, "fog", 70.0, cell(4)), (0, "snow", np.nan, b""),
    ]  # fmt: skip
    found = reliabilities(pd.DataFrame(cells, columns=["row", "corruption", "accuracy", CALIBRATION]))
    shown = {
        (row, name): (one.error, one.accuracy[0]) for row, of in found.items() for name, one in of.items()
    }
    assert shown == {(0, "fog"): (40.0, 0.6), (0, "snow"): (50.0, 0.5), (1, "snow"): (20.0, 0.8)}
    both = total(found[0], ("fog", "snow"))
    assert both is not None
    assert (both.error, both.bins[0, 0], both.accuracy[0]) == (45.0, 30.0, pytest.approx(17 / 30))
    assert total(found[1], ("fog", "snow")) is None
    assert total(found[0], ()) is None
