"""What may have moved a number: the difference of two protocol cards; and the outputs for machines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.unit.conftest import Run
from tests.unit.made_cells import cells, spoil, where
from tests.unit.reports.compare.test_one_sided_tests import draw
from tests.unit.stored_results import folder, losing
from ttabench.cell import Cell
from ttabench.cell.protocol import Protocol
from ttabench.registry import view
from ttabench.store import load_frame
from ttabench.store.read_results import name_key
from ttabench.store.record_values import BINS, OF_BINS
from ttabench.system.checked_lines import encode
from ttabench_reports.compare import as_json, compare, diff, github, junit
from ttabench_reports.compare.card_differences import differences
from ttabench_reports.compare.sides import side


def without_sum(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "sum"}


def edited(path: Path, change: Callable[[dict[str, Any]], None], kind: str = "result") -> Path:
    """The folder with every record of some kinds changed; the definitions of a new `source` are unknown."""
    for shard in (path / "cells").glob("*.jsonl"):
        records: list[dict[str, Any]] = []
        code: dict[str, Any] = {}
        for record in map(json.loads, shard.read_text().splitlines()):
            if record["kind"] in kind.split():
                change(record)
            if record["kind"] == "code":
                code = record
            if record["kind"] == "result":
                record["id"] = Cell.from_json(record["cell"]).cell_id
                if record["source"] != code["source"]:
                    code = {**code, "source": record["source"], "definitions": []}
                    records.append(code)
            records.append(record)
        shard.write_bytes(b"".join(map(encode, map(without_sum, records))))
    return path


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders: the second lost 30 of 600 images in fog."""
    right = draw()
    worse = right | {("fog", 0): losing(right["fog", 0], 30, np.random.default_rng(0))}
    return folder(tmp_path / "before", right), folder(tmp_path / "after", worse)


def keys(result: Any) -> dict[str, tuple[str, str]]:
    return {one.key: (one.before, one.after) for one in result}


def test_equal_cards_do_not_differ(runs: tuple[Path, Path]) -> None:
    result = diff(*runs)
    assert (result.differences, result.matched, result.differs) == ((), 5, False)
    assert compare(*runs).causes == ()


def test_csv_files_differ_in_every_column_that_says_how_a_cell_was_measured(tmp_path: Path) -> None:
    made = {
        "code": "a" * 64, "device": "cpu", "processor": "A", "threads": 1,
        "versions": "python 3.11.2 torch 2.6.0+cpu",
    }  # fmt: skip
    frame = cells(("tent",), ("cct",), corruptions=("fog",), accuracy=lambda row: 75.0).assign(**made)
    other = frame.assign(
        code="b" * 64, device="cuda", processor="B", threads=2, versions="python 3.11.2 torch 2.7.0+cpu"
    )
    for name, table in (("before", frame), ("after", other.assign(accuracy=70.0))):
        table.drop(columns="cell_id").to_csv(tmp_path / f"{name}.csv", index=False)
    before, after = (side(tmp_path / f"{name}.csv") for name in ("before", "after"))
    assert keys(diff(before, after).differences) == {
        "source": ("a" * 64, "b" * 64), "device": ("cpu", "cuda"), "processor": ("A", "B"),
        "threads": ("1", "2"), "versions.torch": ("2.6.0+cpu", "2.7.0+cpu"),
    }  # fmt: skip
    assert len(compare(before, after).causes) == 5
    assert diff(before, frame).differences == ()


def test_versions_that_are_no_pairs_are_compared_as_text() -> None:
    frame = cells(("tent",), ("cct",), corruptions=("fog",)).assign(versions="torch 2.6.0 by hand")
    (difference,) = diff(frame.assign(versions="by hand, torch 2.6.0, patched"), frame).differences
    assert (difference.key, difference.before) == ("versions", "by hand, torch 2.6.0, patched")
    assert '"torch": "2.6.0"' in difference.after


def test_the_words_for_no_difference_name_only_what_both_sides_hold() -> None:
    frame = cells(("tent",), ("cct",), corruptions=("fog",), accuracy=lambda row: 75.0)
    worse = frame.assign(accuracy=70.0)
    assert compare(frame, worse).recorded == ("settings", "data", "weights")
    assert "source of the method" in compare(frame.assign(code="a"), worse.assign(code="a")).recorded
    assert "source of the method" not in compare(frame.assign(code="a"), worse).recorded


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("calibration", dict.fromkeys(OF_BINS, [1.5] * BINS)), ("windows", {"length": 1, "accuracy": [1.5]}),
        ("unlabelled", {"one": 1.5}), ("cost", {"one": 1.5}), ("quantile_loss", [1.5]), ("of_mine", 1.5),
    ],
)  # fmt: skip
def test_what_was_measured_beside_the_accuracy_is_no_cause(
    runs: tuple[Path, Path], name: str, value: dict[str, Any]
) -> None:
    before, after = runs

    def measure(record: dict[str, Any]) -> None:
        record["details"][name] = value

    assert diff(before, edited(after, measure)).differences == ()


def test_of_a_cell_without_a_number_only_that_and_what_both_know_is_a_cause(runs: tuple[Path, Path]) -> None:
    before, after = runs

    def fails(record: dict[str, Any]) -> None:
        for name in ("correct", "accuracy", "clean_accuracy"):
            del record[name]
        record |= {
            "status": "failed", "reason": "out of\nmemory", "n_images": 0,
            "details": {"traceback": "Traceback …"},
        }  # fmt: skip
        record["cell"]["checkpoint"] = "d" * 64

    found = {"status": ("ok", "failed: out of memory"), "checkpoint": ("c" * 64, "d" * 64)}
    assert keys(diff(before, edited(after, fails)).differences) == found
    frame = load_frame(before)
    lost = spoil(frame, "failed", "out of\nmemory").assign(n_images=0, adapted="")
    assert keys(diff(frame, lost).differences) == {"status": ("ok", "failed: out of memory")}
    part = spoil(frame, "failed", "out of\nmemory", corruption="fog")
    assert compare(frame, part).causes == ()  # it stands beside the cell


def test_what_a_shard_says_of_its_environment_is_part_of_the_card(runs: tuple[Path, Path]) -> None:
    before, after = runs

    def newer(record: dict[str, Any]) -> None:
        record["versions"]["torch"] = "99.0"
        record["machine"] = "Linux aarch64"

    edited(after, newer, "environment")
    causes = keys(compare(before, after).causes)
    assert causes["versions.torch"][1] == "99.0"
    assert set(causes) == {"versions.torch", "machine"}


def test_source_settings_and_keys_of_later_versions(runs: tuple[Path, Path]) -> None:
    before, after = runs

    def later(record: dict[str, Any]) -> None:
        record["source"] = "a" * 64
        record["cell"]["config"]["lr"] = 0.002
        record["temperature"] = 4
        record["drivers"] = {"cudnn": {"version": "9"}}

    edited(after, later)
    result = keys(diff(before, after).differences)
    assert result["source"][1] == "a" * 64
    assert result["config.lr"] == ("0.001", "0.002")
    assert result["temperature"] == ("not recorded", "4")
    assert result["drivers.cudnn.version"] == ("not recorded", "9")
    assert len(result) == 4


def test_the_code_of_both_is_a_difference_where_neither_is_installed(runs: tuple[Path, Path]) -> None:
    for path, source in zip(runs, "ab", strict=True):
        edited(path, lambda record, source=source: record.update(source=source * 64))
    assert keys(diff(*runs).differences) == {"source": ("a" * 64, "b" * 64)}


def test_that_images_are_files_is_no_difference(runs: tuple[Path, Path]) -> None:
    """The data say it, and earlier versions did not store it."""

    def newer(record: dict[str, Any]) -> None:
        record["cell"]["image_files"] = True

    edited(runs[1], newer)
    assert diff(*runs).differences == ()


def test_the_definitions_that_changed_are_named(runs: tuple[Path, Path]) -> None:
    before, after = runs
    name = "ttabench/measure/scoring.py: evaluate"
    keys: list[str] = []

    def named(record: dict[str, Any]) -> None:
        for pair in record["names"]:
            if pair[1] == name:
                keys.append(name_key(*pair))
                pair[0] = "0" * 16

    def newer(record: dict[str, Any]) -> None:
        record["source"] = "f" * 64
        if record["kind"] == "code":
            others = [key for key in record["definitions"] if key not in keys]
            record["definitions"] = [*others, name_key("0" * 16, name)]

    edited(after, named, "definitions")
    edited(after, newer, "code result")
    (result,) = diff(before, after).differences
    assert (result.key, result.after) == (f"code.{name}", "0" * 16)
    assert f"{name}: " in str(result)


def test_another_protocol_is_a_difference_not_other_cells(runs: tuple[Path, Path], tmp_path: Path) -> None:
    other = folder(tmp_path / "other", draw(), protocol=Protocol(batch_size=64))
    result = diff(runs[0], other)
    assert keys(result.differences) == {"protocol.batch_size": ("200", "64")}
    assert (result.matched, result.only_first, result.only_second) == (5, 0, 0)


def test_a_csv_is_compared_by_what_it_holds(runs: tuple[Path, Path], tmp_path: Path) -> None:
    csv = view("cells")(load_frame(runs[0]), tmp_path / "cells.csv")
    assert diff(runs[0], csv).differences == ()
    other = folder(tmp_path / "other", draw(), checkpoint="d" * 64)
    assert keys(diff(csv, other).differences) == {"checkpoint": ("c" * 64, "d" * 64)}


def test_an_alarm_in_a_table_is_an_outcome_and_no_cause(runs: tuple[Path, Path]) -> None:
    frame = load_frame(runs[0])
    before, after = (frame.assign(alarm=alarm, adapted="2 BatchNorm2d") for alarm in ("collapse", "slow"))
    assert diff(before, after).differences == ()
    assert keys(diff(before, after.assign(adapted="none")).differences) == {
        "adapted": ("2 BatchNorm2d", "none")
    }


def test_cells_of_one_side_are_counted(tmp_path: Path) -> None:
    right = draw()
    fewer = {key: bits for key, bits in right.items() if key[0] != "fog"}
    result = diff(folder(tmp_path / "a", right), folder(tmp_path / "b", fewer))
    assert (result.matched, result.only_first, result.only_second) == (4, 1, 0)
    assert result.differs


def test_code_is_no_cause_where_both_sides_are_fresh_or_attested() -> None:
    where = ("tent", "cct", "d")
    code = {"ttabench/nn/updates.py: minimise": "1"}
    old = {"source": "a", "code": code, "processor": "AVX2", "installed": True}
    new = {"source": "b", "code": {}, "processor": "AVX512", "installed": True}
    assert [one.key for one in differences([(where, old, new)])] == ["processor"]
    stale = {key: value for key, value in old.items() if key != "installed"}
    found = [
        one.key for one in differences([(where, stale, new), (where, stale, new | {"processor": "AVX2"})])
    ]
    assert found == ["processor", "code.ttabench/nn/updates.py: minimise"]  # what else differs comes first


def test_a_difference_says_where_it_is_unless_it_is_everywhere() -> None:
    pairs = [
        (("tent", "cct", "d"), {"source": "a", "x": 1}, {"source": "b", "x": 2}),
        (("sar", "cct", "d"), {"source": "a", "x": 1}, {"source": "a", "x": 2}),
    ]
    first, second = differences(pairs)
    assert (first.key, first.cells, first.places) == ("x", 2, ())
    assert (second.key, second.cells, second.of) == ("source", 1, 2)
    assert str(second) == "source of the method: a → b (tent; cct; d)"


def test_only_the_cells_that_moved_are_asked_for_causes(runs: tuple[Path, Path]) -> None:
    def newer(record: dict[str, Any]) -> None:
        if record["cell"]["corruption"] == "snow":
            record["source"] = "b" * 64

    edited(runs[1], newer)
    assert compare(*runs).causes == ()  # snow did not move
    assert len(diff(*runs).differences) == 1


# ---- for machines


def broken() -> Any:
    frame = cells(("tent", "sar"), ("cct",), accuracy=lambda row: 75.0)
    worse = frame.copy()
    worse.loc[where(worse, method="tent"), "accuracy"] -= 2.0
    worse = spoil(worse, "failed", "50 %:\nNaN, <b>", method="sar", corruption="fog")
    return compare(frame, worse[~where(worse, method="sar", corruption="snow")])


def test_json_says_all_of_it() -> None:
    result = json.loads(as_json(broken()), parse_constant=lambda word: pytest.fail(word))
    assert result["failed"] is True
    assert result["counts"] == {
        "same": 13, "moved": 0, "chance": 0, "fell": 15, "lost": 1, "gained": 0, "neither": 0, "missing": 1,
        "new": 0,
    }  # fmt: skip
    assert len(result["cells"]) == 17
    assert {row["verdict"] for row in result["means"]} == {"fell", "same"}
    assert result["bounds"] == {"max_drop": 1.0, "max_mean_drop": 0.3, "alpha": 0.05, "subset": False}


def test_annotations_are_one_line_each_and_escaped() -> None:
    lines = list(github(broken()))
    assert all("\n" not in line for line in lines)
    errors = [line for line in lines if line.startswith("::error title=")]
    assert len(errors) == 10  # GitHub shows no more
    assert errors[0].startswith("::error title=Mean accuracy fell::tent · cct")
    (lost,) = (line for line in errors if "lost" in line)
    assert "failed (50 %25:%0ANaN, <b>)" in lost
    assert lines[-1].startswith("::notice title=Accuracy gate failed::13 the same, 15 fell")


def test_annotations_of_a_pass_have_no_error() -> None:
    (line,) = github(compare(cells(), cells()))
    assert line.startswith("::notice title=Accuracy gate ok::90 the same")


def test_junit_is_xml_with_a_case_per_mean() -> None:
    root = ElementTree.fromstring(junit(broken()))
    (suite,) = root
    assert suite.attrib == {"name": "cct on digits-c", "tests": "4", "failures": "3"}
    failed = {case.get("name"): case[0] for case in suite if len(case)}
    assert set(failed) == {"tent, severity 5: mean", "tent, severity 5: cells", "sar, severity 5: cells"}
    assert "<b>" in str(failed["sar, severity 5: cells"].text)
    assert failed["tent, severity 5: cells"].get("message") == "15 cells failed"


def test_junit_has_the_warnings_of_cases_that_pass() -> None:
    before, after = cells(("tent",)), cells(("tent",), checkpoint="d" * 64, stale=True)
    suites = [*ElementTree.fromstring(junit(compare(before, after)))]
    assert [suite.get("failures") for suite in suites] == ["0", "0"]
    for suite in suites:
        said = str(suite.findtext("system-out"))
        assert "not the same weights: cct on digits-c, resnet18 on digits-c." in said
        assert "30 cells of tent in the candidate" in said


def test_junit_leaves_out_what_xml_cannot_hold() -> None:
    frame = cells(("tent",), ("cct",))
    outcome = compare(frame, spoil(frame, "failed", "a\x1b[31m\x00b\x0c", corruption="fog"))
    text = ElementTree.fromstring(junit(outcome)).findtext(".//failure")
    assert text is not None
    assert "a[31mb" in text


# ---- the command


def test_without_a_gate_results_stand_side_by_side(
    ttabench: Run, runs: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = ttabench("compare", *runs)
    assert output.code == 0
    assert "FAILED" not in output.out
    assert re.search(r"tent .*\d\d\.\d\d .*\d\d\.\d\d .*-\d\.\d\d", output.out)
    assert "5 cells in both, 4 of them with the same accuracy" in output.out
    assert json.loads(ttabench("compare", *runs, "--json").out)["failed"]
    for value, code in {"true": 1, "True": 1, "1": 1, "woodpecker": 1, "false": 0, "0": 0, "": 0}.items():
        monkeypatch.setenv("CI", value)
        assert ttabench("compare", *runs).code == code, value
    assert ttabench("compare", *runs, "--gate").code == 1
    assert ttabench("compare", *runs, "--max-drop", 1).code == 1  # an option that only a gate has


def test_a_candidate_that_is_a_part_fails_no_gate_that_lets_it(ttabench: Run, tmp_path: Path) -> None:
    whole = draw()
    part = dict(list(whole.items())[:3])
    runs = folder(tmp_path / "whole", whole), folder(tmp_path / "part", part)
    shown = ttabench("compare", *runs)
    assert shown.code == 0
    assert f"3 cells in both, 3 of them with the same accuracy; {len(whole) - 3} only in" in shown.out
    failed = ttabench("compare", "--gate", *runs)
    assert failed.code == 1
    hint = "--subset lets the candidate be a part"
    assert hint in failed.out
    mixed = folder(tmp_path / "mixed", part)
    folder(mixed, dict(list(whole.items())[3:]), label="tent[lr=0.2]")  # what is missing is there as another
    assert hint not in ttabench("compare", "--gate", runs[0], mixed).out
    assert ttabench("compare", "--subset", *runs).code == 0
    outcome = compare(*runs, subset=True)
    assert not outcome.failed
    assert not any(line.startswith("::error") for line in github(outcome))
    assert "<failure" not in junit(outcome)
    frame = cells()
    assert compare(frame, frame.assign(seed=9), subset=True).failed  # nothing is in both


def test_the_commands(ttabench: Run, runs: tuple[Path, Path], tmp_path: Path) -> None:
    output = ttabench("compare", *runs, "--github", "--junit", tmp_path / "new" / "gate.xml")
    assert output.code == 1
    assert "FAILED: 4 the same, 1 fell" in output.out
    assert "Nothing that is recorded differs" in output.out
    assert "::error title=Accuracy fell::tent" in output.out
    assert ElementTree.parse(tmp_path / "new" / "gate.xml").getroot().tag == "testsuites"
    assert ttabench("compare", *runs, "--max-drop", 6, "--max-mean-drop", 2).code == 0
    assert ttabench("compare", runs[0], runs[0]).code == 0
    assert ttabench("compare", *runs, "--json", "--github").code == 2
    assert ttabench("compare", *runs, "--alpha", 2).code == 2
    below_a_file = ttabench("compare", *runs, "--junit", tmp_path / "new" / "gate.xml" / "below.xml")
    assert (below_a_file.code, "cannot be written" in below_a_file.err) == (2, True)


def test_diff_as_a_command(ttabench: Run, runs: tuple[Path, Path], tmp_path: Path) -> None:
    assert ttabench("diff", *runs).out.strip() == "5 cells in both; nothing recorded differs."
    other = folder(tmp_path / "other", draw(), checkpoint="d" * 64)
    output = ttabench("diff", runs[0], other)
    assert output.code == 1
    assert "weights: cccccccc → dddddddd" in output.out
    assert json.loads(ttabench("diff", runs[0], other, "--json").out)["matched"] == 5
    assert ttabench("diff", runs[0], tmp_path / "nowhere").code == 2
