"""The gate on accuracy: what fails it, what does not, and what it says."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from tests.cases import each
from tests.unit import other_code
from tests.unit.made_cells import cells, spoil, where
from tests.unit.stored_results import fill, filled
from ttabench.cell import Result
from ttabench.errors import UserError
from ttabench.store import Store
from ttabench.system.checked_lines import decode, encode
from ttabench_reports.cells.load import read as load_cells
from ttabench_reports.compare import as_json, compare, github, render, side_by_side
from ttabench_reports.compare.one_sided_tests import smallest_fall, typical_smallest_fall
from ttabench_reports.compare.sides import side
from ttabench_reports.evidence.stats import mcnemar
from ttabench_reports.formats.csv_files import write_cells


def shifted(frame: pd.DataFrame, points: float, **values: object) -> pd.DataFrame:
    frame = frame.copy()
    mask = where(frame, **values)
    assert mask.any()
    frame.loc[mask, "accuracy"] += points
    return frame


def printed(outcome: object, width: int = 120, shown: Callable[..., object] = render) -> str:
    console = Console(width=width, file=io.StringIO())
    with console.capture() as capture:
        console.print(shown(outcome))
    return capture.get()


def test_equal_results_pass_whatever_their_order() -> None:
    frame = cells(seeds=(0, 1))
    outcome = compare(frame, frame.sample(frac=1, random_state=0), max_drop=0, max_mean_drop=0)
    assert not outcome.failed
    assert set(outcome.cells["verdict"]) == {"same"}
    assert set(outcome.means["verdict"]) == {"same"}
    assert outcome.warnings == ()
    assert "ok: 180 the same" in printed(outcome)


DROPS = {"fog": 0.0, "snow": 0.5, "frost": 0.999, "contrast": 1.001, "brightness": 2.0, "pixelate": 40.0}


@each("bound", [0.0, 0.9995, 1.0, 30.0, 40.0])
def test_a_cell_fails_exactly_beyond_the_bound(bound: float) -> None:
    frame = cells(("tent",), ("cct",), corruptions=tuple(DROPS), accuracy=lambda row: 75.0)
    fallen = frame.assign(accuracy=frame["accuracy"] - frame["corruption"].map(DROPS))
    outcome = compare(frame, fallen, max_drop=bound, max_mean_drop=100)
    fell = outcome.cells.loc[outcome.cells["verdict"] == "fell", "corruption"]
    assert set(fell) == {corruption for corruption, drop in DROPS.items() if drop > bound}
    assert outcome.failed == (bound < max(DROPS.values()))


def test_a_fall_of_exactly_the_bound_passes() -> None:
    frame = cells(("tent",), ("cct",), accuracy=lambda row: 75.3)
    assert not compare(frame, shifted(frame, -1.0, corruption="fog"), max_drop=1.0).failed


def test_a_rise_passes() -> None:
    frame = cells()
    outcome = compare(frame, shifted(frame, 5.0, method="tent"), max_drop=0, max_mean_drop=0)
    assert not outcome.failed
    assert outcome.count("moved") == 30


def test_cells_are_bounded_even_where_the_mean_holds() -> None:
    frame = cells(("tent",), ("cct",), corruptions=("fog", "snow"))
    moved = shifted(shifted(frame, -3.0, corruption="fog"), 3.0, corruption="snow")
    outcome = compare(frame, moved, max_drop=1.0)
    assert outcome.failed
    assert outcome.count("fell") == 1
    assert set(outcome.means["verdict"]) == {"same"}


def test_means_weigh_cells_equally() -> None:
    frame = cells(("tent",), ("cct",), seeds=(0, 1, 2), accuracy=lambda row: 80.0)
    frame = frame[~((frame["seed"] > 0) & (frame["corruption"] != "fog"))]  # fog three times, the others once
    outcome = compare(frame, shifted(frame, -1.7, corruption="fog"), max_drop=2.0)
    (mean,) = outcome.means.to_dict("records")
    assert mean["change"] == pytest.approx(-1.7 * 3 / 17)
    assert (mean["before"], mean["after"]) == pytest.approx((80.0, 80.0 - 1.7 * 3 / 17))
    assert (mean["cells"], mean["of"]) == (17, 17)


def test_a_mean_is_over_the_cells_with_a_number_on_both_sides_and_counts_them() -> None:
    frame = cells(("tent",), ("cct",), corruptions=("fog", "snow", "frost"), accuracy=lambda row: 80.0)
    after = spoil(shifted(frame, -1.0, corruption="snow"), "failed", "NaN", corruption="fog")
    (mean,) = compare(frame, after).means.to_dict("records")
    assert (mean["cells"], mean["of"]) == (2, 3)
    assert mean["change"] == pytest.approx(-0.5)
    grown = pd.concat([frame, cells(("tent",), ("cct",), corruptions=("contrast",))])
    (mean,) = compare(frame, grown).means.to_dict("records")
    assert (mean["cells"], mean["of"]) == (3, 3)  # what is new is no part of it


@pytest.mark.parametrize(("bound", "fails"), [(0.29, True), (0.3, False), (0.31, False)])
def test_a_mean_fails_exactly_beyond_its_own_bound(bound: float, fails: bool) -> None:
    frame = cells(("tent",), ("cct",), accuracy=lambda row: 75.3)
    outcome = compare(frame, shifted(frame, -0.3, method="tent"), max_drop=50, max_mean_drop=bound)
    assert outcome.failed == fails
    assert outcome.means["verdict"].tolist() == ["fell" if fails else "moved"]
    assert outcome.count("fell") == 0
    assert ("1 of 1 means fell" in printed(outcome)) == fails


def test_the_means_that_fell_are_counted() -> None:
    frame = cells(("source", "tent", "sar"), ("cct", "resnet18"), accuracy=lambda row: 75.0)
    outcome = compare(frame, shifted(frame, -0.9, method="tent"))
    assert "2 of 6 means fell" in printed(outcome)
    assert outcome.means["verdict"].tolist().count("fell") == 2


def test_a_uniform_loss_below_the_bound_of_cells_fails() -> None:
    frame = cells(accuracy=lambda row: 75.0)
    outcome = compare(frame, shifted(frame, -0.9), max_drop=1.0)
    assert outcome.failed
    assert outcome.count("fell") == 0
    assert set(outcome.means["verdict"]) == {"fell"}


def test_missing_cells_fail_and_new_ones_do_not() -> None:
    frame = cells()
    fewer = frame[~where(frame, arch="cct", method="tent", corruption="fog")]
    outcome = compare(frame, fewer)
    assert outcome.failed
    assert outcome.count("missing") == 1
    assert "tent · cct · digits-c · fog-5 · seed 0" in printed(outcome)
    grown = compare(fewer, frame)
    assert not grown.failed
    assert grown.count("new") == 1


def test_a_cell_that_lost_its_number_fails() -> None:
    frame = cells()
    for status in ("failed", "n/a"):
        outcome = compare(
            frame, spoil(frame, status, "the logits hold NaN", arch="cct", method="tent", corruption="fog")
        )
        assert outcome.failed
        assert outcome.count("lost") == 1
        assert f"→ {status} (the logits hold NaN)" in printed(outcome)


def test_what_had_no_number_may_stay_so_or_gain_one() -> None:
    frame = cells()
    without = spoil(frame, "n/a", "no batch norm", arch="cct", method="tent")
    neither = compare(without, without)
    assert not neither.failed
    same = len(frame) - 15
    assert f"ok: {same} the same, 15 without a number on both sides (" in printed(neither)
    apart = f"{same} of them with the same accuracy and 15 without a number on both sides. "
    assert apart in printed(neither, 200, side_by_side)
    gained = compare(without, frame)
    assert not gained.failed
    assert gained.count("gained") == 15
    assert not np.isinf(gained.means["change"]).any()
    for mean in gained.means.to_dict("records"):
        none = (mean["arch"], mean["method"]) == ("cct", "tent")
        assert (mean["cells"], mean["of"]) == (0 if none else 15, 15)
        assert mean["verdict"] == ("none" if none else "same")  # nothing was compared, so nothing is the same
    assert "Means that moved" not in printed(gained)


def test_unlike_inputs_are_warned_of() -> None:
    other = {"fingerprint": "other", "checkpoint": "other", "n_images": 100, "config": '{"lr": 0.002}'}
    outcome = compare(cells(("tent",)), cells(("tent",), **other))
    assert outcome.warnings == (
        "not the same data: digits-c.",
        "not the same weights: cct on digits-c, resnet18 on digits-c.",
        "not the same number of images: digits-c.",
        "not the same settings: tent: lr 0.001 → 0.002.",
    )
    assert all(warning in printed(outcome) for warning in outcome.warnings)
    assert not outcome.failed


def test_what_one_side_does_not_know_is_not_unlike() -> None:
    unknown = {"fingerprint": "", "checkpoint": "", "n_images": 0, "config": ""}
    known, silent = cells(("tent",)), cells(("tent",), **unknown)
    for sides in ((known, silent), (silent, known), (silent, silent)):
        assert compare(*sides).warnings == ()


def test_another_protocol_matches_nothing_and_is_named() -> None:
    outcome = compare(cells(("tent",)), cells(("tent",), batch_size=64))
    assert outcome.failed
    assert outcome.count("missing") == outcome.count("new") == 30
    assert "not the same protocol: tent: batch_size 200 → 64." in outcome.warnings


def test_other_settings_in_the_names_of_rows_match_nothing_and_are_named() -> None:
    before, after = (
        pd.concat([cells(("tent",)), cells((name,))]) for name in ("tent[lr=0.1]", "tent[lr=0.2]")
    )
    outcome = compare(before, after)
    assert outcome.count("missing") == outcome.count("new") == 30
    assert outcome.warnings == (
        "not the same settings: tent[lr=0.1] in the baseline; tent[lr=0.2] in the candidate.",
    )
    several = pd.concat([after, cells(("tent[lr=0.3]",))])
    assert compare(before, several).warnings == (
        "not the same settings: tent[lr=0.1] in the baseline; tent[lr=0.2], tent[lr=0.3] in the candidate.",
    )
    other = compare(cells(("tent[lr=0.1]",)), cells(("eata[lr=0.1]",)))
    assert not any("settings" in warning for warning in other.warnings)


def test_sides_without_a_common_cell_say_what_keeps_them_apart() -> None:
    before, after = cells(("tent", "sar"), ("cct",)), cells(("tent", "eata"), ("resnet18",), severity=3)
    assert compare(before, after).warnings == (
        "no common cell: arch cct in the baseline; resnet18 in the candidate.",
        "no common cell: severity 5 in the baseline; 3 in the candidate.",
    )
    assert compare(before, pd.concat([after, before.iloc[:1]])).warnings == ()


def test_another_reset_changes_the_history_of_cells_too() -> None:
    continual = cells(("tent",), reset="continual", history="snow")
    assert (
        "not the same protocol: tent: reset per_corruption → continual."
        in compare(cells(("tent",)), continual).warnings
    )


def test_the_latest_of_twins_counts_and_is_said() -> None:
    frame = cells()
    old = cells(checkpoint="old", written=1.0e9, accuracy=lambda row: 1.0)
    outcome = compare(frame, pd.concat([frame, old]))
    assert not outcome.failed
    assert outcome.warnings[0] == (
        "the candidate has 90 cells more than once (other settings, weights, data or compute ratio). "
        "The latest one that both sides have is used; if there is none, the latest one."
    )


def test_each_of_several_weights_is_compared_with_itself() -> None:
    """Not the latest alone: a fall under the others would pass."""
    old, new = (
        cells(("tent",), ("cct",), checkpoint=digest, written=written)
        for digest, written in (("1a2b3c4d5e", 1.0e9), ("9f8e7d6c5b", 2.0e9))
    )
    outcome = compare(pd.concat([old, new]), pd.concat([shifted(old, -20.0), new]))
    assert outcome.failed
    assert (outcome.count("fell"), outcome.count("same")) == (15, 15)
    assert dict(zip(outcome.means["variant"], outcome.means["verdict"], strict=True)) == {
        "weights 1a2b3c4d": "fell", "weights 9f8e7d6c": "same",
    }  # fmt: skip
    assert outcome.warnings == ()
    assert "tent (weights 1a2b3c4d)" in printed(outcome)
    alone = compare(pd.concat([old, new]), pd.concat([old, new]).query("checkpoint != '1a2b3c4d5e'"))
    assert not alone.failed  # of weights that one side has alone, those of both count
    assert "the baseline has 15 cells more than once" in alone.warnings[0]


def test_an_older_number_of_other_weights_hides_no_failure() -> None:
    """A folder that went on with new weights, under which nothing works any more, has lost its numbers."""
    frame = cells(("tent",))
    failed = spoil(cells(("tent",), checkpoint="new", written=3.0e9), "failed", "died")
    outcome = compare(frame, pd.concat([frame, failed]))
    assert outcome.failed
    assert outcome.count("lost") == len(frame)


def test_a_later_failure_with_the_same_settings_hides_no_number() -> None:
    """As at another compute ratio, which is part of a cell's id, but not of what is compared."""
    frame = cells(("tent",))
    failed = spoil(cells(("tent",), written=3.0e9), "failed", "died")
    without_hashes = failed.assign(checkpoint="", fingerprint="")
    for later in (failed, without_hashes):
        assert not compare(frame, pd.concat([frame, later])).failed


def test_of_twins_stored_at_one_time_the_last_row_counts() -> None:
    frame = cells(seeds=(0, 1, 2))
    frame["written"] += np.random.default_rng(0).integers(0, 9, len(frame))
    others = [shifted(frame, points) for points in (-30.0, -20.0, 0.0)]
    assert not compare(frame, pd.concat(others)).failed
    assert compare(frame, pd.concat(others[::-1])).count("fell") == len(frame)


def test_the_cause_names_the_place_where_it_is() -> None:
    before = cells(("tent",), corruptions=("fog", "snow"))
    after = shifted(before, -5.0)
    after.loc[where(after, arch="cct"), "config"] = '{"lr": 0.002}'
    (cause,) = compare(before, after).causes
    assert (cause.key, cause.before, cause.after) == ("config.lr", "0.001", "0.002")
    assert (cause.cells, cause.of, cause.places) == (2, 4, (("tent", "cct", "digits-c"),))


def test_a_csv_file_is_named_by_its_path_and_a_table_by_its_side(tmp_path: Path) -> None:
    frame = cells(("tent",))
    path = write_cells(frame, tmp_path / "cells.csv")
    assert compare(path, frame).names == (str(path), "the candidate")
    assert side(frame).name == "the results"


def test_a_csv_and_a_folder_compare_with_each_other(tmp_path: Path, result: Result, other: Result) -> None:
    store = filled(tmp_path / "results", result, other)
    path = write_cells(store.frame(), tmp_path / "cells.csv")
    for pair in ((tmp_path / "results", path), (path, str(tmp_path / "results"))):
        outcome = compare(*pair, max_drop=0, max_mean_drop=0)
        assert not outcome.failed
        assert outcome.count("same") == 2
        assert outcome.warnings == ()


def test_csv_keeps_na_apart_from_missing_text(tmp_path: Path) -> None:
    frame = spoil(cells(), "n/a", "no batch norm", arch="cct", method="tent")
    back = side(write_cells(frame, tmp_path / "cells.csv")).cells
    assert (back["status"] == "n/a").sum() == 15


def test_what_is_no_table_of_cells_is_refused(tmp_path: Path) -> None:
    good = write_cells(cells(), tmp_path / "good.csv")
    baseline = side(good)

    def refused(name: str, content: bytes, message: str) -> None:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=message):
            compare(baseline, tmp_path / name)

    refused("empty.csv", b"", "cannot be read as CSV")
    refused("binary.csv", bytes(range(256)), "cannot be read as CSV|no column")
    refused("foreign.csv", b"a,b\n1,2\n", "no column method, arch, dataset")
    refused("header.csv", good.read_bytes().splitlines()[0] + b"\n", "no cells")
    lines = good.read_text().replace(",5,0,online", ",five,0,online")
    refused("words.csv", lines.encode(), "severity is 'five'; expected a whole number")
    for column, value, message in (
        ("mode", "onlin", "mode is 'onlin'; expected one of online, offline"),
        ("batch_size", "inf", "batch_size is 'inf'; expected a whole number"),
        ("batch_size", "many", "batch_size is 'many'; expected a whole number"),
        ("limit", "1.5", "limit is '1.5'; expected a whole number"),
        ("seed", "-1", "seed is '-1'; expected a whole number, 0 to"),
        ("n_images", "1e30", "n_images is '1e30'; expected a whole number"),
        ("n_images", "1,000", "n_images is '1,000'; expected a whole number"),
        ("accuracy", "45,3", "accuracy is '45,3'; expected a number, 0 to 100"),
        ("clean_accuracy", "950", "clean_accuracy is '950'; expected a number, 0 to 100"),
        ("written", "1e30", "written is '1e30'; expected a number"),
        ("compute_ratio", "inf", "compute_ratio is 'inf'; expected a number"),
        ("held_out", "half", "held_out is 'half'; expected a number"),
        ("held_out", "2", "held_out is 2.0; expected a share from 0 to below 1"),
        ("order", "dirichlet", "order is 'dirichlet'; expected iid or"),
    ):
        frame = pd.read_csv(good, dtype=str, keep_default_na=False).assign(**{column: value})
        refused("bad.csv", frame.to_csv(index=False).encode(), rf"bad\.csv: {message}")
    with pytest.raises(UserError, match="does not exist"):
        compare(good, tmp_path / "nowhere.csv")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="not a results folder"):
        compare(tmp_path / "folder", good)


@pytest.mark.parametrize("bound", [-1.0, float("nan"), float("inf")])
def test_a_bound_is_a_number_of_points(bound: float) -> None:
    with pytest.raises(UserError, match="--max-drop"):
        compare(cells(), cells(), max_drop=bound)
    with pytest.raises(UserError, match="--max-mean-drop"):
        compare(cells(), cells(), max_mean_drop=bound)


@pytest.mark.parametrize("alpha", [0.0, -0.1, 1.1, float("nan")])
def test_alpha_is_a_level(alpha: float) -> None:
    with pytest.raises(UserError, match="--alpha"):
        compare(cells(), cells(), alpha=alpha)


def test_many_falls_are_counted_not_all_listed() -> None:
    frame = cells(seeds=(0, 1, 2))
    text = printed(compare(frame, shifted(frame, -5.0, method="tent")), width=100)
    assert "and 70 more" in text
    assert "FAILED: 180 the same, 90 fell" in text
    assert max(map(len, text.splitlines())) <= 100


def test_stale_cells_of_either_side_are_named_with_what_changed(
    tmp_path: Path, result: Result, other: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (Store.create(tmp_path / name, {"methods": ["tent"]}) for name in ("old", "new"))
    for store in (old, new):
        with monkeypatch.context() as patch:
            if store is old:
                other_code.changed(patch)
            fill(store, result, other)
    outcome = compare(old.root, new.root)
    text = f"2 cells of tent in the baseline: {other_code.CHANGED} changed."
    assert outcome.stale == (text,)
    assert text in printed(outcome)
    assert json.loads(as_json(outcome))["stale"] == [text]
    assert [line.rpartition("::")[2] for line in github(outcome)][:-1] == [text]
    write_cells(load_cells([old.root]), tmp_path / "cells.csv")
    assert compare(tmp_path / "cells.csv", new.root).stale == (text,)
    assert compare(new.root, new.root).stale == ()


def test_attested_cells_are_said_once() -> None:
    frame = cells(seeds=(0, 1))
    attested = frame.assign(attested=frame.index == 0)
    outcome = compare(attested, frame)
    said = "1 cell is attested: the code changed since"
    assert outcome.attested.startswith(said)
    assert json.loads(as_json(outcome))["attested"] == outcome.attested
    for show in (render, side_by_side):
        assert printed(outcome, shown=show).count(said) == 1
        assert "attested" not in printed(compare(frame, frame), shown=show)


def test_a_record_of_another_cell_is_refused(tmp_path: Path, result: Result, other: Result) -> None:
    store = Store.create(tmp_path / "results", {"methods": ["tent"]})
    shard = fill(store, result)
    *head, line = shard.read_bytes().splitlines(keepends=True)
    data = {**decode(line.rstrip()), "cell": other.cell.to_json()}
    shard.write_bytes(b"".join([*head, encode({k: v for k, v in data.items() if k != "sum"})]))
    with pytest.raises(UserError, match=r"line 4, .* its id is not that of its cell"):
        compare(store.root, store.root)


# ---- nothing to compare, and what the data could show


@pytest.mark.parametrize("status", [("failed", "failed"), ("n/a", "n/a"), ("failed", "n/a"), ("failed", "")])
def test_a_gate_with_nothing_to_compare_does_not_pass(status: tuple[str, str]) -> None:
    """Also where the candidate alone has numbers."""
    frame = cells(("tent",))
    sides = [spoil(frame, one, "died") if one else frame for one in status]
    with pytest.raises(UserError, match="no cell has a number on both sides") as raised:
        compare(*sides)
    in_cells = f"in {len(frame)} cells"
    last = f"{0 if status[1] else len(frame)} numbers {in_cells}"
    assert f"baseline has 0 numbers {in_cells}, the candidate has {last}; there is" in str(raised.value)


def test_one_number_on_both_sides_is_something_to_compare_and_lost_ones_still_fail() -> None:
    frame = cells(("tent",))
    most = spoil(frame, "failed", "died", corruption="fog")
    assert not compare(most, most).failed
    assert compare(frame, spoil(frame, "failed", "died")).failed


@pytest.mark.parametrize("other", [{"checkpoint": "new"}, {"config": '{"lr": 1.0}'}, {"fingerprint": "new"}])
def test_a_twin_like_the_baseline_is_compared_before_a_later_one_of_other_kind(other: dict[str, str]) -> None:
    frame = cells(("tent",), corruptions=("fog", "snow"), accuracy=lambda row: 75.0)
    later = shifted(frame.assign(**other, written=frame["written"] + 1e6), 10.0)
    fallen = shifted(frame, -10.0)
    assert compare(frame, pd.concat([fallen, later])).failed  # and not hidden by the later rise
    outcome = compare(pd.concat([frame, later]), fallen)  # the same on the side of the baseline
    assert set(outcome.cells["accuracy_before"]) == {75.0}
    assert not compare(frame, later).failed  # without such a twin, the later one counts


@pytest.mark.parametrize(
    ("changed", "n_images", "level", "fall"),
    [(60, 600, 0.025, 18 / 6), (0, 600, 0.025, 1.0), (6, 600, 1 / 64, 1.0), (1000, 10_000, 0.05, 0.54)],
)
def test_the_smallest_fall_is_where_the_test_begins_to_confirm(
    changed: int, n_images: int, level: float, fall: float
) -> None:
    found = smallest_fall(changed, n_images, level)
    assert found == pytest.approx(fall, abs=1e-9)
    total = max(changed, round(found * n_images / 100))
    lost = (total + round(found * n_images / 100)) // 2
    assert mcnemar(np.array([lost]), np.array([total - lost]), alternative="less")[0] <= level
    assert mcnemar(np.array([lost - 1]), np.array([total - lost + 1]), alternative="less")[0] > level


def test_the_typical_smallest_fall_is_at_the_level_of_one_of_the_tests() -> None:
    changed, n_images = np.array([20, 60, 200]), np.full(3, 600)
    assert typical_smallest_fall(changed, n_images, 0.05, 0) == smallest_fall(60, 600, 0.05)
    assert typical_smallest_fall(changed, n_images, 0.05, 3) == smallest_fall(60, 600, 0.05 / 3)
    assert smallest_fall(60, 600, 0.05 / 3) > smallest_fall(60, 600, 0.05)


def test_the_smallest_fall_that_could_be_shown_is_said() -> None:
    outcome = replace(compare(cells(), cells()), smallest_fall=3.0)
    found = "With these images, the test cannot find a fall of less than 3.00 points in a typical cell."
    assert found in printed(outcome)
    assert "the test cannot find" not in printed(compare(cells(), cells()))  # without images there is no test
    assert json.loads(as_json(outcome))["smallest_fall"] == 3.0
