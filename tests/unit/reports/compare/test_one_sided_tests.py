"""The paired tests of the gate: right against scipy, and right about noise, falls and many cells."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.cases import each
from tests.unit.stored_results import CELL, Right, folder, losing, measured
from ttabench.cell.protocol import Protocol
from ttabench.errors import UserError
from ttabench.registry import view
from ttabench.store import Store, load_frame
from ttabench.system.checked_lines import encode
from ttabench_reports.compare import compare
from ttabench_reports.compare.one_sided_tests import cells_fell, holm, mean_fell, one_of
from ttabench_reports.evidence import stats as own_stats

NAMES = ("fog", "snow", "frost", "contrast", "pixelate")


def draw(seed: int = 0, n: int = 600, share: float = 0.8) -> dict[tuple[str, int], Right]:
    rng = np.random.default_rng(seed)
    hard = rng.random(n)  # the same images are hard under every corruption
    return {(name, 0): (hard + 0.3 * rng.random(n)) < share + 0.1 for name in NAMES}


# ---- the tests themselves


@each(("lost", "won"), [(0, 0), (1, 0), (0, 7), (12, 3), (40, 41), (300, 220)])
def test_mcnemar_is_the_binomial_test(lost: int, won: int) -> None:
    before, after = np.zeros((2, 1000), bool)
    before[:lost], after[lost : lost + won] = True, True
    before[700:], after[700:] = True, True
    (p,) = cells_fell(np.packbits(before)[None], np.packbits(after)[None])
    expected = stats.binomtest(won, lost + won, alternative="less").pvalue if lost + won else 1.0
    assert p == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("cells", "images"), [(4, 203), (700, 40)])  # the latter in several parts
def test_the_mean_of_one_seed_is_tested_by_images(cells: int, images: int) -> None:
    before, after = np.random.default_rng(1).random((2, cells, images)) < 0.7
    seeds = np.zeros(cells, np.int64)
    p = mean_fell(np.packbits(before, axis=1), np.packbits(after, axis=1), images, seeds)
    difference = after.mean(0) - before.mean(0)
    assert p == pytest.approx(stats.ttest_1samp(difference, 0, alternative="less").pvalue, rel=1e-9)


def test_the_mean_over_seeds_has_what_was_won_and_what_was_lost() -> None:
    before, after = np.random.default_rng(5).random((2, 600, 90)) < 0.7  # in several parts
    seeds = np.arange(600) % 3
    p = mean_fell(np.packbits(before, axis=1), np.packbits(after, axis=1), 90, seeds)
    change = after.astype(float) - before
    of_seeds = [change[seeds == seed].mean() for seed in range(3)]
    assert p == pytest.approx(own_stats.mean_fell(change.mean(0), of_seeds), rel=1e-9)


def test_seeds_that_disagree_make_a_fall_of_the_mean_less_sure() -> None:
    n, seeds = 2000, np.repeat(np.arange(4), 3)
    rng = np.random.default_rng(3)

    def p(points: list[float]) -> float:
        before = np.ones((12, n), bool)
        after = np.stack([rng.random(n) > points[seed] / 100 for seed in seeds])
        return mean_fell(np.packbits(before, axis=1), np.packbits(after, axis=1), n, seeds)

    assert p([4.0, 4.0, 4.0, 4.0]) < 1e-6
    assert p([16.0, 0.0, 0.0, 0.0]) > 0.05  # the same mean, from one seed


def test_the_mean_test_holds_its_level_where_seeds_vary() -> None:
    """Each seed shifts all images; a test over images alone would take that for a fall half of the time."""
    rng = np.random.default_rng(4)
    n, seeds, runs = 300, np.arange(5), 400
    alarms = 0
    for _ in range(runs):
        before = rng.random((5, n)) < 0.8
        after = rng.random((5, n)) < np.clip(0.8 + 0.1 * rng.standard_normal((5, 1)), 0, 1)
        alarms += mean_fell(np.packbits(before, axis=1), np.packbits(after, axis=1), n, seeds) < 0.05
    assert alarms / runs < 0.05 + 3 * (0.05 * 0.95 / runs) ** 0.5


def test_holm_is_closed_testing_with_bonferroni() -> None:
    p = np.array([0.01, 0.04, 0.03, 0.005, 0.5])
    expected = [
        max(
            min(1.0, len(subset) * min(p[list(subset)]))
            for size in range(1, 6)
            for subset in itertools.combinations(range(5), size)
            if i in subset
        )
        for i in range(5)
    ]
    assert holm(p, p <= 1) == pytest.approx(expected)
    with_gaps = holm(np.array([np.nan, *p, np.nan]), np.ones(len(p) + 2, bool))
    assert with_gaps[1:-1] == pytest.approx(expected)
    assert np.isnan(with_gaps[[0, -1]]).all()


def test_tests_that_cannot_reject_do_not_weigh_on_the_others() -> None:
    p = np.array([0.02, 1.0, 1.0, 0.03])
    assert holm(p, p < 1) == pytest.approx([0.04, 1.0, 1.0, 0.04])


def test_several_families_share_the_level() -> None:
    assert list(one_of(2, np.array([0.02, 0.6]))) == [0.04, 1.0]
    assert np.isnan(one_of(2, np.array([np.nan]))).all()


# ---- the gate


def test_a_run_passes_against_its_own_csv(tmp_path: Path) -> None:
    """600 images: accuracies do not end after four decimals, where the CSV rounds them."""
    run = folder(tmp_path / "run", draw())
    csv = view("cells")(load_frame(run), tmp_path / "cells.csv")
    for pair in ((run, csv), (csv, run), (run, run), (csv, csv)):
        outcome = compare(*pair, max_drop=0, max_mean_drop=0)
        assert not outcome.failed
        assert outcome.count("same") == len(NAMES)
        assert (outcome.warnings, outcome.causes) == ((), ())


def test_a_fall_with_just_the_level_is_a_fall(tmp_path: Path) -> None:
    whole, less = np.ones(40, bool), np.arange(40) >= 6  # McNemar: p = 2⁻⁶, and cells are one of two families
    before = folder(tmp_path / "before", {("fog", 0): whole})
    after = folder(tmp_path / "after", {("fog", 0): less})
    assert compare(before, after, alpha=2**-5).count("fell") == 1
    assert compare(before, after, alpha=0.031).count("chance") == 1


def test_a_mean_without_a_difference_is_sure_and_seeds_that_disagree_are_not(tmp_path: Path) -> None:
    whole = {("fog", seed): np.ones(400, bool) for seed in range(4)}
    one_fell = whole | {("fog", 0): np.arange(400) % 5 > 0}  # 20 points in one of four seeds
    all_fell = {key: np.arange(400) % 20 > 0 for key in whole}  # 5 points in each
    before = folder(tmp_path / "before", whole)
    p = {}
    for name, right in (("same", whole), ("one", one_fell), ("all", all_fell)):
        (p[name],) = compare(before, folder(tmp_path / name, right)).means["p_value"]
    assert p["same"] == 1.0
    assert p["one"] > 0.05
    assert p["all"] < 0.001


def test_means_are_corrected_for_the_number_of_those_that_differ(tmp_path: Path) -> None:
    """Means with equal images neither fall nor weigh on the others; `lost` images per severity."""

    def p_values(name: str, lost: dict[int, int]) -> list[float]:
        sides = []
        for side in ("before", "after"):
            writer = Store.create(tmp_path / f"{name}-{side}", {"methods": ["tent"]}).writer()
            for severity, images in lost.items():
                right = np.arange(400) >= (images if side == "after" else 0)
                writer.append(measured(replace(CELL, severity=severity), right))
            writer.close()
            sides.append(tmp_path / f"{name}-{side}")
        return list(compare(*sides).means["p_value"])

    (one,), (other,) = p_values("one", {1: 5}), p_values("other", {1: 7})
    assert 0 < other < one < 0.1
    four = {1: 0, 2: 5, 3: 0, 4: 7}
    assert p_values("four", four) == pytest.approx([1.0, one, 1.0, 2 * other])


def test_each_mean_is_tested_on_its_own_cells(tmp_path: Path) -> None:
    """Rows are shown by severity first, and matched by corruption first."""
    sides = []
    for lost in (0, 9):
        writer = Store.create(tmp_path / f"{lost}", {"methods": ["tent"]}).writer()
        for corruption, severity in itertools.product(("fog", "contrast"), (1, 5)):
            right = np.arange(400) >= (lost if severity == 5 else 0)
            writer.append(measured(replace(CELL, corruption=corruption, severity=severity), right))
        writer.close()
        sides.append(tmp_path / f"{lost}")
    p = compare(*sides).means.set_index("severity")["p_value"]
    assert p[1] == 1.0
    assert p[5] < 0.01


def test_results_with_other_settings_are_paired_too(tmp_path: Path) -> None:
    before = folder(tmp_path / "before", {("fog", 0): np.ones(400, bool)})
    fewer = {("fog", 0): np.arange(400) >= 9}
    after = folder(tmp_path / "after", fewer, config=(("lr", 0.002), ("norms", "batch")))
    assert list(compare(before, after).cells["p_value"]) == [pytest.approx(2 * 2**-9)]


def test_cells_with_equal_images_surely_did_not_fall(tmp_path: Path) -> None:
    right = {("fog", 0): np.ones(400, bool), ("snow", 0): np.ones(400, bool)}
    before = folder(tmp_path / "before", right)
    after = folder(tmp_path / "after", right | {("snow", 0): np.arange(400) >= 9})
    p = compare(before, after).cells.set_index("corruption")["p_value"]
    assert dict(p) == {"fog": 1.0, "snow": pytest.approx(2 * 2**-9)}  # McNemar, one test of its family


def test_the_level_holds_for_means(tmp_path: Path) -> None:
    before = folder(tmp_path / "before", {("fog", 0): np.ones(400, bool)})
    after = folder(tmp_path / "after", {("fog", 0): np.arange(400) >= 5})
    (p,) = compare(before, after).means["p_value"]
    for alpha, verdict in ((1.01 * p, "fell"), (0.99 * p, "chance")):
        assert list(compare(before, after, alpha=alpha).means["verdict"]) == [verdict]


def test_cells_and_means_share_the_level(tmp_path: Path) -> None:
    """One cell is its own mean. Either test can fail the gate, so each has half the level."""
    right, seed = np.ones(400, bool), np.array([0])
    less = np.arange(400) >= 5
    sides = [folder(tmp_path / name, {("fog", 0): bits}) for name, bits in (("a", right), ("b", less))]
    packed = np.packbits([right], axis=1), np.packbits([less], axis=1)
    outcome = compare(*sides)
    assert outcome.cells["p_value"].item() == pytest.approx(2 * cells_fell(*packed).item())
    assert outcome.means["p_value"].item() == pytest.approx(2 * mean_fell(*packed, 400, seed))


def test_one_image_is_not_lost_in_the_rounding(tmp_path: Path) -> None:
    right = draw(n=10_000)
    run = folder(tmp_path / "run", right)
    worse = {key: losing(bits, 1, np.random.default_rng(0)) for key, bits in right.items()}
    csv = view("cells")(load_frame(folder(tmp_path / "worse", worse)), tmp_path / "cells.csv")
    assert compare(run, csv, max_drop=0).count("fell") == len(NAMES)


def test_a_real_fall_fails_and_one_within_chance_does_not(tmp_path: Path) -> None:
    right, rng = draw(), np.random.default_rng(5)
    run = folder(tmp_path / "run", right)
    fallen = folder(tmp_path / "fallen", right | {("fog", 0): losing(right["fog", 0], 30, rng)})
    outcome = compare(run, fallen, max_mean_drop=100)
    assert outcome.failed
    assert outcome.count("fell") == 1
    swapped = right["fog", 0].copy()  # 40 images right, 50 others wrong: -1.7 points
    swapped[rng.choice(np.flatnonzero(right["fog", 0]), 50, replace=False)] = False
    swapped[rng.choice(np.flatnonzero(~right["fog", 0]), 40, replace=False)] = True
    noisy = folder(tmp_path / "noisy", right | {("fog", 0): swapped})
    outcome = compare(run, noisy, max_mean_drop=100)
    assert not outcome.failed
    assert outcome.count("chance") == 1
    assert compare(run, noisy, max_mean_drop=100, alpha=1).failed


def test_a_small_loss_everywhere_fails_by_the_mean(tmp_path: Path) -> None:
    right, rng = draw(n=3000), np.random.default_rng(6)
    run = folder(tmp_path / "run", right)
    worse = folder(tmp_path / "worse", {key: losing(bits, 27, rng) for key, bits in right.items()})
    outcome = compare(run, worse)
    assert outcome.count("fell") == 0
    assert outcome.failed
    assert outcome.means["change"].tolist() == pytest.approx([-0.9])


@pytest.mark.parametrize("other", [{"fingerprint": "0" * 64}])
def test_other_images_are_not_paired(tmp_path: Path, other: dict[str, Any]) -> None:
    right, rng = draw(), np.random.default_rng(7)
    run = folder(tmp_path / "run", right)
    fewer = {key: losing(bits, 8, rng) for key, bits in right.items()}
    outcome = compare(run, folder(tmp_path / "other", fewer, **other))
    assert outcome.cells["p_value"].isna().all()
    assert outcome.count("fell") == len(NAMES)  # the bound alone decides
    assert "not the same data: digits-c." in outcome.warnings


def test_a_damaged_bitmap_is_named(tmp_path: Path) -> None:
    right = draw(n=80)
    run = folder(tmp_path / "run", right)
    other = folder(tmp_path / "other", {key: ~bits for key, bits in right.items()})
    (shard,) = (other / "cells").glob("*.jsonl")
    lines = [json.loads(line) for line in shard.read_text().splitlines()]
    for line in lines:
        del line["sum"]
        if "correct" in line:
            line["correct"] = line["correct"][:8]
    shard.write_bytes(b"".join(map(encode, lines)))
    with pytest.raises(UserError, match="it has 80 images, and the correctness of another number is stored"):
        compare(run, other)


def test_a_mean_with_a_cell_that_cannot_be_tested_is_not_tested(tmp_path: Path) -> None:
    """The number of its images is another one. What fell there counts: the bound alone decides."""
    before = folder(tmp_path / "before", {(name, 0): np.ones(200, bool) for name in ("fog", "snow")})
    after = folder(tmp_path / "after", {("fog", 0): np.arange(100) >= 25, ("snow", 0): np.arange(200) >= 1})
    (mean,) = compare(before, after).means.to_dict("records")
    assert np.isnan(mean["p_value"])
    assert mean["verdict"] == "fell"


def test_the_images_of_a_long_stream_are_no_sample(tmp_path: Path) -> None:
    """The same images come again and again, and what a method learned on one changes the next ones."""
    right = np.arange(400) >= 10
    stream = {"protocol": Protocol(stream="recurring(2)", reset="continual")}
    one = folder(tmp_path / "one", {("recurring", 0): right}, **stream)
    other = folder(
        tmp_path / "other", {("recurring", 0): losing(right, 9, np.random.default_rng(0))}, **stream
    )
    result = compare(one, other)
    assert result.cells["p_value"].isna().all()
    assert result.means["p_value"].isna().all()
    assert result.cells["verdict"].tolist() == ["fell"]


def test_held_out_images_of_several_seeds_are_not_paired(tmp_path: Path) -> None:
    """Each seed holds out other images: position 3 of one is another image than position 3 of the next."""
    protocol = {"protocol": Protocol(held_out=0.5)}
    right = {("fog", seed): np.arange(400) >= 5 for seed in (0, 1)}
    worse = {key: bits & (np.arange(400) >= 20) for key, bits in right.items()}
    sides = [folder(tmp_path / name, bits, **protocol) for name, bits in (("a", right), ("b", worse))]
    assert compare(*sides).means["p_value"].isna().all()
    assert not compare(*sides).cells["p_value"].isna().any()
    only = [
        folder(tmp_path / f"{n}1", {("fog", 0): b["fog", 0]}, **protocol)
        for n, b in (("a", right), ("b", worse))
    ]
    assert not compare(*only).means["p_value"].isna().any()


def test_cells_at_a_pace_are_compared_whatever_ratio_was_measured(tmp_path: Path) -> None:
    right = {("fog", 0): np.arange(400) >= 5}
    sides = [
        folder(tmp_path / name, right, protocol=Protocol(pace=1.0, pace_ratio=ratio))
        for name, ratio in (("a", 3.1), ("b", 3.12))
    ]
    outcome = compare(*sides)
    assert outcome.cells["verdict"].tolist() == ["same"]
    assert not outcome.failed
    assert outcome.warnings == (
        "not the same compute ratio: tent: 3.1 → 3.12; --pace-ratio gives both sides one.",
    )
