"""What the tables say of chance: by hand, from the same per-image correctness."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest, rankdata, ttest_1samp
from which_method import rankings, summary

from tests.unit.made_cells import cells, spoil, where, with_correctness
from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench_reports.evidence import intervals_and_tests as evidence
from ttabench_reports.evidence import paired_rows, places, stats
from ttabench_reports.evidence.paired_rows import paired_with
from ttabench_reports.evidence.places import best_places, places_of_table
from ttabench_reports.evidence.report import Report
from ttabench_reports.formats import csv_files
from ttabench_reports.sheets import means, words
from ttabench_reports.tables.table import Row, Table

IMAGES = 400
METHODS = ("source", "tent", "eata", "sar", "quantile")
BETTER = {"tent": 0.03, "eata": 0.6, "sar": 0.6, "quantile": 0.3}


def one(frame: pd.DataFrame) -> Table:
    (table,) = Report(frame).tables
    return table


def row(table: Table, method: str, arch: str = "cct") -> Row:
    return next(r for r in table.rows if r.measured and (r.arch, r.method) == (arch, method))


def bits(frame: pd.DataFrame, method: str, arch: str = "cct") -> np.ndarray:
    """(corruptions, images), of the first seed."""
    ours = frame[where(frame, method=method, arch=arch, seed=0)].set_index("corruption")["correct"]
    packed = [np.frombuffer(ours[c], np.uint8) for c in CORRUPTIONS]
    return np.unpackbits(np.stack(packed), axis=1, count=IMAGES).astype(bool)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return with_correctness(cells(METHODS), IMAGES, BETTER)


def test_tests_and_intervals_are_those_of_the_images(frame: pd.DataFrame) -> None:
    table = one(frame)
    result = evidence.findings(table)
    raw, rises = [], {}
    adapted = [m for m in METHODS if m != "source"]
    for method in adapted:
        by_image = bits(frame, method).mean(axis=0) - bits(frame, "source").mean(axis=0)
        rises[method] = by_image
        raw.append(ttest_1samp(by_image, 0).pvalue)
    for method, p in zip(adapted, stats.holm(raw), strict=True):
        finding = result[id(row(table, method))]
        assert finding.p_source == pytest.approx(p, rel=1e-5)
        low, high = finding.rise_interval
        error = 100 * rises[method].std(ddof=1) / math.sqrt(IMAGES)
        assert (low, high) == pytest.approx(
            (100 * rises[method].mean() - 1.96 * error, 100 * rises[method].mean() + 1.96 * error),
            abs=0.2 * error,
        )
        assert finding.interval[0] < row(table, method).value("mean") < finding.interval[1]


def test_tests_against_source_are_corrected_for_their_number() -> None:
    methods = ("source", "tent", "eata", "sar", "bn_stats")
    better = {"tent": 0.015, "eata": 0.02, "sar": 0.025, "bn_stats": 0.03}
    frame = with_correctness(cells(methods, ("cct",)), IMAGES, better)
    table = one(frame)
    raw = [
        ttest_1samp(bits(frame, m).mean(axis=0) - bits(frame, "source").mean(axis=0), 0).pvalue
        for m in methods[1:]
    ]
    expected = stats.holm(raw)
    assert (expected > 1.5 * np.array(raw)).sum() >= 2
    result = evidence.findings(table)
    assert [result[id(row(table, m))].p_source for m in methods[1:]] == pytest.approx(expected, rel=1e-5)


def test_an_interval_of_an_accuracy_ends_at_0_and_at_100_percent() -> None:
    frame = cells(("source", "tent"), ("cct",), corruptions=("fog",))
    for at, end, right in ((0, 0.0, np.arange(IMAGES) < 3), (1, 100.0, np.arange(IMAGES) >= 3)):
        frame = frame.assign(
            correct=[np.packbits(right).tobytes()] * 2, accuracy=100 * float(right.mean()), n_images=IMAGES
        )
        table = one(frame)
        assert evidence.findings(table)[id(row(table, "tent"))].interval[at] == end


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
@pytest.mark.parametrize("alike", [0, 1, 2])
@pytest.mark.parametrize("right", [True, False])
def test_images_that_are_all_alike_give_no_interval(seeds: tuple[int, ...], alike: int, right: bool) -> None:
    """A bootstrap of them would say that the accuracy is 100 % for certain."""
    frame = cells(("source", "tent"), ("cct",), corruptions=("fog", "snow"), seeds=seeds)
    bits = np.full(IMAGES, right)
    bits[:alike] = not right
    frame = frame.assign(correct=[np.packbits(bits).tobytes()] * len(frame), n_images=IMAGES)
    frame["accuracy"] = 100 * float(bits.mean())
    table = one(frame)
    for finding in evidence.findings(table).values():
        assert np.isnan([*finding.interval, *finding.rise_interval]).all()


def test_a_row_without_a_mean_is_not_the_best(frame: pd.DataFrame) -> None:
    table = one(spoil(frame, "failed", "no memory", method="source", corruption=CORRUPTIONS[0]))
    found = evidence.findings(table)
    best = [method for method in ("tent", "eata", "sar") if math.isnan(found[id(row(table, method))].p_best)]
    assert best == ["sar"]


def test_a_record_is_there_where_anything_was_tested() -> None:
    assert evidence.Finding(wins=1, losses=1).record == "1/0/1"
    assert evidence.Finding(wins=1, ties=1, losses=2).record == "1/1/2"


@pytest.mark.parametrize("p_value", [0.0, math.nan])
def test_what_prints_as_the_best_is_best_and_what_prints_as_source_is_not_second(
    p_value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each test finds a difference, and where none can be made."""

    def places(**accuracy: float) -> dict[str, str | None]:
        table = one(cells(tuple(accuracy), ("cct",), accuracy=lambda cell: accuracy[cell["method"]]))
        return {name: places_of_table(table).get((id(row(table, name)), "mean")) for name in accuracy}

    monkeypatch.setattr(
        paired_rows.Paired, "p_values", lambda self, first, others, column: [p_value] * len(others)
    )
    assert places(source=70.0, tent=78.26, eata=78.34, sar=78.24) == {
        "source": None, "tent": "best", "eata": "best", "sar": "second"
    }  # fmt: skip
    assert places(source=70.06, tent=70.14, eata=78.0) == {"source": None, "tent": None, "eata": "best"}


def test_one_corruption_is_tested_over_all_seeds() -> None:
    frame = with_correctness(cells(("source", "tent"), ("cct",), seeds=(0, 1, 2)), IMAGES, {"tent": 0.2})
    right = {
        m: np.stack([
            np.unpackbits(np.frombuffer(packed, np.uint8), count=IMAGES).astype(float)
            for packed in frame[where(frame, method=m, corruption="fog")].sort_values("seed")["correct"]
        ])
        for m in ("source", "tent")
    }  # fmt: skip
    table = one(frame)
    (actual,) = paired_with(row(table, "tent"), table).p_values(
        row(table, "tent"), [row(table, "source")], ("fog",)
    )
    both = stats.Moments(np.stack([right["tent"], right["source"]]).astype(int))
    assert actual == pytest.approx(both.p_values(0, [1])[0], rel=1e-6)


def test_won_tied_and_lost_corruptions_are_counted_by_mcnemars_test(frame: pd.DataFrame) -> None:
    table = one(frame)
    result = evidence.findings(table)
    for method in ("tent", "eata"):
        a, b = bits(frame, "source"), bits(frame, method)
        only = [(int((x & ~y).sum()), int((y & ~x).sum())) for x, y in zip(a, b, strict=True)]
        p = stats.holm([binomtest(second, first + second).pvalue for first, second in only])
        sure = [second - first for (first, second), adjusted in zip(only, p, strict=True) if adjusted < 0.05]
        finding = result[id(row(table, method))]
        assert finding.wins == sum(change > 0 for change in sure)
        assert finding.losses == sum(change < 0 for change in sure)
        assert finding.ties == len(CORRUPTIONS) - len(sure)
    assert result[id(row(table, "eata"))].wins > result[id(row(table, "tent"))].wins


def test_what_a_test_does_not_tell_apart_is_best_together(frame: pd.DataFrame) -> None:
    table = one(frame)
    for arch in ("cct", "resnet18"):
        place = {m: places_of_table(table).get((id(row(table, m, arch)), "mean")) for m in METHODS}
        assert place["eata"] == place["sar"] == "best"  # alike but for noise
        assert place["tent"] != "best"
        assert place["quantile"] == "best"  # offline, ranked apart
    # Far apart, only one is best, and the second is second.
    table = one(with_correctness(cells(METHODS), IMAGES, {"eata": 0.9, "sar": 0.5}))
    place = {m: places_of_table(table).get((id(row(table, m)), "mean")) for m in METHODS}
    assert (place["eata"], place["sar"], place["source"]) == ("best", "second", None)


def test_what_is_no_better_than_source_is_not_second() -> None:
    worse = {"eata": 0.02, "sar": -0.9, "tent": -0.9}
    table = one(with_correctness(cells(METHODS), IMAGES, worse))
    place = {m: places_of_table(table).get((id(row(table, m)), "mean")) for m in METHODS}
    assert place["source"] == "best"
    assert (place["tent"], place["sar"]) == (None, None)


def test_ties_are_those_of_holms_procedure() -> None:
    """Against every method of a group at once, on each corruption; by scipy's binomial test."""
    methods = ("source", *(f"tent[lr={n}]" for n in range(12)))
    frame = with_correctness(cells(methods), IMAGES, {m: 0.03 * n for n, m in enumerate(methods)})
    table = one(frame)
    differs = 0
    right = {method: bits(frame, method) for method in methods}
    for k, corruption in enumerate(CORRUPTIONS):
        top = max(methods, key=lambda method: row(table, method).value(corruption))
        others = [m for m in methods if m != top]
        p = [
            binomtest(int((a & ~b).sum()), int((a ^ b).sum())).pvalue if (a ^ b).any() else 1.0
            for a, b in ((right[m][k], right[top][k]) for m in others)
        ]
        printed = row(table, top).printed(corruption)
        tied = {
            m for m, q in zip(others, stats.holm(p), strict=True)
            if q >= 0.05 or row(table, m).printed(corruption) == printed
        }  # fmt: skip
        best = {m for m in methods if places_of_table(table).get((id(row(table, m)), corruption)) == "best"}
        assert best == {top} | tied
        differs += tied != {m for m, q in zip(others, p, strict=True) if q >= 0.05}
    assert differs  # the correction matters here


def test_offline_rows_are_tested_against_offline_rows_only(frame: pd.DataFrame) -> None:
    table = one(frame)
    result = evidence.findings(table)
    assert math.isnan(result[id(row(table, "quantile"))].p_best)  # the best of its mode
    best = max(("eata", "sar"), key=lambda method: row(table, method).value("mean"))
    others = [m for m in ("tent", "eata", "sar") if m != best]
    known = [
        ttest_1samp(bits(frame, m).mean(axis=0) - bits(frame, best).mean(axis=0), 0).pvalue for m in others
    ]
    for method, p in zip(others, stats.holm(known), strict=True):
        assert result[id(row(table, method))].p_best == pytest.approx(p, rel=1e-5)


def test_ranks_are_means_over_the_corruptions_within_a_mode(frame: pd.DataFrame) -> None:
    for online in (("source", "tent", "eata", "sar"), ("source", "tent")):
        table = one(frame[frame["base"].isin([*online, "quantile"])])
        result = evidence.findings(table)
        printed = np.array([[row(table, m).printed(c) for c in CORRUPTIONS] for m in online])
        for method, rank in zip(online[1:], rankdata(-printed, axis=0).mean(axis=1)[1:], strict=True):
            assert result[id(row(table, method))].rank == pytest.approx(rank)


def test_two_trainings_of_an_architecture_are_ranked_as_if_alone() -> None:
    """The methods of the better classifier do not compete with those of the other one."""
    parts = [
        with_correctness(cells(METHODS, ("cct",), checkpoint=weights), IMAGES, better)
        for weights, better in (
            ("aaaa1111", BETTER),
            ("bbbb2222", {m: 1 + BETTER.get(m, 0) for m in METHODS}),
        )
    ]
    parts[1]["cell_id"] = parts[1]["cell_id"].str.replace("0", "f")
    both = one(pd.concat(parts, ignore_index=True))
    of_both = evidence.findings(both)
    for part in parts:
        alone = one(part)
        of_alone = evidence.findings(alone)
        for ours in (r for r in alone.rows if r.measured):
            (same,) = (
                r for r in both.rows
                if r.measured and r.about["base"] == ours.about["base"]
                and r.about["checkpoint"] == ours.about["checkpoint"]
            )  # fmt: skip
            assert [places_of_table(both).get((id(same), c)) for c in both.columns] == [
                places_of_table(alone).get((id(ours), c)) for c in alone.columns
            ]
            np.testing.assert_equal(of_both[id(same)].rank, of_alone[id(ours)].rank)
            np.testing.assert_equal(of_both[id(same)].p_best, of_alone[id(ours)].p_best)
    headings = [ranking.title for ranking in rankings(Report(pd.concat(parts)))]
    assert headings == [
        f"Digits-C, severity 5: CCT, weights {w}" for w in ("aaaa1111",) * 2 + ("bbbb2222",) * 2
    ]
    assert [one.title for one in rankings(Report(parts[0]))] == ["Digits-C, severity 5: CCT"] * 2


def test_a_corruption_without_all_its_seeds_is_neither_won_nor_lost() -> None:
    frame = with_correctness(cells(("source", "tent"), ("cct",), seeds=(0, 1)), IMAGES, {"tent": 0.3})
    part = spoil(frame, "failed", "no memory", method="tent", corruption=CORRUPTIONS[0], seed=1)
    records = []
    for cells_of in (frame, part):
        table = one(cells_of)
        records.append(evidence.findings(table)[id(row(table, "tent"))].record)
    assert records == [f"{len(CORRUPTIONS)}/0/0", f"{len(CORRUPTIONS) - 1}/0/0"]


def test_without_correctness_nothing_is_claimed() -> None:
    table = one(cells(METHODS))
    for finding in evidence.findings(table).values():
        assert math.isnan(finding.interval[0])
        assert math.isnan(finding.rise_interval[0])
        assert math.isnan(finding.p_source)
        assert math.isnan(finding.p_best)
        assert finding.record == ""
    lines = csv_files.statistics(Report(cells(METHODS)))
    assert lines[["low", "high", "wins", "p_source_holm"]].isna().all().all()


def test_the_csv_file_has_each_number_in_its_column(frame: pd.DataFrame) -> None:
    report = Report(frame)
    (table,) = report.tables
    lines = csv_files.statistics(report).set_index(["arch", "method"])
    for ours in (r for r in table.rows if r.measured):
        finding, line = evidence.findings(table)[id(ours)], lines.loc[(ours.arch, ours.method)]
        expected = {
            "accuracy": ours.value("mean"), "low": finding.interval[0], "high": finding.interval[1],
            "increase": ours.value("mean") - ours.baseline.value("mean") if ours.baseline else math.nan,
            "increase_low": finding.rise_interval[0], "increase_high": finding.rise_interval[1],
            "p_source_holm": finding.p_source, "p_best_holm": finding.p_best,
            "mean_rank_descriptive": finding.rank,
        }  # fmt: skip
        for name, value in expected.items():
            assert line[name] == pytest.approx(value, nan_ok=True), name
        assert finding.record in ("", f"{line['wins']}/{line['ties']}/{line['losses']}")


def test_the_order_in_which_seeds_were_stored_changes_nothing() -> None:
    seeds = with_correctness(
        cells(METHODS, ("cct",), corruptions=("fog", "snow"), seeds=(0, 1, 2)), IMAGES, BETTER
    )
    table, other = one(seeds), one(seeds[::-1])
    for method in METHODS:
        ours, theirs = row(table, method), row(other, method)
        # Compared as texts, since a NaN is not equal to itself.
        assert repr(evidence.findings(other)[id(theirs)]) == repr(evidence.findings(table)[id(ours)])
        shares = [paired_with(each, of).share(each) for each, of in ((ours, table), (theirs, other))]
        assert shares[0] is not None
        np.testing.assert_array_equal(*shares)


def test_seeds_widen_the_interval() -> None:
    narrow = with_correctness(cells(METHODS), IMAGES, BETTER)
    several = cells(METHODS, seeds=(0, 1, 2))
    parts = [
        with_correctness(several[several["seed"] == seed], IMAGES, {"eata": 0.6 + 0.4 * seed, "tent": 0.03})
        for seed in (0, 1, 2)
    ]
    wide = pd.concat(parts)
    (alone, together) = (one(frame) for frame in (narrow, wide))
    widths = [
        np.subtract(*evidence.findings(table)[id(row(table, "eata"))].rise_interval[::-1])
        for table in (alone, together)
    ]
    assert widths[1] > 2 * widths[0]


def test_rows_are_paired_over_the_seeds_that_both_have() -> None:
    def p_value(frame: pd.DataFrame, first: str, second: str) -> float:
        table = one(frame)
        ours = row(table, first)
        return paired_with(ours, table).p_values(ours, [row(table, second)], table.main)[0]

    three = ("fog", "snow", "frost")
    whole = with_correctness(cells(METHODS, ("cct",), corruptions=three, seeds=(0, 1)), IMAGES, BETTER)
    mixed = whole[~(whole["base"].isin(["source", "eata"]) & (whole["seed"] == 1))]
    assert not math.isnan(p_value(mixed, "tent", "source"))
    assert not math.isnan(p_value(mixed, "eata", "source"))
    assert p_value(mixed, "tent", "eata") == p_value(whole[whole["seed"] == 0], "tent", "eata")
    apart = whole[~(((whole["base"] == "tent") & (whole["seed"] == 0)) | where(whole, base="eata", seed=1))]
    assert math.isnan(p_value(apart, "tent", "eata"))  # no seed in common
    again = whole.assign(seed=whole["seed"] + 1)
    shifted = pd.concat([whole[whole["base"] != "tent"], again[again["base"] == "tent"]])  # 0, 1 and 1, 2
    assert p_value(shifted, "tent", "eata") == pytest.approx(
        p_value(shifted[shifted["seed"] == 1], "tent", "eata"), nan_ok=False
    )
    fewer = whole[~(whole["base"].isin(["eata"]) & (whole["seed"] == 1))]
    assert not math.isnan(p_value(fewer, "eata", "source"))  # Source has that seed among its own
    assert p_value(fewer, "tent", "source") == p_value(whole, "tent", "source")  # both seeds, as before
    assert math.isnan(p_value(whole[~where(whole, base="tent", corruption="fog")], "tent", "source"))
    unknown = whole.copy()  # the number is over two seeds, and of one it is not known which images were right
    unknown.loc[where(whole, base="tent", corruption="fog", seed=1), "correct"] = b""
    assert math.isnan(p_value(unknown[~where(whole, base="eata", seed=1)], "tent", "eata"))
    held = whole.assign(held_out=0.5)  # each seed scores other images
    assert math.isnan(p_value(held, "tent", "source"))
    assert not math.isnan(p_value(held[held["seed"] == 0], "tent", "source"))
    assert math.isnan(p_value(held[~where(held, base="eata", seed=1)], "tent", "eata"))


def test_a_row_that_cannot_be_tested_against_the_best_has_a_footnote() -> None:
    """Other seeds, or correctness that is not stored: no test says that it is below the best."""
    better = {**BETTER, "sar": 0.5}
    whole = with_correctness(cells(METHODS, ("cct",), seeds=(0, 1)), IMAGES, better)
    sar = whole["base"] == "sar"
    apart = whole[sar == (whole["seed"] == 1)]
    plain = whole.copy()
    plain.loc[sar, "correct"] = b""
    for made, named in ((whole, []), (apart, ["sar"]), (plain, ["sar"]), (whole.assign(correct=b""), [])):
        table = one(made)
        assert [r.method for r in table.rows if id(r) in places.untested(table)] == named
        sheet = means.summary(Report(made))
        assert ("could not be tested against the best" in sheet.footer) is bool(named)
        notes = [text for _, text in sheet.used_notes]
        assert any(text.startswith("not tested against the best") for text in notes) is bool(named)


def test_what_cannot_be_given_is_one_dash_that_the_footer_explains_where_there_is_one() -> None:
    whole = with_correctness(cells(METHODS, ("cct",)), IMAGES, BETTER)
    plain = whole.copy()
    plain.loc[whole["base"] == "sar", "correct"] = b""
    for sheet in (
        means.summary(Report(whole)),
        means.summary(Report(plain)),
        means.statistics(Report(plain)),
    ):
        numbers = [cell.text for group in sheet.groups for line in group.lines for cell in line[3:]]
        assert "" not in numbers
        assert sheet.footer.count(words.NO_NUMBER) == ("–" in numbers)
        assert not sheet.brief or sheet.brief.count(words.NO_NUMBER) == ("–" in numbers)
    assert "–" in numbers


def mixed(right: dict[tuple[str, int], np.ndarray]) -> pd.DataFrame:
    """Cells of the stream of all corruptions by (method, seed), with these images right."""
    parts = [
        cells((method,), ("cct",), corruptions=("mixed",), seeds=(seed,)).assign(
            correct=[np.packbits(ours).tobytes()], accuracy=100 * float(ours.mean()), n_images=IMAGES
        )
        for (method, seed), ours in right.items()
    ]
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_a_row_is_compared_with_source_over_the_seeds_of_the_row(seeds: tuple[int, ...]) -> None:
    """Where each seed has its own images: the first are the hardest, and TENT is right on more of them."""
    images = np.arange(IMAGES)
    source = {("source", seed): images < share * IMAGES for seed, share in enumerate((0.4, 0.5, 0.9))}
    better = {("tent", seed): source["source", seed] | (images >= 0.9 * IMAGES) for seed in seeds}
    table = one(mixed(source | better))
    tent, whole = row(table, "tent"), row(table, "source")
    of_same = np.mean([100 * source["source", seed].mean() for seed in seeds])
    assert whole.value("mean") == pytest.approx(60.0)
    assert tent.baseline is not None
    assert tent.baseline.value("mean") == pytest.approx(of_same)
    assert tent.baseline.whole is whole
    (increase,) = (r for r in table.rows if r.kind == "increase")
    assert increase.value("mean") == pytest.approx(10.0)
    assert increase.printed("mean") == pytest.approx(10.0)
    finding = evidence.findings(table)[id(tent)]
    assert finding.record == "1/0/0"
    assert finding.p_source < 1e-6
    assert 0 < finding.rise_interval[0] < 10 < finding.rise_interval[1]
    assert [text for text in tent.remarks[""] if "same seeds" in text]
    assert len([r for r in table.rows if r.kind == "source"]) == 1


def test_a_higher_mean_over_other_images_does_not_take_the_mark_from_what_is_better_on_the_same() -> None:
    images = np.arange(IMAGES)
    right = {("source", 0): images < 0.4 * IMAGES, ("source", 1): images < 0.9 * IMAGES}
    table = one(mixed({**right, ("tent", 0): images < 0.5 * IMAGES, ("sar", 0): images < 0.3 * IMAGES}))
    place = {m: places_of_table(table).get((id(row(table, m)), "mean")) for m in ("source", "tent", "sar")}
    assert place == {"source": "best", "tent": "best", "sar": None}


def test_a_source_that_is_the_same_for_all_seeds_is_the_printed_one() -> None:
    same = np.arange(IMAGES) < 200
    table = one(mixed({**{("source", seed): same for seed in (0, 1, 2)}, ("tent", 0): same}))
    tent = row(table, "tent")
    assert tent.baseline is row(table, "source")
    assert "" not in tent.remarks


def test_rows_with_the_same_seeds_share_a_source_and_one_with_all_of_them_has_the_printed_one() -> None:
    right = {("source", seed): np.arange(IMAGES) < 200 + seed for seed in (0, 1, 2)}
    right |= {(m, seed): right["source", 0] for m in ("tent", "sar") for seed in (1, 2)}
    right |= {("eata", seed): right["source", 0] for seed in (0, 1, 2)}
    table = one(mixed(right))
    assert row(table, "tent").baseline is row(table, "sar").baseline
    assert row(table, "eata").baseline is row(table, "source")
    assert "" not in row(table, "eata").remarks


def test_source_with_one_seed_stands_for_another_only_where_both_have_the_same_images() -> None:
    frame = with_correctness(cells(("source", "tent"), ("cct",)), IMAGES, {"tent": 0.6})
    frame.loc[where(frame, base="tent"), "seed"] = 1
    held_out = frame.assign(held_out=0.5)
    stream = mixed({("source", 0): np.arange(IMAGES) < 200, ("tent", 1): np.arange(IMAGES) < 300})
    for known, made in ((True, frame), (False, held_out), (False, stream)):
        table = one(made)
        finding = evidence.findings(table)[id(row(table, "tent"))]
        assert math.isnan(finding.p_source) is not known
        assert math.isnan(finding.rise_interval[0]) is not known
        assert (finding.record == "") is not known


def test_a_source_without_some_seed_of_a_row_is_not_tested_against_it() -> None:
    right = {("source", 0): np.arange(IMAGES) < 200}
    right |= {("tent", 0): np.arange(IMAGES) < 300, ("tent", 1): np.arange(IMAGES) < 20}
    table = one(mixed(right))  # better with the common seed; below Source as it is printed
    finding = evidence.findings(table)[id(row(table, "tent"))]
    assert finding.record == ""
    assert math.isnan(finding.p_source)


def test_a_single_corruption_has_intervals_too() -> None:
    frame = with_correctness(cells(("source", "tent"), ("cct",), corruptions=("fog",)), IMAGES, {"tent": 0.6})
    table = one(frame)
    finding = evidence.findings(table)[id(row(table, "tent"))]
    right = {
        m: np.unpackbits(
            np.frombuffer(frame[where(frame, method=m)]["correct"].iloc[0], np.uint8), count=IMAGES
        )
        for m in ("source", "tent")
    }
    for by_image, interval in (
        (right["tent"] * 1.0, finding.interval),
        (right["tent"] * 1.0 - right["source"], finding.rise_interval),
    ):
        error = 100 * by_image.std(ddof=1) / math.sqrt(IMAGES)
        middle = 100 * by_image.mean()
        expected = (middle - 1.96 * error, middle + 1.96 * error)
        assert interval == pytest.approx(expected, abs=0.3 * error)


def test_an_increase_has_no_interval_where_source_lacks_some_of_its_seeds() -> None:
    whole = with_correctness(cells(("source", "tent"), ("cct",), seeds=(0, 1, 2)), IMAGES, {"tent": 0.6})
    for lacking, there in (((), True), ((2,), False), ((1, 2), True)):  # one seed of Source stands for all
        table = one(whole[~((whole["base"] == "source") & whole["seed"].isin(lacking))])
        finding = evidence.findings(table)[id(row(table, "tent"))]
        assert not math.isnan(finding.interval[0])
        assert math.isnan(finding.rise_interval[0]) is not there


def test_what_differs_from_the_best_is_not_marked_as_best(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = with_correctness(cells(("source", "tent", "eata"), ("cct",)), IMAGES, {"tent": 0.6, "eata": 0.5})
    table = one(frame)
    p_values = {"source": 0.04, "eata": 0.03}  # Source is one of the two tests: Holm makes 0.06 of 0.03
    monkeypatch.setattr(
        paired_rows.Paired, "p_values",
        lambda self, first, others, column: [p_values.get(other.method, 0.5) for other in others],
    )  # fmt: skip
    finding = evidence.findings(table)[id(row(table, "eata"))]
    assert (finding.p_best >= places.ALPHA) is ((id(row(table, "eata")), "mean") in best_places(table))


def test_the_caption_says_over_which_tests_p_values_are_corrected() -> None:
    frame = with_correctness(cells(METHODS), IMAGES, BETTER)
    assert "Holm-corrected over the corruptions of a row" in means.statistics(Report(frame)).footer


def test_the_caption_does_not_say_that_an_interval_covers_two_seeds() -> None:
    frame = with_correctness(cells(METHODS, ("cct",), seeds=(0, 1)), IMAGES, BETTER)
    for sheet in (means.statistics(Report(frame)), means.summary(Report(frame))):
        assert "bootstrap over images and, from three seeds on, over seeds." in sheet.footer


def test_methods_are_compared_with_the_best_method_where_source_is_above_all() -> None:
    frame = with_correctness(cells(("source", "tent", "eata", "sar"), ("cct",)), IMAGES)
    same = frame[where(frame, method="tent")].set_index("corruption")
    harm = {"tent": 60, "eata": 60, "sar": 150}  # of the images become wrong; TENT and EATA are the same
    for index, method, corruption in frame[["method", "corruption"]].itertuples():
        if method in harm:
            bits_of = np.unpackbits(np.frombuffer(same["correct"][corruption], np.uint8), count=IMAGES)
            bits_of[: harm[method]] = 0
            frame.at[index, "correct"] = np.packbits(bits_of).tobytes()
            frame.at[index, "accuracy"] = 100 * float(bits_of.mean())
    (ranking,) = rankings(Report(frame))
    assert ranking.rows[0].kind == "source"
    text = summary(ranking)
    assert text.startswith("EATA has the highest mean")
    assert "TENT does not differ from it significantly." in text


def test_the_share_of_an_image_is_its_mean_over_corruptions_and_seeds() -> None:
    """Also under more corruptions and seeds than a byte can count."""
    seeds = range(256 // len(CORRUPTIONS) + 1)
    frame = with_correctness(cells(("source", "tent"), ("cct",), seeds=seeds), 40, {"tent": 1.0})
    ours = frame[where(frame, method="tent")]["correct"]
    right = np.unpackbits(np.stack([np.frombuffer(packed, np.uint8) for packed in ours]), axis=1)
    assert right.sum(axis=0).max() > 255
    table = one(frame)
    tent = row(table, "tent")
    assert paired_with(tent, table).share(tent) == pytest.approx(right.mean(axis=0))
