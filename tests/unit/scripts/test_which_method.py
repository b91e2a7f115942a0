"""The page that ranks methods: what its sentences say is what the stored images say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from which_method import cost, overview, rankings, which_method

from tests.unit.made_cells import cells, with_correctness
from tests.unit.stored_results import CELL, measured
from ttabench.cell import Result
from ttabench.store import Store
from ttabench_reports.cells.frames import DETAILS
from ttabench_reports.cells.load import read
from ttabench_reports.evidence.report import Report

IMAGES = 400
SHARES = {"source": 0.5, "tent": 0.9, "bn_stats": 0.895, "eata": 0.95, "lame": 0.3}
PASSES = {"source": (1, 0), "tent": (1, 1), "bn_stats": (1, 0), "eata": (1, 0.8), "lame": (1, 0)}


def result(method: str, corruption: str, right: np.ndarray) -> Result:
    made = measured(replace(CELL, method=method, label=method, config=(), corruption=corruption), right)
    given = {"source_data": "images", "source_used": "images (50 images)"} if method == "eata" else {}
    alarm = {"alarm": "collapse: predictions have 2.0 effective classes and labels have 10.0"}
    fallen = method == "lame" and corruption == "fog"
    forward, backward = PASSES[method]
    noise = 0.5 + len(corruption) % 2  # of measured times
    cost = {"cost": {
        "images": IMAGES, "forward": forward * IMAGES, "backward": backward * IMAGES, "compute_ratio": noise,
    }}  # fmt: skip
    return replace(made, details=made.details | given | cost | (alarm if fallen else {}))


@pytest.fixture
def report(tmp_path: Path) -> Report:
    writer = Store.create(tmp_path / "results", {"methods": ["tent"]}).writer()
    for corruption in ("fog", "snow"):
        places = np.random.default_rng(len(corruption)).permutation(IMAGES)
        for method, share in SHARES.items():
            writer.append(result(method, corruption, places < round(share * IMAGES)))
    writer.close()
    return Report(read([tmp_path / "results"]).assign(stale=False, stale_because=""))


@pytest.fixture
def text(report: Report) -> str:
    return which_method(report)


def rows(text: str) -> dict[str, list[str]]:
    cells = [
        [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
        for line in text.splitlines()
        if "|" in line
    ]
    return {row[0]: row for row in cells}


def test_methods_are_in_order_with_source_among_them(text: str) -> None:
    names = [name for name in rows(text) if name not in ("Method", ":---")]
    assert names == ["EATA", "TENT", "BNStats", "Source", "LAME"]
    assert rows(text)["TENT"][1] == "90.0"
    assert rows(text)["EATA"][1] == "**95.0**"
    assert rows(text)["LAME"][3] == "−20.0"
    costs = {name: rows(text)[name][5] for name in ("EATA", "TENT", "BNStats", "Source", "LAME")}
    assert costs == {"EATA": "2.6", "TENT": "3.0", "BNStats": "1.0", "Source": "1.0", "LAME": "1.0"}


def test_the_summary_names_the_best_and_what_falls_below_source(text: str) -> None:
    assert "EATA has the highest mean, 95.0." in text
    assert "do not differ" not in text
    assert "does not differ" not in text
    assert "Without source data, TENT is the best, with 90.0." in text
    assert "Significantly below Source: LAME." in text
    assert "costs least" not in text  # nothing else within a point of EATA


def test_the_overview_has_the_best_methods_of_a_ranking_and_counts_those_that_do_harm(report: Report) -> None:
    heads, _, line = overview(report).splitlines()
    assert heads.count("|") == line.count("|")
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:] == ["Online", "50.0", "EATA 95.0", "TENT 90.0", "EATA 95.0", "1 of 4", "1 of 4"]


def test_what_is_below_source_by_chance_does_no_harm() -> None:
    better = {"tent": -0.015, "eata": -1.0}
    frame = with_correctness(cells(("source", "tent", "eata"), ("cct",)), IMAGES, better)
    (ranking,) = rankings(Report(frame))
    (tent,) = (row for row in ranking.methods if row.method == "tent")
    assert tent.baseline is not None
    assert tent.value("mean") < tent.baseline.value("mean")
    assert [row.method for row in ranking.worse] == ["eata"]


def test_source_costs_one_pass_in_every_protocol_and_a_backward_pass_counts_as_two() -> None:
    frame = cells(("source", "tent"), ("cct",), mode="offline", epochs=10)
    frame = frame.assign(images=360, forward=11 * 360, backward=np.where(frame["base"] == "tent", 3600, 0))
    (ranking,) = rankings(Report(frame))
    assert {row.method: cost(row) for row in ranking.rows} == {"source": 1.0, "tent": 31.0}


@pytest.mark.parametrize(
    ("resets", "said"),
    [((0, 0), True), ((0, 3), False), ((0, None), False), ((0, "x"), False), ((0, [1]), False)],
)
def test_rdumb_without_a_reset_is_said_to_be_eta(resets: tuple[object, ...], said: bool) -> None:
    frame = cells(("source", "rdumb"), ("cct",), corruptions=("fog", "snow"))
    details = [{} if count is None else {"resets": count} for count in (None, None, *resets)]
    text = which_method(Report(frame.assign(details=details)))
    assert ("RDumb never resets here, because no cell is long enough, so it equals ETA" in text) is said
    assert ("RDumb<sup>1</sup>" in rows(text)) is said


def test_a_collapse_is_named_with_its_corruption(text: str) -> None:
    assert "Predictions collapse under at least one corruption: LAME." in text
    assert rows(text)["LAME"][8] == "Fog"
    assert rows(text)["TENT"][8] == ""


@pytest.mark.parametrize(("corruptions", "said"), [(("fog", "snow"), "all"), (("fog",), "Fog")])
def test_a_collapse_under_every_corruption_is_one_too(corruptions: tuple[str, ...], said: str) -> None:
    frame = cells(("source", "tent", "lame"), ("cct",), corruptions=corruptions)
    alarm = "collapse: predictions have 2.0 effective classes and labels have 10.0"
    frame["alarm"] = np.where(frame["base"] == "lame", alarm, "")
    text = which_method(Report(frame))
    assert rows(text)["LAME"][8] == said
    assert "Predictions collapse under at least one corruption: LAME." in text
    assert [cell.strip() for cell in overview(Report(frame)).splitlines()[-1].split("|")][-2] == "1 of 2"


def test_ties_and_the_cheapest_near_the_best_are_named(tmp_path: Path) -> None:
    writer = Store.create(tmp_path / "results", {"methods": ["tent"]}).writer()
    draw = np.random.default_rng(0)
    for corruption in ("fog", "snow"):
        for method, share in (("source", 0.5), ("tent", 0.9), ("bn_stats", 0.9)):
            right = draw.permutation(IMAGES) < round(share * IMAGES) + (method == "tent")
            writer.append(result(method, corruption, right))
    writer.close()
    text = which_method(Report(read([tmp_path / "results"]).assign(stale=False, stale_because="")))
    assert "BNStats does not differ from it significantly." in text
    assert "Within 1 point of the best, BNStats costs least: 1.0 forward passes per image." in text


def test_a_long_stream_has_its_windows_in_place_of_intervals_and_tests() -> None:
    frame = cells(
        ("source", "tent", "lame"), ("cct",), corruptions=("recurring",), stream="recurring(2)",
        reset="continual", n_images=400,
    )  # fmt: skip
    accuracies = {"source": [50, 50, 50, 50], "tent": [60, 40, 60, 60], "lame": [60, 60, 20, 20]}
    frame[DETAILS] = [{"windows": {"length": 100, "accuracy": accuracies[base]}} for base in frame["base"]]
    text = which_method(Report(frame))
    lines = rows(text)
    assert lines["Method"] == ["Method", "Accuracy", "Above Source", "Passes", "Time", "Needs", "Collapses"]
    assert lines["TENT"][-1] == "25 % of windows below Source"
    assert lines["LAME"][-1] == "from image 200; 50 % of windows below Source"
    assert lines["Source"][-1] == ""
    assert "The accuracy is below 50 % of Source's in at least one window: LAME." in text
    assert "A long stream has no intervals and tests" in text
    assert "significantly" not in text
    last = [cell.strip() for cell in overview(Report(frame)).splitlines()[-1].split("|")]
    assert last[-3:-1] == ["", "1 of 2"]


def test_a_stream_that_does_not_wait_has_its_compute_ratios() -> None:
    frame = cells(("source", "tent", "sar"), ("cct",), pace=1.0)
    frame["pace_ratio"] = frame["base"].map({"source": 1.0, "tent": 2.41, "sar": 4.7})
    text = which_method(Report(frame))
    assert "Compute ratios: " in text
    said = text.partition("Compute ratios: ")[2].partition(".\n")[0]
    assert {*said.split(", ")} == {"TENT 2.41", "SAR 4.7"}
    assert "Compute ratios" not in which_method(Report(cells(("source", "tent"), ("cct",))))
