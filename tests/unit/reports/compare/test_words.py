"""What a comparison says, word by word: for people, for GitHub, as JSON and as JUnit's XML."""

from __future__ import annotations

import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text
from scipy import stats

from tests.cases import each
from tests.unit.made_cells import cells, continual, spoil, where
from tests.unit.stored_results import CELL, fill, folder, measured
from ttabench.cell import Result
from ttabench.cell.protocol import Protocol
from ttabench.errors import UserError
from ttabench.store import Store
from ttabench.system.checked_lines import encode
from ttabench_reports.cells.frames import PROTOCOL, checked
from ttabench_reports.compare import (
    Bounds,
    as_json,
    compare,
    diff,
    diff_json,
    github,
    junit,
    machine,
    render,
    render_diff,
)
from ttabench_reports.compare.card_differences import ABSENT, Difference, differences
from ttabench_reports.compare.comparison import Comparison
from ttabench_reports.compare.diff import Diff
from ttabench_reports.compare.matching import KEY, in_other_protocols, match
from ttabench_reports.compare.one_sided_tests import cells_fell, mean_fell
from ttabench_reports.compare.sides import side
from ttabench_reports.compare.terminal import describe, describe_mean, first_lines, nothing, p_text


def text(content: RenderableType) -> list[str]:
    """The lines that a wide terminal shows, without spaces at their ends and without empty lines."""
    console = Console(width=200, file=io.StringIO())
    with console.capture() as capture:
        console.print(content)
    return [line.rstrip() for line in capture.get().splitlines() if line.strip()]


def words(line: str) -> list[str]:
    return line.split()


FELL = "tent · cct · digits-c · fog-5 · seed 0: 75.00 → 70.00 (-5.00)"
LOST = "tent · cct · digits-c · frost-5 · seed 0: 75.00 → failed (NaN)"
GONE = "sar · cct · digits-c · fog-5 · seed 0"
MEAN = "tent · cct · digits-c, severity 5, mean of 2 of 3 cells: 75.00 → 72.75 (-2.25)"
COUNTS = (
    "1 the same, 1 rose or fell within the bound, 1 fell, 1 lost their number, 1 gained a number, "
    "1 missing, 1 new; 1 of 2 means fell"
)


def with_everything() -> Comparison:
    """Of each verdict at least one cell: 75 before, and another number, none, or no cell after."""
    frame = cells(("tent", "sar"), ("cct",), corruptions=("fog", "snow", "frost"), accuracy=lambda row: 75.0)
    before = spoil(frame, "n/a", "no norm", method="sar", corruption="frost")
    after = frame.copy()
    after.loc[where(after, method="tent", corruption="fog"), "accuracy"] = 70.0
    after.loc[where(after, method="tent", corruption="snow"), "accuracy"] = 75.5
    after = spoil(after, "failed", "NaN", method="tent", corruption="frost")
    after = after[~where(after, method="sar", corruption="fog")]
    new = cells(("eata",), ("cct",), corruptions=("fog",), accuracy=lambda row: 60.0)
    return compare(before, pd.concat([after, new]))


# ---- for people


def test_everything_that_a_terminal_shows() -> None:
    shown = text(render(with_everything()))
    assert shown[0] == "Means that moved"
    assert words(shown[1]) == [
        "method",
        "arch",
        "dataset",
        "cells",
        "before",
        "after",
        "change",
        "p",
        "(fall)",
    ]
    assert words(shown[3]) == [
        "tent", "cct", "digits-c,", "severity", "5", "2", "of", "3", "75.00", "72.75", "-2.25", "–",
    ]  # fmt: skip
    assert shown[4] == "Cells that fell by more than 1 point"
    assert words(shown[5]) == [
        "method",
        "arch",
        "dataset",
        "corruption",
        "before",
        "after",
        "change",
        "p",
        "(fall)",
    ]
    assert words(shown[7]) == [
        "tent", "cct", "digits-c,", "severity", "5", "fog,", "seed", "0", "75.00", "70.00", "-5.00", "–",
    ]  # fmt: skip
    assert shown[8] == "Cells that rose or fell within the bound"
    assert words(shown[11])[5:] == ["snow,", "seed", "0", "75.00", "75.50", "+0.50", "–"]
    assert shown[12:17] == [
        "Cells that lost their number: 1", f"  {LOST}", "Missing cells: 1", f"  {GONE}",
        "What may have changed them",
    ]  # fmt: skip
    assert shown[17:] == [
        f"  {nothing(('settings', 'data', 'weights'))}",
        f"FAILED: {COUNTS} (bounds: 1 point for a cell, 0.3 for a mean; α = 0.05).",
    ]


def test_how_it_looks() -> None:
    """Falls and headings are bold, warnings yellow; numbers stand right and never wrap, names fold."""
    parts = render(replace(with_everything(), warnings=("careful",))).renderables  # type: ignore[union-attr]
    tables = [part for part in parts if isinstance(part, Table)]
    assert [table.title for table in tables] == [
        "Means that moved", "Cells that fell by more than 1 point", "Cells that rose or fell within the bound"
    ]  # fmt: skip
    for table in tables:
        assert (table.title_justify, table.box, table.padding) == ("left", box.SIMPLE_HEAD, (0, 0, 0, 0))
        assert not table.pad_edge
        assert {(column.overflow, column.justify) for column in table.columns[:4]} == {("fold", "left")}
        assert {(column.justify, column.no_wrap) for column in table.columns[4:]} == {("right", True)}
    assert [[row.style for row in table.rows] for table in tables] == [["bold"], ["bold"], [""]]
    texts = [part for part in parts if isinstance(part, Text)]
    bold = [str(part) for part in texts if part.style == "bold"]
    assert bold == ["Cells that lost their number: 1", "Missing cells: 1", "What may have changed them"]
    assert [str(part) for part in texts if part.style == "yellow"] == ["warning: careful"]
    assert [str(span.style) for span in texts[-1].spans] == ["bold red"]
    (passed,) = render(compare(cells(), cells())).renderables  # type: ignore[union-attr]
    assert [str(span.style) for span in passed.spans] == ["bold green"]


def test_where_no_cell_is_in_both_the_next_step_is_named() -> None:
    one = cells()
    shown = text(render(compare(one, one.assign(seed=one["seed"] + 1))))
    assert shown[-2].startswith("FAILED: 90 missing, 90 new")
    assert (
        shown[-1] == "No cell is in both: run the sweep of the candidate with the options of the baseline's."
    )


def test_where_nothing_moved_the_verdict_stands_alone() -> None:
    assert text(render(compare(cells(), cells(), max_drop=2.5, max_mean_drop=0.25, alpha=1))) == [
        "ok: 90 the same (bounds: 2.5 points for a cell, 0.25 for a mean; α = 1)."
    ]


def test_warnings_and_causes_are_a_line_each() -> None:
    frame = cells(("tent",), ("cct",), accuracy=lambda row: 75.0)
    other = cells(("tent",), ("cct",), accuracy=lambda row: 74.9, checkpoint="other")
    shown = text(render(compare(frame, other)))
    assert shown[0] == "warning: not the same weights: cct on digits-c."
    assert shown[-3:-1] == ["What may have changed them", "  weights: weights-of-cct → other"]


def test_a_long_list_is_cut_with_the_number_of_the_rest() -> None:
    frame = cells(("tent",), ("cct",), accuracy=lambda row: 75.0)
    removed = frame[~frame["corruption"].isin(("fog", "snow", "frost"))]
    shown = text(render(compare(frame, removed), limit=2))
    at = shown.index("Missing cells: 3")
    assert shown[at + 3] == "  … and 1 more"
    assert not [line for line in text(render(compare(frame, removed), limit=3)) if "more" in line]
    fallen = frame.assign(accuracy=70.0)
    shown = [line.strip() for line in text(render(compare(frame, fallen), limit=4))]
    assert "… and 11 more" in shown
    assert sum(line.startswith("tent") for line in shown) == 4 + 1  # and the mean


def test_stale_results_are_listed_under_a_heading_of_their_own() -> None:
    stale = ("tent: a.py changed (3 cells)", "sar: b.py changed (1 cell)", "eata: c.py is gone (2 cells)")
    outcome = replace(compare(cells(), cells()), stale=stale, warnings=("careful",))
    heading = "Stale, made with other code than is installed"
    assert text(render(outcome))[:5] == ["warning: careful", heading, *(f"  {line}" for line in stale)]
    assert text(render(outcome, limit=3))[5].startswith("ok: ")
    assert text(render(outcome, limit=1))[1:4] == [heading, f"  {stale[0]}", "  … and 2 more"]
    parts = render(outcome).renderables  # type: ignore[union-attr]
    assert [part.style for part in parts if str(part) == heading] == ["bold"]


def test_stale_results_are_listed_by_method() -> None:
    stale = {("tent", "b.py changed"): 1, ("sar", "a.py changed"): 2}
    outcome = compare(cells(), replace(side(cells()), stale=stale))
    assert outcome.stale == (
        "2 cells of sar in the candidate: a.py changed.",
        "1 cell of tent in the candidate: b.py changed.",
    )


def test_falls_by_chance_have_a_heading_of_their_own() -> None:
    outcome = with_everything()
    chance = outcome.cells.assign(verdict=outcome.cells["verdict"].replace("fell", "chance"))
    shown = text(render(replace(outcome, cells=chance)))
    at = shown.index("Cells that fell by more than 1 point, but no more than by chance")
    assert words(shown[at + 3])[5] == "fog,"
    assert "Cells that fell by more than 1 point" not in shown
    wider = replace(outcome, cells=chance, bounds=replace(outcome.bounds, max_drop=2.5))
    assert "Cells that fell by more than 2.5 points, but no more than by chance" in text(render(wider))


def test_a_table_that_is_whole_has_no_rest() -> None:
    frame = cells(("tent",), ("cct",), corruptions=("fog", "snow", "frost"), accuracy=lambda row: 75.0)
    fallen = compare(frame, frame.assign(accuracy=70.0))
    assert "more" not in " ".join(text(render(fallen, limit=3))).replace("by more than", "")
    assert any(line.strip() == "… and 1 more" for line in text(render(fallen, limit=2)))


def test_the_largest_fall_comes_first() -> None:
    frame = cells(("tent",), ("cct",), corruptions=("fog", "snow", "frost"), accuracy=lambda row: 75.0)
    after = frame.assign(accuracy=[72.0, 60.0, 71.0])
    rows = [words(line)[5] for line in text(render(compare(frame, after))) if words(line)[0] == "tent"]
    assert rows[1:] == ["snow,", "frost,", "fog,"]  # after the mean
    errors = [line for line in github(compare(frame, after)) if "::error title=Accuracy" in line]
    assert [line.split(" · ")[3] for line in errors] == ["snow-5", "frost-5", "fog-5"]


def cell(**changed: Any) -> Any:
    return row_of(
        method="tent", arch="cct", dataset="d", corruption="fog", severity=5, seed=1, verdict="fell",
        accuracy_before=75.123, accuracy_after=70.0, change=-5.123, variant="", **changed,
    )  # fmt: skip


def row_of(**values: Any) -> Any:
    return next(pd.DataFrame([values]).itertuples())


def test_a_cell_in_words() -> None:
    assert describe(cell()) == "tent · cct · d · fog-5 · seed 1: 75.12 → 70.00 (-5.12)"


def test_a_shift_without_severities_has_none_in_words() -> None:
    assert " · v2 · seed 1: " in describe(cell()._replace(corruption="v2", severity=0))


def test_what_moved_a_cell_is_asked_where_one_moved() -> None:
    outcome = with_everything()
    cell = outcome.cells[outcome.cells["verdict"] == "fell"].assign(reason_after="", status_after="failed")
    for verdict, asked in {"moved": 1, "chance": 1, "fell": 1, "lost": 1, "new": 0}.items():
        shown = text(render(replace(outcome, cells=cell.assign(verdict=verdict))))
        assert shown.count("What may have changed them") == asked, verdict


def test_a_mean_in_words() -> None:
    mean = {"method": "tent", "arch": "cct", "dataset": "d", "severity": 5, "cells": 14, "of": 15,
            "before": 75.0, "after": 74.5, "change": -0.5, "variant": ""}  # fmt: skip
    assert describe_mean(row_of(**mean)) == (
        "tent · cct · d, severity 5, mean of 14 of 15 cells: 75.00 → 74.50 (-0.50)"
    )


@each(
    ("p", "shown"),
    [(math.nan, "–"), (0.0, "<0.001"), (0.00099, "<0.001"), (0.001, "0.001"), (0.0312, "0.031"), (1.0, "1")],
)
def test_p_values_have_two_digits(p: float, shown: str) -> None:
    assert p_text(p) == shown


def test_differences_are_cut_with_the_number_of_the_rest() -> None:
    causes = [Difference(str(number), "a", "b", 1, 1) for number in range(3)]
    assert [str(line) for line in first_lines(causes, 3, 2)] == ["  0: a → b", "  1: a → b", "  … and 1 more"]
    assert [str(line) for line in first_lines(causes, 3, 3)][-1] == "  2: a → b"


# ---- for machines


def test_every_line_for_github() -> None:
    outcome = replace(with_everything(), warnings=("50 %, a: b",), causes=(Difference("x", "1", "2", 1, 1),))
    assert list(github(outcome)) == [
        f"::error title=Mean accuracy fell::{MEAN}",
        f"::error title=A cell is missing::{GONE}",
        f"::error title=A cell lost its number::{LOST}",
        f"::error title=Accuracy fell::{FELL}",
        "::warning title=Accuracy%3A compared with care::50 %25, a: b",
        f"::notice title=Accuracy gate failed::{COUNTS}. What differs: x: 1 → 2.",
    ]


def test_github_gets_ten_of_each_kind() -> None:
    frame = cells(("tent",), ("cct",), accuracy=lambda row: 75.0)
    outcome = replace(
        compare(frame, frame.assign(accuracy=50.0)), warnings=tuple(map(str, range(12))),
        causes=tuple(Difference(f"k{n}", "a", "b", 1, 1) for n in range(12)),
    )  # fmt: skip
    lines = list(github(outcome))
    assert sum(line.startswith("::error") for line in lines) == 10
    assert sum(line.startswith("::warning") for line in lines) == 10
    assert lines[-1].endswith("; ".join(f"k{n}: a → b" for n in range(10)) + ".")
    (ok,) = github(compare(frame, frame))
    assert ok == "::notice title=Accuracy gate ok::15 the same."


def test_github_is_told_of_no_causes_where_no_cell_was_compared() -> None:
    frame = cells(("tent",), ("cct",))
    *_, warning, notice = github(compare(frame, frame.assign(batch_size=64)))
    assert "batch_size 200 → 64" in warning
    assert notice == "::notice title=Accuracy gate failed::15 missing, 15 new."


def test_json_has_every_value_and_null_for_nan() -> None:
    outcome = replace(with_everything(), warnings=("careful",), causes=(Difference("x", "1", "ü", 1, 2),))
    printed = as_json(outcome)
    assert "ü" in printed
    assert printed.startswith('{\n "format": "ttabench-compare",\n "version": 1,\n "failed": true,')
    content = json.loads(printed)
    assert set(content) == {
        "format", "version", "failed", "baseline", "candidate", "bounds", "counts", "warnings", "means",
        "cells", "causes", "stale", "attested", "smallest_fall",
    }  # fmt: skip
    assert (content["baseline"], content["candidate"]) == ("the baseline", "the candidate")
    assert content["counts"] == {
        "same": 1, "moved": 1, "chance": 0, "fell": 1, "lost": 1, "gained": 1, "neither": 0, "missing": 1,
        "new": 1,
    }  # fmt: skip
    assert content["warnings"] == ["careful"]
    assert content["causes"] == [{"key": "x", "before": "1", "after": "ü", "cells": 1, "of": 2, "places": []}]
    assert len(content["cells"]) == 6
    rows = {row["verdict"]: row for row in content["cells"]}
    shown = {"accuracy_before", "accuracy_after", "status_before", "status_after", "reason_before"}
    assert set(rows["fell"]) == {*KEY, *shown, "reason_after", "change", "p_value", "verdict", "variant"}
    assert (rows["fell"]["accuracy_before"], rows["fell"]["change"], rows["fell"]["p_value"]) == (
        75.0,
        -5.0,
        None,
    )
    assert (rows["lost"]["status_before"], rows["lost"]["status_after"]) == ("ok", "failed")
    assert (rows["gained"]["reason_before"], rows["new"]["accuracy_before"]) == ("no norm", None)


def test_junit_word_by_word() -> None:
    case = '    <testcase classname="cct on digits-c" name='
    assert junit(with_everything()).splitlines() == [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<testsuites name="ttabench compare">',
        '  <testsuite name="cct on digits-c" tests="4" failures="3">',
        f'{case}"sar, severity 5: mean" />',
        f'{case}"sar, severity 5: cells">',
        f'      <failure message="{GONE}">{GONE}</failure>',
        "    </testcase>",
        f'{case}"tent, severity 5: mean">',
        f'      <failure message="{MEAN}">{MEAN}</failure>',
        "    </testcase>",
        f'{case}"tent, severity 5: cells">',
        f'      <failure message="2 cells failed">{LOST}',
        f"{FELL}</failure>",
        "    </testcase>",
        "  </testsuite>",
        "</testsuites>",
    ]


def test_a_fall_in_one_protocol_is_charged_to_this_one_alone() -> None:
    """In all outputs; a method with one protocol keeps its plain name."""
    kinds = [{}, {"mode": "offline", "epochs": 3}, {"order": "dirichlet(0.1)"}, {"batch_size": 64}]
    tent = [cells(("tent",), ("cct",), corruptions=("fog",), accuracy=lambda row: 75.0, **kind)
            for kind in kinds]  # fmt: skip
    before = pd.concat([*tent, cells(("sar",), ("cct",), corruptions=("fog",))], ignore_index=True)
    after = before.assign(accuracy=before["accuracy"].where(before["mode"] != "offline", 60.0))
    outcome = compare(before, after)
    root = ElementTree.fromstring(junit(outcome))
    names = [str(case.get("name")) for case in root[0]]
    assert len(set(names)) == len(names) == 10
    assert {str(case.get("name")) for case in root[0] if len(case)} == {
        "tent (offline), severity 5: mean", "tent (offline), severity 5: cells",
    }  # fmt: skip
    assert "sar, severity 5: mean" in names
    assert "tent (online, batch size 200, dirichlet(0.1) order), severity 5: mean" in names
    assert "tent (online, batch size 64), severity 5: mean" in names
    assert sum("::tent (offline) · cct" in line for line in github(outcome)) == 2
    assert sum(line.strip().startswith("tent (offline) ") for line in text(render(outcome))) == 2


def test_a_share_that_a_csv_file_has_rounded_is_the_same_protocol() -> None:
    exact = cells(("tent",), ("cct",), held_out=1 / 3)
    outcome = compare(exact, exact.assign(held_out=0.3333))
    assert not outcome.failed
    assert outcome.count("same") == 15


def test_junit_has_a_suite_for_each_architecture_and_dataset_with_its_own_cells() -> None:
    frame = cells(("tent",), ("cct", "resnet18"), datasets=("a", "b"), severities=(1, 5))
    removed = frame[~where(frame, arch="cct", dataset="b", severity=5, corruption="fog")]
    root = ElementTree.fromstring(junit(compare(frame, removed)))
    failures = {suite.get("name"): suite.get("failures") for suite in root}
    assert failures == {"cct on a": "0", "resnet18 on a": "0", "cct on b": "1", "resnet18 on b": "0"}
    assert list(failures) == ["cct on a", "resnet18 on a", "cct on b", "resnet18 on b"]
    (failed,) = (case for case in root.iter("testcase") if len(case))
    assert failed.get("name") == "tent, severity 5: cells"


def test_junit_keeps_what_xml_can_hold_and_drops_the_rest() -> None:
    kept, dropped = "\t\n a\ud7ff\ue000\ufffd\U00010000é", "\x00\x08\x0b\x1f\ufffe\uffff"
    frame = cells(("tent",), ("cct",), corruptions=("fog",))
    reason = f"a{'b'.join(kept)}b{'c'.join(dropped)}d"
    outcome = compare(frame, spoil(frame, "failed", reason, corruption="fog"))
    told = str(ElementTree.fromstring(junit(outcome)).findtext(".//failure"))
    assert f"(a{'b'.join(kept)}bcccccd)" in told


def test_xml_can_hold_a_carriage_return_and_no_half_of_a_pair() -> None:
    """ElementTree escapes the one, and no text with the other can be encoded."""
    assert machine._allowed("\r")
    assert not machine._allowed("\x0e")
    assert not machine._allowed(chr(0xD800))
    assert not machine._allowed(chr(0xDFFF))


# ---- cards


A, B, C = ("tent", "cct", "d"), ("sar", "cct", "d"), ("tent", "r18", "d")


def test_names_and_hashes_in_a_difference() -> None:
    shown = {
        "source": "source of the method", "fingerprint": "data", "checkpoint": "weights",
        "clean_accuracy": "clean accuracy of the source classifier", "n_images": "number of images",
        "config.lr": "config.lr",
    }  # fmt: skip
    assert {key: Difference(key, "", "", 1, 1).name for key in shown} == shown
    assert str(Difference("x", "0123456789" * 4, "f" * 39, 1, 1)) == f"x: 01234567 → {'f' * 39}"
    assert str(Difference("x", "a" * 128, "a" * 129, 1, 1)) == f"x: aaaaaaaa → {'a' * 129}"
    assert str(Difference("x", "", "1", 1, 1)) == "x: none → 1"


def test_places_are_listed_by_what_they_have_in_common() -> None:
    assert str(Difference("x", "1", "2", 2, 9, (A, B))) == "x: 1 → 2 (tent, sar; cct; d)"
    assert str(Difference("x", "1", "2", 2, 9, (B, C))) == "x: 1 → 2 (sar · cct · d, tent · r18 · d)"
    assert str(Difference("x", "1", "2", 2, 9, (A, (*A[:2], "e")))) == "x: 1 → 2 (tent; cct; d, e)"
    many = tuple((f"m{n}", "cct", "d") for n in range(6))
    assert str(Difference("x", "1", "2", 6, 9, many)) == "x: 1 → 2 (m0, m1, m2, m3 and 2 more; cct; d)"
    assert str(Difference("x", "1", "2", 5, 9, many[:5])) == "x: 1 → 2 (m0, m1, m2, m3 and 1 more; cct; d)"
    pairs = tuple((method, arch, "d") for method in ("tent", "sar") for arch in ("cct", "r18"))
    assert str(Difference("x", "1", "2", 4, 9, pairs)) == "x: 1 → 2 (tent, sar; cct, r18; d)"
    assert str(Difference("x", "1", "2", 4, 9, many[:4])) == "x: 1 → 2 (m0, m1, m2, m3; cct; d)"


def test_differences_are_found_key_by_key_and_sorted_by_how_many_cells_they_are_in() -> None:
    one = {"config": {"lr": 0.1, "on": True}, "only": "a", "same": 1, "text": "é", "list": ["é"]}
    other = {"config": {"lr": 0.2, "steps": [1]}, "same": 1, "text": "ü", "list": [], "deep": {"a": {"b": 0}}}
    half = {**one, "text": "ü"}
    listed = differences([(A, one, other), (A, one, other), (B, one, half)])
    assert [(d.key, d.before, d.after, d.cells, d.of, d.places) for d in listed] == [
        ("text", "é", "ü", 3, 3, ()),
        ("config.lr", "0.1", "0.2", 2, 3, (A,)),
        ("config.on", "true", ABSENT, 2, 3, (A,)),
        ("config.steps", ABSENT, "[1]", 2, 3, (A,)),
        ("deep.a.b", ABSENT, "0", 2, 3, (A,)),
        ("list", '["é"]', "[]", 2, 3, (A,)),
        ("only", "a", ABSENT, 2, 3, (A,)),
    ]


def test_a_key_that_one_side_never_records_is_no_difference_between_parts() -> None:
    one, other = {"x": 1, "y": 2, "d": {"a": 1}}, {"x": "1", "z": 3, "d": {"a": 2, "b": 1}}
    assert [d.key for d in differences([(A, one, other)], whole=False)] == ["d.a"]
    assert [d.key for d in differences([(A, one, other)])] == ["d.a", "d.b", "x", "y", "z"]


def test_definitions_say_more_than_the_hash_of_all() -> None:
    one, other = {"source": "1", "code": {"m": "a"}}, {"source": "2", "code": {"m": "b"}}
    assert [d.key for d in differences([(A, one, other)])] == ["code.m"]
    assert [d.key for d in differences([(A, {"source": "1"}, other)])] == ["source"]
    assert [d.key for d in differences([(A, one, {"source": "2"})])] == ["source"]


def test_a_difference_in_some_cells_of_a_place_names_the_place() -> None:
    (result,) = differences([(A, {"x": 1}, {"x": 2}), (A, {"x": 1}, {"x": 1})])
    assert (result.cells, result.of, result.places) == (1, 2, (A,))


# ---- two folders


def right(*names: str) -> dict[tuple[str, int], Any]:
    return {(name, 0): np.arange(20) % 4 > 0 for name in names}


def test_a_diff_in_words(tmp_path: Path) -> None:
    one = folder(tmp_path / "one", right("fog", "snow"))
    other = folder(tmp_path / "other", right("fog", "frost", "pixelate"), checkpoint="d" * 64)
    result = diff(one, str(other))
    assert result.names == (str(one), str(other))
    assert text(render_diff(result)) == [
        "  weights: cccccccc → dddddddd", f"1 cell in both; 1 only in {one}; 2 only in {other}."
    ]  # fmt: skip
    assert json.loads(diff_json(result)) == {
        "names": [str(one), str(other)], "matched": 1, "only_first": 1, "only_second": 2,
        "differences": [
            {"key": "checkpoint", "before": "c" * 64, "after": "d" * 64, "cells": 1, "of": 1, "places": []}
        ],
        "other_settings": [],
        "other_orders": [],
    }  # fmt: skip
    assert diff_json(result).startswith('{\n "names"')
    separate = diff(one, folder(tmp_path / "apart", right("pixelate")))
    assert text(render_diff(separate)) == [
        f"0 cells in both; 2 only in {one}; 1 only in {tmp_path / 'apart'}."
    ]
    assert separate.differs
    assert not diff(one, one).differs
    assert text(render_diff(diff(one, one))) == ["2 cells in both; nothing recorded differs."]
    assert diff(load_frame_of(one), load_frame_of(other)).names == ("the first results", "the second results")


def test_a_diff_takes_sides_that_are_open_and_keeps_letters(tmp_path: Path) -> None:
    one = folder(tmp_path / "é", right("fog"))
    opened = diff(side(one), side(one))
    assert (opened.names, opened.matched, opened.differs) == ((str(one), str(one)), 1, False)
    assert "é" in diff_json(opened)


def test_a_diff_names_cells_with_other_settings() -> None:
    """Their rows have other names, so they meet no cell."""
    one, other = (
        side(pd.concat([cells(("source",)), cells((name,))])) for name in ("tent[lr=0.1]", "tent[lr=0.2]")
    )
    result = diff(one, other)
    assert text(render_diff(result))[-2:] == [
        f"not the same settings: tent[lr=0.1] in {one.name}; tent[lr=0.2] in {other.name}.",
        f"30 cells in both; 30 only in {one.name}; 30 only in {other.name}; "
        "nothing recorded differs in those of both.",
    ]
    assert json.loads(diff_json(result))["other_settings"] == [*result.other_settings]


def test_a_cell_meets_one_cell_of_another_protocol() -> None:
    one = cells(("tent",), ("cct",), corruptions=("fog",))
    two = pd.concat(
        [one.assign(batch_size=50, cell_id="5" * 64), one.assign(batch_size=64, cell_id="6" * 64)]
    )
    for first, second, counts in ((one, two, (1, 0, 1)), (two, one, (1, 1, 0))):
        result = diff(first, second)
        assert (result.matched, result.only_first, result.only_second) == counts


def test_cells_of_another_protocol_meet_those_that_are_most_like_them() -> None:
    """Online stays with online, and both sentences on the protocol name only what was changed."""
    online = cells(("tent", "source"), ("cct",))
    both = pd.concat([online, online.assign(mode="offline", epochs=3)], ignore_index=True)
    both["cell_id"] = [f"{row:064x}" for row in range(len(both))]
    for first, second in ((both, both.assign(precision="tf32")), (both, both[::-1].assign(precision="tf32"))):
        result = diff(first, second)
        assert (result.matched, result.only_first, result.only_second) == (60, 0, 0)
        assert [one.key for one in result.differences] == ["protocol.precision"]
        assert [*compare(first, second).warnings] == [
            f"not the same protocol: {name}: precision float32 → tf32." for name in ("source", "tent")
        ]
    result = diff(both, online.assign(precision="tf32"))
    assert (result.matched, result.only_first, result.only_second) == (30, 30, 0)
    assert [one.key for one in result.differences] == ["protocol.precision"]


def test_of_two_orders_each_cell_meets_the_one_of_its_history() -> None:
    one = cells(("tent",), ("cct",), corruptions=("fog",), reset="continual")
    orders = pd.concat([one.assign(history=name) for name in ("snow", "frost")], ignore_index=True)
    pairs = in_other_protocols(match(side(orders), side(orders[::-1].assign(precision="tf32")))[0])
    assert len(pairs) == 2
    assert (pairs["history_before"] == pairs["history_after"]).all()


def test_continual_runs_in_other_orders_of_corruptions_are_named() -> None:
    frame = cells(("source", "tent"), ("cct",))
    runs = [continual(frame, order) for order in (["fog", "contrast", "snow"], ["fog", "snow", "contrast"])]
    said = "not the same order of corruptions: source, tent: contrast, snow → snow, contrast."
    assert compare(*runs).warnings == (said,)
    result = diff(*runs)
    assert result.differs
    assert json.loads(diff_json(result))["other_orders"] == [said]
    assert text(render_diff(result)) == [said, "6 cells in both."]
    assert not diff(runs[0], runs[0]).differs


def test_fifty_differences_are_shown() -> None:
    listed = tuple(Difference(str(number), "a", "b", 1, 1) for number in range(51))
    shown = text(render_diff(Diff(("a", "b"), listed, 1, 0, 0)))
    assert shown[50:] == ["  … and 1 more", "1 cell in both."]


def test_settings_that_differ_are_named_with_both_values() -> None:
    one = cells(("tent",), ("cct",), config='{"lr": 0.1, "same": 1, "old": 2}')
    other = cells(("tent",), ("cct",), config='{"lr": 0.2, "same": 1, "new": 3}')
    assert compare(one, other).warnings == (
        "not the same settings: tent: lr 0.1 → 0.2, new unset → 3, old 2 → unset.",
    )
    assert compare(one, cells(("tent",), ("cct",), config="[1")).warnings == (
        'not the same settings: tent: {"lr": 0.1, "same": 1, "old": 2} → [1.',
    )
    assert compare(one, cells(("tent",), ("cct",), config="")).warnings == ()


def load_frame_of(path: Path) -> pd.DataFrame:
    return Store.at(path).frame()


# ---- opening a side


def test_a_folder_is_one_side_with_its_bitmaps_and_cards(tmp_path: Path) -> None:
    path = folder(tmp_path / "one", right("fog"))
    opened = side(path)
    (cell_id,) = opened.cells["cell_id"]
    assert (opened.name, opened.whole, list(opened.bitmaps)) == (str(path), True, [cell_id])
    card = opened.card(cell_id)
    assert {"config", "checkpoint", "fingerprint", "protocol", "adapted", "versions", "code"} <= set(card)
    assert not {"kind", "id", "written", "generation", "correct", "accuracy", "seconds", "sum"} & set(card)
    assert not {"label", "arch", "dataset", "corruption", "severity", "seed", "cell", "details"} & set(card)
    table = side(side(path).cells, "candidate")
    assert (table.name, table.whole, table.bitmaps) == ("the candidate", False, {})
    with pytest.raises(UserError, match=r"empty holds no results yet; run the sweep first\.$"):
        side(Store.create(tmp_path / "empty", {}).root)


def test_of_two_records_of_a_cell_the_later_generation_counts_whatever_the_clock(tmp_path: Path) -> None:
    path = folder(tmp_path / "one", right("fog"))
    (first,) = (path / "cells").glob("*.jsonl")
    second = fill(Store.at(path), measured(replace(CELL, corruption="fog"), np.zeros(20, bool)))
    for shard, generation, written in ((first, 1, 9e9), (second, 2, 1.0)):
        records = [json.loads(line) for line in shard.read_text().splitlines()]
        assert records[0]["generation"] == generation
        for record in records:
            record.pop("sum")
        records[-1]["written"] = written
        shard.write_bytes(b"".join(map(encode, records)))
    assert side(path).cells["accuracy"].tolist() == [0.0]


def test_the_cells_of_a_folder_have_alarms_warnings_and_histories(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "one", {})
    cell = replace(CELL, history=("snow-5", "frost-5"), protocol=Protocol(reset="continual"))
    details = {"alarm": "it collapsed", "source_warning": "it is low"}
    fill(store, replace(measured(cell, np.ones(8, bool)), details=details))
    (row,) = side(store.root).cells.to_dict("records")
    assert (row["alarm"], row["warning"], row["history"]) == ("it collapsed", "it is low", "snow-5 frost-5")


def test_a_side_of_a_folder_has_the_cells_that_the_store_has(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "one", {})
    alarmed = replace(measured(CELL, np.ones(8, bool)), details={"alarm": "low", "source_warning": "odd"})
    failing = Result(cell=replace(CELL, corruption="snow"), status="failed", reason="it is NaN")
    labelled = replace(CELL, corruption="frost", label="tent[lr=0.1]", config=(("lr", 0.1),))
    fill(store, alarmed, failing, replace(measured(labelled, np.zeros(8, bool)), details={}))
    names = [
        "method", "base", "config", "arch", "checkpoint", "dataset", "fingerprint", "corruption", "severity",
        "seed", *PROTOCOL, "history", "n_images", "clean_accuracy", "accuracy", "seconds", "status", "reason",
        "alarm", "warning", "cell_id", "written",
    ]  # fmt: skip
    opened, stored = (
        frame[names].sort_values("corruption", ignore_index=True)
        for frame in (side(store.root).cells, checked(store.frame()))
    )
    pd.testing.assert_frame_equal(opened, stored)
    assert opened.set_index("corruption")["reason"].to_dict() == {"fog": "", "snow": "it is NaN", "frost": ""}


def test_only_cells_of_a_test_set_with_a_number_are_tested_by_image(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "one", {})
    streamed = replace(
        CELL, protocol=Protocol(stream="gradual", reset="continual"), corruption="gradual", severity=0
    )
    failing = Result(cell=replace(CELL, corruption="snow"), status="failed", reason="it is NaN", correct=b"1")
    fill(store, measured(CELL, np.ones(8, bool)), measured(streamed, np.ones(8, bool)), failing)
    assert list(side(store.root).bitmaps) == [CELL.cell_id]


def test_a_folder_that_cannot_be_read_as_cells_is_named(tmp_path: Path) -> None:
    path = folder(tmp_path / "one", {("fog", 0): np.ones(8, bool)})
    (shard,) = (path / "cells").glob("*.jsonl")
    records = [json.loads(line) for line in shard.read_text().splitlines()]
    records[-1]["accuracy"] = 101.0
    for record in records:
        record.pop("sum")
    shard.write_bytes(b"".join(map(encode, records)))
    with pytest.raises(UserError, match=rf"{re.escape(str(path))}.* accuracy (is )?101"):
        side(path)


def test_the_cards_of_a_table_name_settings_and_protocol() -> None:
    frame = cells(("tent",), ("cct",), corruptions=("fog",), config='{"lr": 0.1}', adapted="2 BatchNorm2d")
    card = side(frame).card("0")
    assert card["config"] == {"lr": 0.1}
    assert (card["protocol"]["batch_size"], card["adapted"]) == (200, "2 BatchNorm2d")
    assert not {"alarm", "restores"} & set(card)  # one is an outcome, the other is empty here
    assert side(frame.assign(config="[1")).card("0")["config"] == "[1"
    other = frame.assign(config='{"lr": 0.2}', batch_size=64)
    assert {one.key: (one.before, one.after) for one in diff(frame, other).differences} == {
        "config.lr": ("0.1", "0.2"), "protocol.batch_size": ("200", "64")
    }  # fmt: skip


def test_stale_rows_of_a_table_are_counted_by_method_and_cause() -> None:
    frame = cells(("tent", "sar"), ("cct",), corruptions=("fog", "snow"))
    frame = frame.assign(stale=frame["corruption"] == "fog", stale_because="a.py changed")
    assert side(frame).stale == {("tent", "a.py changed"): 1, ("sar", "a.py changed"): 1}


# ---- the tests


def test_one_cell_is_a_mean_too_and_other_numbers_of_images_are_not_paired(tmp_path: Path) -> None:
    whole = folder(tmp_path / "whole", {("fog", 0): np.ones(40, bool)})
    half = folder(tmp_path / "half", {("fog", 0): np.arange(40) % 2 > 0})
    assert compare(whole, half).means["p_value"].max() < 0.001
    more = folder(tmp_path / "more", {("fog", 0): np.arange(48) % 2 > 0})
    assert compare(whole, more).cells["p_value"].isna().all()


def packed(*rows: list[int]) -> Any:
    return np.packbits(np.array(rows, bool), axis=1)


def test_each_cell_is_tested_with_its_own_images() -> None:
    before, after = packed([1, 1, 1, 0, 0], [0, 0, 1, 1, 1]), packed([0, 0, 0, 1, 0], [1, 1, 1, 1, 0])
    expected = [stats.binomtest(won, lost + won, alternative="less").pvalue for lost, won in ((3, 1), (1, 2))]
    assert cells_fell(before, after) == pytest.approx(expected)


@pytest.mark.parametrize(("fall", "p"), [(0, 1.0), (1, 0.5**9), (-1, 1.0)])
def test_where_all_images_change_alike_the_sign_decides(fall: int, p: float) -> None:
    """One of two cells loses or gains every image: a change of half a point per image, without variance."""
    ones, zeros = [1] * 9, [0] * 9
    before, after = {0: (ones, ones), 1: (ones, zeros), -1: (zeros, ones)}[fall]
    seeds = np.zeros(2, np.int64)
    assert mean_fell(packed(before, ones), packed(after, ones), 9, seeds) == p


# ---- bounds


def test_the_bounds_themselves_are_allowed_and_what_is_outside_is_one_sentence() -> None:
    Bounds(0, 0, 1)
    for bad, message in (
        ({"max_drop": -0.1}, "--max-drop is -0.1; expected a number of points, 0 or more."),
        ({"max_mean_drop": math.inf}, "--max-mean-drop is inf; expected a number of points, 0 or more."),
        ({"alpha": 0}, "--alpha is 0; expected a level above 0 and up to 1, e.g. 0.05."),
        ({"alpha": 1.5}, "--alpha is 1.5; expected a level above 0 and up to 1, e.g. 0.05."),
    ):
        with pytest.raises(UserError) as problem:
            Bounds(**bad)  # type: ignore[arg-type]
        assert str(problem.value) == message
