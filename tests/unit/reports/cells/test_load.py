"""Several folders and CSV files are one table, each cell once."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.cases import each
from tests.unit.conftest import Run
from tests.unit.made_cells import cells, spoil
from tests.unit.stored_results import fill, with_accuracy
from ttabench.cell import Result
from ttabench.cell.protocol import Protocol
from ttabench.errors import UserError
from ttabench.observe.calibration import calibration_bins
from ttabench.store import Store
from ttabench.store.columns import MISSING
from ttabench.store.record_values import BINS, OF_BINS
from ttabench.sweep.agenda import plan_rows
from ttabench.sweep.plan import Planned
from ttabench_reports.cells import load
from ttabench_reports.cells.calibration import packed
from ttabench_reports.cells.frames import CALIBRATION, CORRECT, DETAILS, checked, one_per_cell, with_hashes
from ttabench_reports.formats import csv_files
from ttabench_reports.tables.build import tables
from ttabench_reports.tables.table import STALE
from ttabench_reports.words import naming


def stored(folder: Path, *results: Result) -> Path:
    store = Store.create(folder, {})
    fill(store, *results)
    return folder


def test_a_folder_gives_its_cells_with_their_correctness(
    tmp_path: Path, result: Result, other: Result
) -> None:
    """Not of a long stream, whose images come again and again."""
    protocol = replace(result.cell.protocol, stream="recurring(2)", reset="continual")
    stream = replace(result, cell=replace(result.cell, protocol=protocol))
    frame = load.read([stored(tmp_path / "a", result, other, stream)])
    kept = frame.set_index("cell_id")[CORRECT].to_dict()
    assert kept == {
        result.cell.cell_id: result.correct, other.cell.cell_id: other.correct, stream.cell.cell_id: b""
    }  # fmt: skip
    assert all((result.correct, other.correct))


def test_a_cell_in_several_places_counts_once_and_with_its_correctness(
    tmp_path: Path, result: Result, other: Result
) -> None:
    one = stored(tmp_path / "a", result)
    two = stored(tmp_path / "b", other)
    exported = csv_files.write_cells(load.read([one]), tmp_path / "cells.csv")
    assert CORRECT not in exported.read_text().splitlines()[0]
    for order in ([one, two, exported], [exported, two, one]):
        frame = load.read(order)
        assert sorted(frame["cell_id"]) == sorted({result.cell.cell_id, other.cell.cell_id})
        assert frame.set_index("cell_id").loc[result.cell.cell_id, CORRECT] == result.correct


def test_a_pipe_is_no_table(tmp_path: Path) -> None:
    """It waited for a writer, and took the header of what it wrote away."""
    os.mkfifo(tmp_path / "cells.csv")
    with pytest.raises(UserError, match="is a pipe or a device; expected a results folder or a cells"):
        load.read_csv(tmp_path / "cells.csv")


def test_no_column_of_a_csv_file_is_taken_for_what_a_record_holds(tmp_path: Path, result: Result) -> None:
    exported = csv_files.write_cells(load.read([stored(tmp_path / "a", result)]), tmp_path / "cells.csv")
    frame = pd.read_csv(exported).assign(**dict.fromkeys(load.OF_RECORD, "x" * 360))
    frame.to_csv(exported, index=False)
    read = checked(load.read([exported]))
    assert [read[name].tolist() for name in load.OF_RECORD] == [[b""], [b""], [None]]


def test_what_tables_read_of_a_record_is_kept(tmp_path: Path, result: Result) -> None:
    bins = calibration_bins(np.array([0.5, 1.0], np.float32), np.array([True, False]))
    details = {"calibration": bins, "resets": 3, "adapted": "2 layers"}
    read = load.read([stored(tmp_path / "a", replace(result, details=details))])
    assert read[CALIBRATION].tolist() == [packed(bins)]
    assert read[DETAILS].tolist() == [{"resets": 3}]
    assert np.frombuffer(packed(bins)).reshape(3, BINS).tolist() == [bins[key] for key in OF_BINS]


def test_windows_of_a_stream_are_not_lost_to_its_csv_file(tmp_path: Path, result: Result) -> None:
    protocol = replace(result.cell.protocol, stream="recurring(2)", reset="continual")
    windows = {"windows": {"length": 300, "accuracy": [50.0, 60.0]}}
    stream = replace(result, cell=replace(result.cell, protocol=protocol), details=windows)
    folder = stored(tmp_path / "a", stream)
    exported = csv_files.write_cells(load.read([folder]), tmp_path / "cells.csv")
    for order in ([folder, exported], [exported, folder]):
        assert load.read(order)[DETAILS].tolist() == [windows]


def test_a_rounded_time_does_not_make_a_csv_file_the_later_one(
    tmp_path: Path, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """24.714674 s becomes 24.715 s in the file, which is later in whole hundredths too."""
    for number, fraction in enumerate((0.0, 0.0049998, 0.0149998, 24.714674, 81.585355)):
        monkeypatch.setattr("ttabench.store.writer.time.time", lambda f=fraction: 1.7e9 + f)
        folder = stored(tmp_path / f"{number}", result)
        exported = csv_files.write_cells(load.read([folder]), tmp_path / f"{number}.csv")
        assert load.read([folder, exported])[CORRECT].tolist() == [result.correct]


def test_the_later_of_two_measurements_counts(
    tmp_path: Path, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttabench.store.writer.time.time", lambda: 1000.0)
    early = stored(tmp_path / "a", result)
    monkeypatch.setattr("ttabench.store.writer.time.time", lambda: 1001.0)
    later = stored(tmp_path / "b", with_accuracy(result, 12.5))
    with pytest.warns(
        UserWarning, match="1 cell in more than one of these results, 1 with other code or num"
    ):
        frame = load.read([later, early])
    newest = frame["written"].max()
    assert len(frame) == 1
    assert frame["accuracy"].tolist() == [load.read([later])["accuracy"].iloc[0]]
    assert newest == load.read([later])["written"].max()


def test_a_later_attempt_that_failed_elsewhere_takes_no_number_away(tmp_path: Path) -> None:
    first = cells(("source", "tent"), ("cct",), corruptions=("fog",))
    later = spoil(first.assign(written=1.8e9), "failed", "no memory", method="tent")
    paths = [tmp_path / "first.csv", tmp_path / "later.csv"]
    for path, frame in zip(paths, (first, later), strict=True):
        frame.to_csv(path, index=False)
    for order in (paths, paths[::-1]):
        with warnings.catch_warnings(action="ignore"):
            frame = load.read(order)
        assert frame.set_index("method")["accuracy"].notna().all()


def test_a_csv_file_of_results_of_a_clock_before_1970_is_read(
    tmp_path: Path, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttabench.store.writer.time.time", lambda: -86400.0)
    frame = load.read([stored(tmp_path / "a", result)])
    csv_files.write_cells(frame, tmp_path / "cells.csv")
    assert load.read([tmp_path / "cells.csv"])["written"].tolist() == [-86400.0]


def test_which_of_two_measurements_counts_is_said_where_code_or_numbers_differ(tmp_path: Path) -> None:
    frame = cells(("tent",), ("cct",)).assign(code="a" * 64)
    csv_files.write_cells(frame, tmp_path / "a.csv")
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    csv_files.write_cells(frame.assign(written=frame["written"] + 1), paths[1])
    with warnings.catch_warnings(action="error"):
        assert len(load.read(paths)) == 15
    other = frame.assign(written=frame["written"] + 1)
    other.loc[0, "code"] = "b" * 64
    other.loc[1, ["accuracy", "written"]] = [5.0, 0.0]
    other.loc[2, "code"] = ""  # not known
    csv_files.write_cells(other, paths[1])
    with pytest.warns(UserWarning, match="15 cells") as said:
        load.read(paths)
    assert str(said[0].message) == (
        "15 cells in more than one of these results, 2 with other code or numbers. The last measured one "
        f"is used, or if times are unknown, the one named last: 1 of {paths[0]}, 1 of {paths[1]}."
    )


def two_codes(folder: Path, **values: Any) -> list[Path]:
    """Two CSV files with a seed of the same rows each, the second one with other code, and with `values`."""
    frame = cells(("source", "tent"), ("cct",), seeds=(0, 1)).assign(code="a" * 64, attested=False)
    paths = [folder / "first.csv", folder / "second.csv"]
    for path, (seed, part) in zip(paths, frame.groupby("seed"), strict=True):
        other = {"code": "b" * 64, **values} if seed else {}
        csv_files.write_cells(part.assign(**other), path)
    return paths


def test_a_row_of_two_codes_is_stale_where_csv_files_hold_it(ttabench: Run, tmp_path: Path) -> None:
    paths = two_codes(tmp_path)
    read = load.read(paths)
    assert read["stale"].all()  # which of the two codes is installed is not known
    (table,) = tables(read)
    assert all(STALE in row.flags for row in table.rows if row.measured)
    output = ttabench("report", *paths, "--format", "csv", "--out", tmp_path / "both")
    assert "30 stale cells of tent: other cells of the row were measured with other code." in output.err
    assert load.read([tmp_path / "both" / "cells.csv"])["stale"].all()
    assert not load.read(paths[:1])["stale"].any()


@pytest.mark.parametrize(
    "values", [{"code": "a" * 64}, {"code": ""}, {"attested": True}, {"checkpoint": "other"}],
    ids=["same", "unknown", "attested", "another row"],
)  # fmt: skip
def test_other_code_that_may_differ_is_not_stale(tmp_path: Path, values: dict[str, Any]) -> None:
    assert not load.read(two_codes(tmp_path, **values))["stale"].any()


@each(
    ("values", "stale"),
    [
        ({"stale": True}, {("source", 1), ("tent", 1)}),  # it is not the code of the others
        ({"status": "failed", "accuracy": math.nan}, set()),  # of which there is no number
        ({"mode": "offline"}, {("source", 0), ("source", 1)}),  # one row for all modes
    ],
)  # fmt: skip
def test_cells_that_must_be_of_one_code_are_those_of_a_row_with_a_number(
    tmp_path: Path, values: dict[str, Any], stale: set[tuple[str, int]]
) -> None:
    cells = load.read(two_codes(tmp_path, **values))
    marked = cells[cells["stale"]]
    assert {*zip(marked["base"], marked["seed"], strict=True)} == stale


def test_the_code_of_a_folder_is_installed_and_that_of_a_csv_file_beside_it_stale(
    tmp_path: Path, result: Result
) -> None:
    folder = stored(tmp_path / "a", result)
    again = replace(result, cell=replace(result.cell, seed=result.cell.seed + 1))
    theirs = load.read([stored(tmp_path / "b", again)])
    for code, stale in (("b" * 64, True), (theirs["code"].iloc[0], False)):
        exported = csv_files.write_cells(theirs.assign(code=code), tmp_path / "cells.csv")
        for order in ([folder, exported], [exported, folder]):
            read = load.read(order).set_index("cell_id")["stale"]
            assert dict(read) == {result.cell.cell_id: False, again.cell.cell_id: stale}


def test_planned_cells_without_a_record_are_missing(tmp_path: Path, result: Result, other: Result) -> None:
    folder = stored(tmp_path / "a", result)
    unrunnable = replace(other, cell=replace(other.cell, seed=9))
    planned = [Planned(result.cell, ""), Planned(other.cell, ""), Planned(unrunnable.cell, "no batch norm")]
    Store.at(folder).write_plan(plan_rows(planned))
    (missing,) = load.read([folder]).attrs[MISSING]
    assert (missing.arch, missing.corruptions, missing.cells) == (
        other.cell.arch, (other.cell.corruption,), 1,
    )  # fmt: skip
    assert load.read([folder, stored(tmp_path / "b", other)]).attrs[MISSING] == ()


def test_a_missing_cell_counts_once_where_each_slice_has_the_whole_plan(
    tmp_path: Path, result: Result, other: Result
) -> None:
    third = replace(result.cell, corruption="frost")
    plan = list(plan_rows(Planned(cell, "") for cell in (result.cell, other.cell, third)))
    slices = [stored(tmp_path / "a", result), stored(tmp_path / "b", other)]
    for folder in slices:
        Store.at(folder).write_plan(plan)
    frame = load.read(slices)
    (missing,) = frame.attrs[MISSING]
    assert (missing.corruptions, missing.cells) == (("frost",), 1)
    (table,) = tables(frame)
    assert [row.remarks[""] for row in table.rows if row.measured] == [["1 planned cell is missing"]]


def test_planned_cells_are_missing_in_the_row_of_their_protocol(tmp_path: Path, result: Result) -> None:
    """As they are in the row of all protocols where an older plan does not say it."""
    offline = Protocol(mode="offline", epochs=10)
    dirichlet = Protocol(order="dirichlet(0.1)")
    cell = result.cell
    done = [replace(result, cell=replace(cell, protocol=one)) for one in (cell.protocol, offline, dirichlet)]
    store = Store.at(stored(tmp_path / "a", *done))
    planned = [Planned(replace(each.cell, seed=seed), "") for each in done for seed in (0, 1)]
    rows = list(plan_rows(planned[:3] + planned[4:5]))  # of the first protocol one is missing

    def remarked() -> dict[tuple[str, str], bool]:
        return {
            (row.about["mode"], table.key["order"]): "1 planned cell is missing" in row.remarks.get("", ())
            for table in tables(load.read([tmp_path / "a"])) for row in table.rows if row.measured
        }  # fmt: skip

    store.write_plan(rows)
    assert remarked() == {
        ("online", "iid"): True, ("offline", "iid"): False, ("online", "dirichlet(0.1)"): False,
    }  # fmt: skip
    store.write_plan([{name: value for name, value in row.items() if name != "protocol"} for row in rows])
    assert all(remarked().values())


def test_only_a_cell_that_is_ok_has_a_number() -> None:
    table = cells(("source", "tent"), ("cct",), corruptions=("fog",), accuracy=lambda row: 50.0)
    table["status"] = ["ok", "failed"]
    assert checked(table)["accuracy"].isna().tolist() == [False, True]
    table.loc[table["status"] == "ok", "accuracy"] = 101.0
    with pytest.raises(UserError, match=r"ok with accuracy 101\.0"):
        checked(table)


def test_what_is_neither_is_refused(tmp_path: Path, result: Result) -> None:
    with pytest.raises(UserError, match="does not exist"):
        load.read([stored(tmp_path / "a", result), tmp_path / "b"])
    (tmp_path / "c.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match=r"c\.csv is not a table of cells"):
        load.read([tmp_path / "c.csv"])
    (tmp_path / "d").mkdir()
    with pytest.raises(UserError, match="not a results folder"):
        load.read([tmp_path / "d"])
    with pytest.raises(UserError, match="holds no results yet"):
        load.read([stored(tmp_path / "e")])


def test_report_reads_folders_and_files_together(
    ttabench: Run, tmp_path: Path, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stored(tmp_path / "a", result)
    made = cells(datasets=("my-data",))
    csv_files.write_cells(made, tmp_path / "theirs.csv")
    monkeypatch.chdir(tmp_path)
    output = ttabench(
        "report", folder, tmp_path / "theirs.csv", "--format", "csv,latex,markdown", "--no-increase"
    )
    assert output.code == 0, output.err
    assert (tmp_path / "report" / "all.tex").exists()
    table = (tmp_path / "report" / "tables.md").read_text()
    assert "my-data" in table
    assert "\n| Increase |" not in table
    lines = (tmp_path / "report" / "cells.csv").read_text().splitlines()
    assert len(lines) == 1 + len(made) + 1


def test_methods_that_were_asked_for_and_never_ran_are_named(tmp_path: Path, result: Result) -> None:
    cell = result.cell
    asked = {
        "methods": [cell.method, "sar", "bn_stats[x=1]"], "archs": [cell.arch, "other:net"],
        "datasets": [cell.dataset], "severities": [cell.severity],
    }  # fmt: skip
    store = Store.create(tmp_path / "a", asked)
    fill(store, result)
    made = cells(datasets=("my-data",))
    theirs = csv_files.write_cells(made, tmp_path / "theirs.csv")
    for paths in ([tmp_path / "a"], [theirs, tmp_path / "a"]):
        remarks = {table.key["dataset"]: " ".join(table.remarks) for table in tables(load.read(paths))}
        remark = f"Asked for, but not measured: SAR, BNStats on {naming.arch(cell.arch)}."
        assert remark in remarks[cell.dataset]
        assert "Asked for" not in remarks.get("my-data", "")


def test_with_a_plan_only_planned_methods_are_missing(tmp_path: Path, result: Result) -> None:
    cell = result.cell
    asked = {
        "methods": [cell.method, "sar", "bn_stats"], "archs": [cell.arch], "datasets": [cell.dataset],
        "severities": [cell.severity], "exclude": [{"methods": ["sar"]}],
    }  # fmt: skip
    store = Store.create(tmp_path / "a", asked)
    fill(store, result)
    rows = (replace(cell, method=name, label=name) for name in (cell.method, "bn_stats"))
    store.write_plan(plan_rows(Planned(row, "") for row in rows))
    (table,) = tables(load.read([tmp_path / "a"]))
    remark = f"Asked for, but not measured: BNStats on {naming.arch(cell.arch)}."
    assert remark in " ".join(table.remarks)  # an exclude rule left SAR out


@pytest.mark.parametrize("known", [True, False], ids=["with ids", "by hand"])
def test_a_csv_file_with_two_numbers_of_one_cell_is_refused(tmp_path: Path, known: bool) -> None:
    frame = cells(("tent",), ("cct",))
    frame = frame if known else frame.drop(columns="cell_id")
    both = pd.concat([frame, frame.iloc[:1].assign(accuracy=1.5)])
    both.to_csv(tmp_path / "cells.csv", index=False)
    with pytest.raises(
        UserError, match=r"different accuracies of one cell \(tent · cct .*, 1\.5; keep one row"
    ):
        load.read([tmp_path / "cells.csv"])
    pd.concat([frame, frame.iloc[:1]]).to_csv(tmp_path / "same.csv", index=False)
    assert len(one_per_cell(load.read([tmp_path / "same.csv"]))) == len(frame)


def test_a_cell_without_an_id_counts_once_too(tmp_path: Path) -> None:
    frame = cells(("tent",), ("cct",)).drop(columns=["cell_id", "written"])
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    frame.to_csv(paths[0], index=False)
    frame.to_csv(paths[1], index=False)
    with warnings.catch_warnings(action="error"):
        assert len(load.read(paths)) == 15
    frame.assign(accuracy=5.0).to_csv(paths[1], index=False)
    with pytest.warns(UserWarning, match=f"15 with other code or numbers. .*: 15 of {paths[1]}"):
        read = load.read(paths)
    assert read["accuracy"].tolist() == [5.0] * 15


def test_a_copy_of_unknown_age_replaces_no_measurement(tmp_path: Path, result: Result) -> None:
    folder = stored(tmp_path / "a", result)
    load.read([folder]).drop(columns=["written", *load.OF_RECORD]).to_csv(tmp_path / "b.csv", index=False)
    assert load.read([folder, tmp_path / "b.csv"])[CORRECT].tolist() == [result.correct]


def test_a_csv_file_in_shares_or_without_commas_says_so(tmp_path: Path) -> None:
    frame = cells(("tent",), ("cct",), accuracy=lambda row: 0.5)
    frame.to_csv(tmp_path / "shares.csv", index=False)
    with pytest.warns(UserWarning, match=r"shares\.csv has no accuracy above 1; expected percent"):
        load.read([tmp_path / "shares.csv"])
    low = frame.assign(accuracy=[0.5, *[50.0] * (len(frame) - 1)])
    low.to_csv(tmp_path / "low.csv", index=False)
    with warnings.catch_warnings(action="error"):
        load.read([tmp_path / "low.csv"])
    for config in ("{}", '{"lr": 0.001, "norms": "all"}'):  # pandas fails at ragged lines
        mixed = frame.assign(config=["{}", *[config] * (len(frame) - 1)])
        mixed.to_csv(tmp_path / "excel.csv", index=False, sep=";", encoding="utf-8-sig")
        with pytest.raises(UserError, match=r"excel\.csv has ';' between its columns"):
            load.read([tmp_path / "excel.csv"])


@each(
    ("weights", "accuracy", "taken"),
    [("a", math.nan, "a"), ("b", math.nan, ""), ("a", 70.0, "")],
    ids=["the only weights", "one of several", "a number of unknown weights"],
)
def test_a_cell_without_a_number_takes_the_weights_that_all_others_of_its_network_have(
    weights: str, accuracy: float, taken: str
) -> None:
    frame = cells(("tent",), ("cct", "cvt"), corruptions=("fog", "snow", "frost"))
    frame["checkpoint"] = ["a", weights, "", "c", "c", "c"]
    frame.loc[2, "accuracy"] = accuracy
    assert with_hashes(frame)["checkpoint"].tolist() == ["a", weights, taken, "c", "c", "c"]
