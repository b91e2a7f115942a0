"""The tables say what was measured: means over complete sets only, nothing unlike ever averaged."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.cases import each
from tests.unit.made_cells import cells, continual, facts, spoil, where
from ttabench.corruptions.corruption_names import CORRUPTIONS, EXTRA_CORRUPTIONS, OF_TABLES
from ttabench.errors import UserError
from ttabench.method.facts_for_reports import facts_of
from ttabench.registry import methods as registered
from ttabench.store.columns import MISSING
from ttabench_reports import ablation, published
from ttabench_reports.cells.load import read_one
from ttabench_reports.cells.missing import Missing
from ttabench_reports.cells.typical_seconds import typical_seconds
from ttabench_reports.evidence import given as given_
from ttabench_reports.evidence.flat_rows import means as means_of
from ttabench_reports.evidence.places import best_places
from ttabench_reports.evidence.report import Report
from ttabench_reports.formats import csv_files
from ttabench_reports.formats.published import write as write_published
from ttabench_reports.formats.selection import write as write_selection
from ttabench_reports.plots.bars import all_bars
from ttabench_reports.sheets import means as sheets_of_means
from ttabench_reports.sheets import methods as sheet_of_methods
from ttabench_reports.sheets import words
from ttabench_reports.sheets.drops import drops
from ttabench_reports.tables import build as tables
from ttabench_reports.tables.families import families
from ttabench_reports.tables.increases import OTHER_SEEDS
from ttabench_reports.terminal import accuracy_tables as terminal
from ttabench_reports.words import naming, notes
from ttabench_reports.words.naming import MEAN, MEAN_EXTRA

NUMBERS = [*CORRUPTIONS, "mean"]


def line(frame: pd.DataFrame, **values: object) -> pd.Series:
    """The only line of a table with these values."""
    result = frame[where(frame, **values)]
    assert len(result) == 1, result
    return result.iloc[0]


def accuracies(frame: pd.DataFrame, **values: object) -> np.ndarray:
    return frame[where(frame, **values)].set_index("corruption")["accuracy"].reindex(CORRUPTIONS).to_numpy()


def per_corruption(frame: pd.DataFrame) -> pd.DataFrame:
    return csv_files.per_corruption(tables.tables(frame))


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    return means_of(tables.tables(frame))


def drop(frame: pd.DataFrame) -> pd.DataFrame:
    return csv_files.drop_of(summary(frame))


def test_every_corruption_has_a_name_of_three_letters_and_a_heading() -> None:
    every = [*CORRUPTIONS, *EXTRA_CORRUPTIONS]
    assert len({naming.short(c) for c in every}) == len(every)
    assert all(len(naming.short(c)) == 3 and naming.title(c) != c for c in every)


def test_a_long_title_makes_a_short_file_name_of_its_own() -> None:
    title = f"digits-c, severity 5 (stream recurring(2,corruptions={'+'.join(CORRUPTIONS)}))"
    slugs = [naming.slug(text) for text in (title, f"{title} ", title.replace("(2,", "(3,"), title[:-9])]
    assert len(set(slugs)) == 4
    assert all(re.fullmatch(r"digits-c-severity-5-stream-[\w-]+-[0-9a-f]{8}", name) for name in slugs)
    assert max(map(len, slugs)) <= 129
    assert naming.slug(title) == slugs[0]
    for text in ("digits-c", "a" * 120):
        assert naming.slug(text) == text


def documented() -> dict[str, set[str]]:
    """The columns that docs/reading-the-tables.md has by file; "" are those of several files."""
    page = (Path(__file__).resolve().parents[4] / "docs/reading-the-tables.md").read_text("utf-8")
    by_file: dict[str, set[str]] = {}
    for part in page.split("### Columns of ")[1:]:
        heading, _, text = part.partition("\n")
        first = re.findall(r"^\| (.*?) \|", text.partition("\n\n#")[0], re.MULTILINE)
        names = set(re.findall(r"`(\w+)`", " ".join(first)))
        for file in re.findall(r"`([\w*]+)\.csv`", heading) or [""]:
            by_file[file] = names
    return by_file


def test_every_column_of_every_csv_file_is_documented(tmp_path: Path) -> None:
    methods = ("source", "tent[lr=0.1]", "tent[lr=0.2]")
    frame = cells(methods, ("cct",), corruptions=(*CORRUPTIONS, *EXTRA_CORRUPTIONS), seeds=(0, 1))
    lr = frame["method"].str.extract(r"=([\d.]+)")[0].astype(float)
    frame["config"] = [
        "{}" if base == "source" else f'{{"rate": {lr}}}' for base, lr in zip(frame["base"], lr, strict=True)
    ]
    frame["entropy"] = lr
    stream = {"stream": "recurring(2)", "reset": "continual", "n_images": 200}
    streams = cells(("source", "tent"), ("cct",), corruptions=("recurring",), **stream)
    streams["details"] = [{"windows": {"length": 100, "accuracy": [50.0, 60.0]}}] * 2
    report = Report(pd.concat([frame, streams], ignore_index=True).assign(written=1.7e9))
    paths = [*csv_files.write(report.cells, tmp_path, report=report), *write_published(frame, tmp_path)]
    paths.append(csv_files.write_cells(report.cells, tmp_path / "cells.csv"))
    paths += [*write_selection(report, ["entropy"], tmp_path)[0], *ablation.write(frame, tmp_path)]
    columns: dict[str, set[str]] = {}
    for path in paths:
        if path.suffix == ".csv" and not path.stem.endswith("_crossed"):
            name = "ablation_*" if path.stem.startswith("ablation") else path.stem
            columns[name] = set(pd.read_csv(path, nrows=1)) - {
                *CORRUPTIONS,
                *EXTRA_CORRUPTIONS,
                "recurring",
                "rate",
            }
    known = documented()
    shared = known.pop("")
    assert set(known) == set(columns)
    for file, names in columns.items():
        assert names <= known[file] | shared, file
    assert all(sum(name in names for names in columns.values()) > 1 for name in shared)
    assert set().union(*known.values()) <= set().union(*columns.values())


def test_a_long_stream_is_named_wherever_it_stands_and_comes_last(tmp_path: Path) -> None:
    usual = cells(("source", "tent"), ("cct",), corruptions=("fog",))
    ccc = {"stream": "ccc(40,length=20000,speed=200)", "reset": "continual", "severities": (0,)}
    frame = pd.concat([cells(("source", "tent"), ("cct",), corruptions=("ccc",), **ccc), usual])
    first, last = tables.tables(frame.reset_index(drop=True))
    assert first.heading == "Digits-C, severity 5"
    name = "Digits-C, CCC stream, 40\u00a0%, length 20,000, speed 200"
    assert last.heading == last.short_heading == name
    assert "ccc(40,length=20000,speed=200)" in last.title  # of files: the identifier
    assert [family.heading for family in families([first, last])] == ["Digits-C", name]
    csv_files.write(frame, tmp_path)
    summary = pd.read_csv(tmp_path / "summary.csv", keep_default_na=False)
    assert summary[summary["stream"] != ""]["reset"].unique().tolist() == ["continual"]
    assert set(summary["batch_size"]) == {200}
    assert summary["order"].unique().tolist() == ["iid"]
    assert naming.stream("recurring(1)") == "recurring stream, 1 round"
    assert naming.stream("gradual") == "gradual stream"
    assert naming.stream("gradual(corruptions=fog+snow)") == "gradual stream, Fog, Snow"
    assert naming.stream("recurring(2,corruptions=fog+snow)") == "recurring stream, 2 rounds, Fog, Snow"


def test_p_values_keep_their_digits_and_protocols_their_numbers(tmp_path: Path) -> None:
    line = {"accuracy": 81.23456, "p_source_holm": 1.23456e-30, "p_best_holm": 0.04567, "held_out": 1 / 3}
    file = csv_files.write_csv(tmp_path / "a.csv", pd.DataFrame([line]))
    (back,) = pd.read_csv(file, float_precision="round_trip").to_dict("records")
    assert back == {**line, "accuracy": 81.2346, "p_source_holm": 1.23e-30, "p_best_holm": 0.0457}


def test_the_caption_names_the_network_of_a_compute_ratio_where_networks_differ() -> None:
    ratios = {
        ("tent", "resnet18"): 1.45,
        ("tent", "cct"): 2.72,
        ("sar", "cct"): 3.0,
        ("sar", "resnet18"): 3.0,
    }
    frame = cells(("source", "tent", "sar"), corruptions=("fog",), pace=1.0, pace_ratio=1.0)
    pairs = zip(frame["method"], frame["arch"], strict=True)
    frame["pace_ratio"] = [ratios.get(pair, 1.0) for pair in pairs]
    (table,) = tables.tables(frame)
    (ratios_said,) = (part for part in table.protocol.split(". ") if part.startswith("Compute ratios: "))
    named = {*ratios_said.removeprefix("Compute ratios: ").split(", ")}
    assert named == {"TENT on ResNet18 1.45", "TENT on CCT 2.72", "SAR 3"}


def test_exceptions_of_a_protocol_do_not_repeat_it_in_the_name_of_the_method() -> None:
    frame = cells(("source", "tent"), ("cct",), corruptions=("fog",), batch_size=64)
    frame = pd.concat([frame, frame[frame["method"] == "tent"].assign(batch_size=200)], ignore_index=True)
    (group,) = sheet_of_methods.protocols(Report(frame)).groups
    said = " ".join(cell.text for line in group.lines for cell in line)
    assert said.count("atch size 200") == said.count("atch size 64") == 1
    assert words.measured(tables.tables(frame)).endswith("; exceptions: table of protocols.")


def test_the_origin_of_defaults_is_not_that_of_settings_that_a_user_set() -> None:
    frame = cells(("source", "tent[lr=0.01]", "eata"), ("cct",), corruptions=("fog",))
    (group,) = sheet_of_methods.given(Report(frame)).groups
    settings = {line[0].text: line[5].text for line in group.lines}
    assert settings["TENT"].startswith("lr=0.01; otherwise: the official")
    assert "user" not in settings["EATA"]


def test_two_compute_ratios_of_one_method_are_two_rows_with_two_names() -> None:
    """Both are in the sheets, which know rows by their names."""
    paced = [
        cells(("source", "tent"), ("cct",), pace=1.0, pace_ratio=ratio, accuracy=lambda row: 70.0)
        for ratio in (2.1, 2.3)
    ]
    frame = pd.concat([paced[0], paced[1].query("method == 'tent'")], ignore_index=True)
    frame["pace_ratio"] = frame["pace_ratio"].where(frame["method"] == "tent", 1.0)
    names = [f"tent (compute ratio {ratio})" for ratio in (2.1, 2.3)]
    assert summary(frame)["method"].tolist() == ["source", *names]
    (sheet,) = drops(Report(frame))
    assert sum(len(group.lines) for group in sheet.groups) == 3


@each("over", ["dataset", "severity"])
def test_what_is_said_of_one_row_of_a_line_is_marked_at_its_number(over: str) -> None:
    """Also where the accuracy of one dataset alone has an alarm, or is stale."""
    values: dict[str, Any] = {"dataset": ("cifar10-c", "cifar100-c"), "severity": (3, 5)}
    frame = cells(**({"datasets": values[over]} if over == "dataset" else {"severities": values[over]}))
    first, second = ({over: value} for value in values[over])
    for method, places in (("tent", [second]), ("quantile", [first, second])):
        for place in places:
            frame.loc[where(frame, method=method, arch="cct", **place), "alarm"] = "collapse: 2 of 10 classes"
    frame.loc[where(frame, method="source", arch="cct", **first), "stale"] = True
    (sheet,) = (drops if over == "dataset" else sheets_of_means.severities)(Report(frame))
    lines = {line[1].text: line for line in sheet.groups[0].blocks[1]}
    (alarm,) = (mark for mark, text in sheet.used_notes if "collapse" in text)
    at = (4, 7) if over == "dataset" else (3, 4)  # the means of the first, and of the second
    marks = {name: (line[1].marks, *(line[column].marks for column in at)) for name, line in lines.items()}
    assert marks == {"Source": ("", "‡", ""), "TENT": ("", "", alarm), "Quantile": ("†" + alarm, "", "")}


def test_the_shape_is_the_papers() -> None:
    table = per_corruption(cells())
    assert [c for c in table.columns if c in NUMBERS] == NUMBERS
    rows = list(table[["arch", "method", "row"]].itertuples(index=False, name=None))
    assert rows == [
        (arch, *row)
        for arch in ("resnet18", "cct")
        for row in (
            ("source", "accuracy"),
            ("tent", "accuracy"), ("tent", "increase"),
            ("quantile", "accuracy"), ("quantile", "increase"),  # offline methods come last
        )
    ]  # fmt: skip


def test_numbers_are_the_cells_their_mean_and_their_distance_from_source() -> None:
    frame = cells()
    table = per_corruption(frame)
    source, tent = (accuracies(frame, arch="cct", method=m) for m in ("source", "tent"))
    shown = line(table, arch="cct", method="tent", row="accuracy")[NUMBERS].to_numpy(float)
    rise = line(table, arch="cct", method="tent", row="increase")[NUMBERS].to_numpy(float)
    np.testing.assert_allclose(shown, [*tent, tent.mean()])
    np.testing.assert_allclose(rise, [*(tent - source), (tent - source).mean()], atol=1e-9)


def test_order_of_the_cells_changes_nothing() -> None:
    frame = cells(seeds=(0, 1, 2))
    shuffled = frame.sample(frac=1, random_state=3)
    pd.testing.assert_frame_equal(per_corruption(frame), per_corruption(shuffled))
    pd.testing.assert_frame_equal(summary(frame), summary(shuffled))


def test_seeds_are_averaged_and_their_spread_is_that_of_the_seeds_means() -> None:
    frame = cells(seeds=(0, 1, 2))
    table = per_corruption(frame)
    tent = frame[where(frame, arch="cct", method="tent")]
    grid = tent.pivot(index="seed", columns="corruption", values="accuracy")[list(CORRUPTIONS)].to_numpy()
    shown = line(table, arch="cct", method="tent", row="accuracy")
    sd = line(table, arch="cct", method="tent", row="sd")
    np.testing.assert_allclose(shown[NUMBERS].to_numpy(float), [*grid.mean(0), grid.mean()])
    np.testing.assert_allclose(sd[NUMBERS].to_numpy(float), [*grid.std(0, ddof=1), grid.mean(1).std(ddof=1)])
    assert shown["seeds"] == 3
    assert "over 3 seeds" in tables.tables(frame)[0].measured
    assert "sd" not in set(per_corruption(cells())["row"])


def test_a_method_that_does_not_apply_is_na_with_its_reason(tmp_path: Path) -> None:
    frame = spoil(cells(), "n/a", "no batch norm", arch="cct", method="tent")
    table = per_corruption(frame)
    shown = line(table, arch="cct", method="tent")  # and no Increase row
    assert shown[NUMBERS].isna().all()
    assert shown["notes"] == "n/a: no batch norm"
    csv_files.write(frame, tmp_path)
    text = (tmp_path / "per_corruption.csv").read_text()
    assert ",".join(["n/a"] * 16) in text
    read = pd.read_csv(tmp_path / "per_corruption.csv")
    assert all(read[column].dtype == float for column in NUMBERS)


def test_one_failed_cell_leaves_no_mean_but_everything_else() -> None:
    frame = spoil(cells(), "failed", "the logits hold NaN", arch="cct", method="tent", corruption="fog")
    table = per_corruption(frame)
    shown = line(table, arch="cct", method="tent", row="accuracy")
    rise = line(table, arch="cct", method="tent", row="increase")
    others = [c for c in CORRUPTIONS if c != "fog"]
    assert np.isnan(shown["mean"])
    assert np.isnan(rise["mean"])
    assert np.isnan(rise["fog"])
    assert shown[others].notna().all()
    assert rise[others].notna().all()
    assert "failed: the logits hold NaN (fog)" in shown["notes"]
    assert "14 of 15" in shown["notes"]
    assert line(table, arch="resnet18", method="tent", row="accuracy")[NUMBERS].notna().all()
    (built,) = tables.tables(frame)
    row = next(r for r in built.rows if (r.arch, r.method, r.kind) == ("cct", "tent", "method"))
    assert row.words == {"fog": "failed", "mean": "–"}


def test_a_cell_that_never_ran_leaves_no_mean() -> None:
    frame = cells()
    frame = frame[~where(frame, arch="cct", method="tent", corruption="snow")]
    shown = line(per_corruption(frame), arch="cct", method="tent", row="accuracy")
    assert np.isnan(shown["mean"])
    assert "14 of 15" in shown["notes"]


def test_a_seed_that_failed_is_said_and_leaves_no_mean() -> None:
    whole = cells(seeds=(0, 1, 2))
    frame = spoil(whole, "failed", "out of memory", arch="cct", method="tent", corruption="fog", seed=1)
    table = per_corruption(frame)
    shown = line(table, arch="cct", method="tent", row="accuracy")
    kept = whole[where(whole, arch="cct", method="tent", corruption="fog") & (whole["seed"] != 1)]
    assert shown["fog"] == pytest.approx(kept["accuracy"].mean())
    assert "seed 1 failed: out of memory" in shown["notes"]
    assert np.isnan(shown["mean"])
    assert np.isnan(line(table, arch="cct", method="tent", row="sd")["mean"])
    assert np.isnan(line(table, arch="cct", method="tent", row="increase")["fog"])


def test_what_is_said_of_a_seed_that_failed_everywhere_holds_beside_a_dash_too() -> None:
    frame = spoil(cells(seeds=(0, 1, 2)), "failed", "out of memory", method="tent", seed=1)
    sheet = sheets_of_means.summary(Report(frame))
    tent = [line for line in sheet.groups[0].lines if line[1].text == "TENT"]
    assert [line[4].text for line in tent] == ["–", "–"]
    (mark,) = {line[1].marks for line in tent}
    said = "seed 1 failed: out of memory; numbers are means of the other seeds"
    assert dict(sheet.used_notes)[mark] == said


@pytest.mark.parametrize(
    ("seeds_of_source", "held_out", "said"),
    [([0], 0.0, False), ([0], 0.2, True), ([1, 2], 0.2, True), ([0, 1], 0.2, False)],
)
def test_an_increase_over_source_with_other_seeds_is_said(
    seeds_of_source: list[int], held_out: float, said: bool
) -> None:
    frame = cells(("source", "tent"), ("cct",), seeds=(0, 1, 2)).assign(held_out=held_out)
    kept = frame["seed"].isin(seeds_of_source).where(frame["base"] == "source", frame["seed"] < 2)
    (table,) = tables.tables(frame[kept])
    (tent,) = (row for row in table.rows if row.kind == "method")
    assert (OTHER_SEEDS in tent.remarks.get("", ())) is said


def test_an_offline_method_does_not_see_the_images_that_are_held_out() -> None:
    everything = cells(("source", "quantile"), ("cct",))
    held_out = everything.assign(held_out=0.5)
    for frame, seen in (
        (everything, "all unlabelled test images before any"),
        (held_out, "all unlabelled test images that are not held out before any"),
        (pd.concat([everything, held_out]), "all unlabelled test images that are not held out before any"),
    ):
        report = Report(frame)
        console = Console(file=io.StringIO(), width=300)
        console.print(terminal.render(frame))
        sheet = sheets_of_means.summary(report)
        footer = sheet_of_methods.protocols(report).footer
        said = {"†": f"offline: sees {seen} is scored"}
        assert dict(sheet.used_notes)["†"] == said["†"]
        assert f"† {said['†']}" in console.file.getvalue()
        assert ("Offline, a method sees all images that are not held out" in footer) is ("held" in seen)
        assert said["†"] in means_of(report.tables)["notes"].iloc[-1]


def test_a_seed_that_never_ran_is_said_too() -> None:
    frame = cells(seeds=(0, 1))
    frame = frame[~where(frame, arch="cct", method="tent", corruption="fog", seed=1)]
    shown = line(per_corruption(frame), arch="cct", method="tent", row="accuracy")
    assert "not measured in every seed" in shown["notes"]
    assert np.isnan(shown["mean"])


@each(
    ("column", "value", "shown"),
    [
        ("fingerprint", "other-data", "data other-da"),
        ("limit", 100, "first 100 images"),
        ("order", "dirichlet(0.1)", "dirichlet(0.1) order"),
        ("reset", "continual", "continual"),
        ("contamination", "noise(0.2)", "contaminated by noise(0.2)"),
        ("precision", "bfloat16", "bfloat16"),
    ],
)
def test_another_stream_is_another_table_that_names_the_difference(
    column: str, value: object, shown: str
) -> None:
    some = {"methods": ("source", "tent"), "archs": ("cct",), "corruptions": ("fog", "snow")}
    first, second = cells(**some), cells(**some, **{column: value}, accuracy=lambda row: 10.0)
    built = tables.tables(pd.concat([first, second]))
    assert len(built) == 2
    assert sum(shown in table.title for table in built) == 1
    assert len({table.title for table in built}) == 2
    means = summary(pd.concat([first, second]))["accuracy"]
    np.testing.assert_allclose(
        sorted(means), sorted([*summary(first)["accuracy"], *summary(second)["accuracy"]])
    )


@pytest.mark.parametrize(
    ("column", "value", "shown"),
    [
        ("checkpoint", "other-weights", "weights other-we"),
        ("mode", "offline", "offline"),
        ("batch_size", 16, "batch size 16"),
        ("config", '{"lr":0.01,"steps":2}', "lr=0.01,steps=2"),
        ("config", '{"lr":0.001,"steps":2}', "(steps=2)"),
    ],
)
def test_another_setting_is_another_row_that_names_the_difference(
    column: str, value: object, shown: str
) -> None:
    first = cells(methods=("source", "tent"), archs=("cct",))
    second = cells(methods=("tent",), archs=("cct",), accuracy=lambda row: 10.0, **{column: value})
    (built,) = tables.tables(pd.concat([first, second]))
    rows = {row.method: row.value("mean") for row in built.rows if row.kind == "method"}
    assert len(rows) == 2
    assert sum(shown in label for label in rows) == 1
    assert sorted(rows.values())[0] == pytest.approx(10.0)
    assert sorted(rows.values())[1] == pytest.approx(first[first["method"] == "tent"]["accuracy"].mean())


def test_both_modes_of_a_method_share_the_source_row_and_only_the_offline_one_is_named() -> None:
    asked = {"archs": ("cct",), "accuracy": lambda row: 50.0 + 10 * (row["base"] == "tent")}
    online = cells(methods=("source", "tent"), written=2.0, **asked)
    offline = cells(methods=("source", "tent"), mode="offline", epochs=3, batch_size=64, written=3.0, **asked)
    offline.loc[where(offline, method="source"), "compute_ratio"] = 4.0
    for order in ([online, offline], [offline, online]):
        (built,) = tables.tables(pd.concat(order))
        rows = [row for row in built.rows if row.measured]
        assert [row.method for row in rows] == ["source", "tent", "tent (offline)"]
        assert [row.plain_name for row in rows] == ["Source", "TENT", "TENT"]
        assert [row.flags for row in rows] == ["", "", "†"]
        assert rows[0].about["mode"] == "online"
        assert np.isnan(rows[0].about["compute_ratio"])  # the cells of online mode are those shown
        assert rows[1].baseline is rows[0]
        assert rows[2].baseline is rows[0]
        assert built.protocol.endswith(". Offline, batch size 64, 3 epochs: TENT")
    more = cells(methods=("tent",), mode="offline", epochs=10, batch_size=64, **asked)
    (built,) = tables.tables(pd.concat([online, offline, more]))
    names = [row.name for row in built.rows if row.measured]
    assert names == ["Source", "TENT", "TENT (offline, 3 epochs)", "TENT (offline, 10 epochs)"]
    (built,) = tables.tables(spoil(offline, "failed", "no memory", method="tent"))
    assert "batch size 64" in built.protocol  # as it was planned, where all failed
    (built,) = tables.tables(offline)
    assert [row.name for row in built.rows if row.measured] == ["Source", "TENT"]


def test_the_protocol_of_source_alone_and_of_methods_that_all_failed_is_said_everywhere() -> None:
    """In captions of all tables, and in the table of protocols."""
    planned = cells(methods=("source", "tent"), archs=("cct",))
    failed = spoil(planned, "failed", "no memory")
    for frame, name in ((cells(methods=("source",)), "Source"), (failed, "TENT")):
        report = Report(frame)
        assert "Protocol: online, batch size 200" in sheets_of_means.summary(report).caption
        (group,) = sheet_of_methods.protocols(report).groups
        ((line,),) = group.blocks
        assert (line[0].text[:22], line[1].text) == ("online, batch size 200", name)


def test_increase_is_over_the_source_of_the_same_weights() -> None:
    old = cells(
        methods=("source", "tent"), archs=("cct",), accuracy=lambda r: 50.0 + 5 * (r["base"] == "tent")
    )
    new = cells(
        methods=("source", "tent"), archs=("cct",), checkpoint="new",
        accuracy=lambda r: 80.0 + 2 * (r["base"] == "tent"),
    )  # fmt: skip
    table = per_corruption(pd.concat([old, new]))
    rises = table[table["row"] == "increase"]["mean"].tolist()
    assert sorted(rises) == pytest.approx([2.0, 5.0])
    orphan = per_corruption(pd.concat([old[old["base"] == "source"], new[new["base"] == "tent"]]))
    assert "increase" not in set(orphan["row"])


def test_offline_stale_and_alarm_are_marked() -> None:
    frame = cells()
    frame["stale_because"] = ""
    frame.loc[where(frame, arch="cct", method="tent"), ["stale", "stale_because"]] = True, "a/nn.py changed"
    frame.loc[where(frame, arch="cct", method="tent", corruption="fog"), "alarm"] = "1 class is predicted"
    (built,) = tables.tables(frame)
    rows = {(row.arch, row.method): row for row in built.rows if row.measured}
    assert rows["cct", "quantile"].flags == "†"
    assert rows["cct", "tent"].flags == "‡"
    assert rows["cct", "source"].flags == ""
    assert built.notes.text(rows["cct", "tent"].letters["fog"]) == "alarm: 1 class is predicted"
    assert not np.isnan(rows["cct", "tent"].value("mean"))  # an alarm is a warning, the number stands
    assert built.notes.text(rows["cct", "tent"].letters[""]) == "since then a/nn.py changed"
    assert built.notes.text(rows["cct", "tent"].letters["mean"]) == "alarm under 1 of 15 corruptions"
    assert [mark for mark, _ in built.legend(built.columns)] == ["†", "‡", "a", "b", "c"]
    (said,) = (text for text in sheets_of_means.summary(Report(frame)).notes.values() if "alarm" in text)
    assert said == "alarm under 1 of 15 corruptions"


def test_extra_corruptions_have_a_mean_of_their_own() -> None:
    frame = cells(corruptions=(*CORRUPTIONS, *EXTRA_CORRUPTIONS))
    table = per_corruption(frame)
    shown = line(table, arch="cct", method="tent", row="accuracy")
    mine = frame[where(frame, arch="cct", method="tent")].set_index("corruption")["accuracy"]
    assert shown["mean"] == pytest.approx(mine[list(CORRUPTIONS)].mean())
    assert shown["mean_extra"] == pytest.approx(mine[list(EXTRA_CORRUPTIONS)].mean())
    only = per_corruption(frame[frame["corruption"].isin(EXTRA_CORRUPTIONS)])
    mean = line(only, arch="cct", method="tent", row="accuracy")["mean"]
    assert mean == pytest.approx(mine[list(EXTRA_CORRUPTIONS)].mean())


def test_a_mean_over_a_part_of_the_fifteen_says_so() -> None:
    (built,) = tables.tables(cells(corruptions=("fog", "snow")))
    assert built.main == ("snow", "fog")  # canonical order
    assert "The mean is over 2 of the 15 corruptions: Snow, Fog." in built.measured
    (most,) = tables.tables(cells(corruptions=CORRUPTIONS[2:]))
    assert "The mean is over 13 of the 15 corruptions, without Gaussian, Shot." in most.measured
    assert "The mean is over" not in tables.tables(cells())[0].measured
    for extra, said in ((EXTRA_CORRUPTIONS, "4 extra corruptions"), (("spatter",), "1 extra corruption")):
        (built,) = tables.tables(cells(corruptions=extra))
        assert f"over {said}, none of the usual 15" in built.measured


def test_tables_of_means_say_that_corruptions_are_mixed_in_one_stream() -> None:
    report = Report(cells(corruptions=("mixed",)))
    said = "The 15 corruptions are mixed in one stream, each image under one of them."
    for sheet in (sheets_of_means.summary(report), sheets_of_means.statistics(report)):
        assert said in sheet.footer
    (caption,) = (drawing.caption for drawing in all_bars(report))
    assert said in caption
    assert "1 corruption" not in caption


def test_the_caption_gives_the_protocol_in_full() -> None:
    (built,) = tables.tables(cells(methods=("source", "tent")))
    assert "online, batch size 200, iid order, reset per corruption, all images" in built.measured
    (mixed,) = tables.tables(cells())
    assert "online, batch size 200, iid order" in mixed.measured
    assert "all images. Offline, batch size 128: Quantile." in mixed.measured
    odd = cells(methods=("source", "tent", "sar", "eata"))
    odd.loc[odd["method"].isin(["tent", "sar"]), "batch_size"] = 64
    assert "batch size 64, iid" in tables.tables(odd)[0].measured  # what most have; Source counts for nothing
    assert ". Batch size 200: EATA." in tables.tables(odd)[0].measured


def test_continual_runs_in_two_orders_are_not_averaged() -> None:
    first = continual(cells(), CORRUPTIONS)
    second = continual(cells(written=1.8e9, accuracy=lambda row: 10.0), CORRUPTIONS[::-1])
    (built,) = tables.tables(pd.concat([second, first]))
    assert {row.value("mean") for row in built.rows if row.measured} == {10.0}
    assert "Left out: 60 cells of continual runs in another order" in built.measured
    both = tables.tables(pd.concat([second, first, cells()]))
    assert {table.key["reset"]: "another order" in table.measured for table in both} == {
        "continual": True, "per_corruption": False,
    }  # fmt: skip


@pytest.mark.parametrize("order", [("frost", "fog"), ("snow", "fog", "frost")])
def test_a_mean_is_not_over_cells_of_two_continual_runs(order: tuple[str, ...]) -> None:
    """The run with the most cells is shown, or the latest of two; columns of the other one stay empty."""
    first = continual(cells(("tent",), ("cct",), accuracy=lambda row: 70.0), ("fog", "snow"))
    later = continual(cells(("tent",), ("cct",), written=1.8e9, accuracy=lambda row: 90.0), order)
    (built,) = tables.tables(pd.concat([first, later]))
    (row,) = (row for row in built.rows if row.measured)
    assert row.value("fog") == row.value("frost") == 90.0
    assert ("snow" in row.values) == ("snow" in order)
    assert "Left out: 2 cells of continual runs" in built.measured


def test_a_continual_run_that_was_extended_is_one_run() -> None:
    run = continual(cells(("source", "tent"), ("cct",), seeds=(0, 1)), CORRUPTIONS)
    (built,) = tables.tables(run)
    assert all(len(row.values) > len(CORRUPTIONS) for row in built.rows if row.measured)
    assert "Left out" not in built.measured


def test_the_table_of_protocols_says_how_many_seeds_each_method_has() -> None:
    """The caption has the numbers of the methods; Source may have others."""
    frame = cells(("source", "tent", "sar"), ("cct",), seeds=(0, 1, 2, 3, 4))
    same = frame[(frame["base"] != "source") | (frame["seed"] == 0)]
    for made, seeds, said in (
        (same, "5", "SAR, TENT"),
        (same[(same["base"] != "tent") | (same["seed"] < 3)], "3 to 5", "SAR (5 seeds), TENT (3 seeds)"),
    ):
        report = Report(made)
        assert [table.seeds for table in report.tables] == [seeds]
        assert sheet_of_methods.protocols(report).groups[0].lines[0][1].text == said


def test_the_order_of_a_continual_run_is_named_where_it_is_not_that_of_the_columns() -> None:
    frame = cells(("source", "tent", "sar"), ("cct",))
    for order, said in (
        (["snow", "fog", "contrast"], ""),
        (["contrast", "fog", "snow"], "The corruptions came in this order: Contrast, Fog, Snow."),
    ):
        whole = continual(frame, order)
        part = whole[~((whole["base"] == "sar") & (whole["corruption"] == order[-1]))]
        for made in (whole, part):
            (built,) = tables.tables(made)
            assert built.main == ("snow", "fog", "contrast")
            assert ("came in this order" in built.measured) is bool(said)
            assert said in built.measured


def test_continual_rows_in_another_order_of_corruptions_are_named() -> None:
    """Source does not adapt; what is measured of a run in part begins as the whole one."""
    forth, back = CORRUPTIONS, CORRUPTIONS[::-1]
    usual = continual(cells(("tent", "sar")), forth)
    part = continual(cells(("eata",), ("cct",)), forth[:4])
    for others, named in (
        ([part, continual(cells(("source",)), back)], ""),
        ([continual(cells(("rotta",)), back)], "RoTTA on ResNet18; RoTTA on CCT"),
        ([continual(cells(("rotta", "cotta"), ("cct",)), back)], "CoTTA, RoTTA on CCT"),
    ):
        (built,) = tables.tables(pd.concat([usual, *others]))
        assert ("In another order of corruptions" in built.measured) is bool(named)
        assert f"{named}." in built.measured


def test_a_continual_row_whose_seeds_have_different_orders_says_so() -> None:
    """Each run is whole, so that both seeds count; Source does not adapt, and a run in part is in order."""
    forth, back = (
        continual(cells(seeds=(n,)), order) for n, order in ((0, CORRUPTIONS), (1, CORRUPTIONS[::-1]))
    )
    part = continual(cells(seeds=(1,)), CORRUPTIONS[:4])
    sar = continual(cells(("sar",), ("cct",), seeds=(0, 1)), CORRUPTIONS)
    (built,) = tables.tables(pd.concat([forth, back, sar]))
    named = "TENT, Quantile on ResNet18; TENT, Quantile on CCT."
    assert f"A mean over seeds with different orders of corruptions: {named}" in built.measured
    for other in (forth, pd.concat([forth, part])):
        assert "different orders" not in tables.tables(other)[0].measured


def test_the_seconds_of_a_row_are_those_of_cells_with_a_number() -> None:
    frame = spoil(cells(("source", "tent", "sar"), ("cct",)), "failed", "no memory", method="sar")
    frame = spoil(frame, "failed", "no memory", method="tent", corruption="fog")
    frame.loc[frame["status"] == "failed", "seconds"] = 0.0
    seconds = summary(frame).set_index("method")["seconds_per_cell"]
    assert seconds[["source", "tent"]].tolist() == [1.5, 1.5]
    assert np.isnan(seconds["sar"])


def test_each_row_of_a_network_with_several_weights_names_its_own() -> None:
    """Also a method that was measured with one of them: it stands between rows of the others."""
    one, other = (
        cells(methods, ("cct",), checkpoint=digit * 64)
        for digit, methods in (("a", ("source", "tent")), ("b", ("source", "tent", "sar")))
    )
    alone = cells(("source", "tent"), ("resnet18",))
    (table,) = tables.tables(pd.concat([one, other, alone], ignore_index=True))
    names = {arch: [row.name for row in rows if row.measured] for arch, rows in table.archs().items()}
    assert names["resnet18"] == ["Source", "TENT"]
    a, b = "(weights aaaaaaaa)", "(weights bbbbbbbb)"
    assert names["cct"] == [f"Source {a}", f"TENT {a}", f"Source {b}", f"SAR {b}", f"TENT {b}"]


def test_a_cell_of_a_busy_machine_makes_no_row_slower() -> None:
    frame = cells(("source", "tent"), ("cct", "resnet18"), corruptions=("fog", "snow", "frost"))
    busy = (frame["method"] == "tent") & (frame["corruption"] == "fog")
    frame.loc[busy, "seconds"] = 7200.0
    assert set(summary(frame)["seconds_per_cell"]) == {1.5}
    assert typical_seconds(frame).tolist() == [1.5] * len(frame)
    one = spoil(frame, "failed", "no memory", method="tent", corruption="snow", arch="cct")
    assert typical_seconds(one)[(one["method"] == "tent") & (one["arch"] == "cct")].eq(3600.75).all()


def test_a_cell_that_failed_before_its_weights_existed_is_superseded() -> None:
    frame = cells()
    early = spoil(
        cells(checkpoint="", fingerprint="", written=1.6e9), "failed", "no network", dataset="digits-c"
    )
    pd.testing.assert_frame_equal(per_corruption(pd.concat([early, frame])), per_corruption(frame))


def test_summary_and_drop_follow_from_the_cells() -> None:
    frame = cells(seeds=(0, 1))
    means = summary(frame)
    expected = frame.groupby(["arch", "method"])["accuracy"].mean()
    for row in means.to_dict("records"):
        mean, source = expected[row["arch"], row["method"]], expected[row["arch"], "source"]
        assert row["accuracy"] == pytest.approx(mean)
        assert row["baseline"] == pytest.approx(source)
        if row["method"] == "source":
            assert np.isnan(row["increase"])
        else:
            assert row["increase"] == pytest.approx(mean - source)
    dropped = drop(frame)
    np.testing.assert_allclose(dropped["clean"] - dropped["corrupted"], dropped["drop"])
    np.testing.assert_allclose(dropped["clean"], 98.0)


def test_baseline_stands_beside_a_method_that_has_no_number() -> None:
    frame = spoil(cells(), "n/a", "no batch norm", arch="cct", method="tent")
    row = line(summary(frame), arch="cct", method="tent")
    assert row["baseline"] == pytest.approx(accuracies(frame, arch="cct", method="source").mean())
    assert np.isnan(row["increase"])


def test_the_papers_increase_rows_follow_from_its_accuracies(shared: Path) -> None:
    """Ours from the printed accuracies against the rows as printed; three of those are misprints."""
    known = published.load("quantile2026")
    key = ["dataset", "arch", "base", "corruption"]
    value = known.rename(columns={"method": "base"}).set_index(key)["accuracy"].to_dict()
    frame = cells(
        ("source", "quantile_paper"), tuple(dict.fromkeys(known["arch"])),
        datasets=sorted(set(known["dataset"])),
        accuracy=lambda row: value[tuple(row[name] for name in key)],
    )  # fmt: skip
    table = per_corruption(frame)
    printed = pd.read_csv(shared / "paper/appendix_increase_rows.csv")
    misprints = {("cifar10-c", "cvt", "motion_blur"), ("cifar10-c", "cvt", "zoom_blur"),
                 ("cifar100-c", "cvt", "shot_noise")}  # fmt: skip
    off = set()
    for row in printed.itertuples():
        rise = line(table, dataset=row.dataset, arch=row.arch, row="increase")[row.corruption]
        if abs(rise - row.printed_increase_points) > 0.151:  # three numbers rounded to one decimal
            off.add((row.dataset, row.arch, row.corruption))
    assert off == misprints


def test_published_rows_stand_beside_ours_and_say_so() -> None:
    frame = cells(datasets=("cifar10-c",), n_images=10_000)
    (plain,), (beside,) = tables.tables(frame), tables.tables(frame, published.load())
    added = [row for row in beside.rows if row.kind == "published"]
    ours = [(row.arch, row.method, row.kind) for row in beside.rows if row.kind != "published"]
    assert ours == [(row.arch, row.method, row.kind) for row in plain.rows]
    assert {row.method for row in added if row.arch == "cct"} == {
        "source (quantile2026)",
        "quantile_paper (quantile2026)",
    }
    assert all(row.flags == "§" for row in added)
    papers = next(row for row in added if row.arch == "resnet18" and "quantile_paper (" in row.method)
    assert papers.value("mean") == 79.4
    sotta = next(row for row in added if row.arch == "resnet18" and row.method.startswith("sotta"))
    assert "those of SoTTA's own article" in sotta.remarks[""][0]
    winners = {row for row, _ in best_places(beside)}
    assert not winners & {id(row) for row in added}


@each(
    "changed",
    [{"n_images": 360}, {"order": "dirichlet(0.1)"}, {"contamination": "noise(0.2)"}, {"pace": 1.0}],
)
def test_no_published_row_of_another_setting_stands_beside_ours(changed: dict[str, Any]) -> None:
    frame = cells(("quantile_paper",), datasets=("cifar10-c",), **{"n_images": 10_000, **changed})
    (built,) = tables.tables(frame, published.load("quantile2026", "note2022"))
    added = {row.method for row in built.rows if row.kind == "published"}
    assert added <= ({"source (quantile2026)", "source (note2022)"} if "order" in changed else set())


def test_a_published_mean_of_fifteen_stands_beside_no_mean_of_fewer() -> None:
    (built,) = tables.tables(
        cells(datasets=("cifar10-c",), corruptions=("snow", "fog"), n_images=10_000),
        published.load("quantile2026"),
    )
    added = [row for row in built.rows if row.kind == "published"]
    assert all(row.value("snow") > 0 and np.isnan(row.value("mean")) for row in added)
    assert "over all 15 corruptions" in csv_files.per_corruption([built])["notes"].iloc[-1]


def test_best_is_the_maximum_of_an_architecture_with_ties_as_printed() -> None:
    values = {"source": 70.0, "tent": 90.04, "quantile": 90.01}
    (built,) = tables.tables(cells(accuracy=lambda row: values[row["base"]]))
    best = best_places(built)
    for row in built.rows:
        assert ((id(row), "mean") in best) == (row.measured and row.method != "source")


def test_cells_csv_is_sorted_rounded_and_read_back_the_same(tmp_path: Path) -> None:
    from ttabench_reports.cells.load import read_one as load

    frame = spoil(cells(seeds=(0, 1)), "n/a", "no batch norm", arch="cct", method="tent")
    path = csv_files.write_cells(frame.sample(frac=1, random_state=1), tmp_path / "cells.csv")
    assert path.read_bytes() == csv_files.write_cells(frame, tmp_path / "again.csv").read_bytes()
    head = path.read_text().splitlines()[0].split(",")
    assert [name for name in head if name != "increase"] == list(frame.columns)
    back = load(path).set_index("cell_id").loc[frame["cell_id"]]
    np.testing.assert_allclose(back["accuracy"], frame["accuracy"], atol=5e-5)
    for column in ("status", "reason", "config", "severity", "seed", "mode", "stale"):
        assert back[column].tolist() == frame[column].tolist(), column


def test_files_are_listed_and_written_whole(tmp_path: Path) -> None:
    paths = csv_files.write(cells(), tmp_path / "deep" / "report")
    assert [path.name for path in paths] == [
        "per_corruption.csv", "summary.csv", "drop.csv", "statistics.csv", "cost.csv", "given.csv"
    ]  # fmt: skip
    assert sorted(p.name for p in (tmp_path / "deep" / "report").iterdir()) == sorted(p.name for p in paths)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        csv_files.write(cells(), tmp_path / "file" / "report")


def test_nothing_and_something_else_are_refused() -> None:
    with pytest.raises(UserError, match="no cells"):
        tables.tables(cells().iloc[:0])
    with pytest.raises(UserError, match="no column method, corruption"):
        tables.tables(cells().drop(columns=["method", "corruption"]))
    with pytest.raises(UserError, match="expected percent"):
        tables.tables(cells(accuracy=lambda row: 120.0))
    with pytest.raises(UserError, match="the status 'OK'; expected ok, failed, n/a"):
        tables.tables(cells().replace({"status": {"ok": "OK"}}))


def test_cells_of_an_older_version_still_load() -> None:
    old = cells().drop(columns=["precision", "contamination", "history", "epochs", "alarm", "stale", "base"])
    pd.testing.assert_frame_equal(per_corruption(old), per_corruption(cells()))


def test_one_letter_stands_for_one_kind_with_its_range() -> None:
    frame = cells(methods=("source", "tent"))
    for k, corruption in enumerate(("fog", "snow", "contrast")):
        mask = where(frame, method="tent", arch="cct", corruption=corruption)
        frame.loc[mask, "alarm"] = (
            f"collapse: predictions have {1.2 + k:.1f} effective classes and labels have 10.0"
        )
    (built,) = tables.tables(frame)
    row = next(r for r in built.rows if (r.arch, r.method, r.kind) == ("cct", "tent", "method"))
    assert {row.letters[c] for c in ("fog", "snow", "contrast")} == {"a"}
    assert built.legend(built.columns) == [
        ("a", "alarm: collapse: predictions have 1.2 to 3.2 effective classes and labels have 10.0"),
        ("b", "alarm under 3 of 15 corruptions"),
    ]
    # An older record has the same alarm in other words.
    frame["alarm"] = frame["alarm"].where(
        frame["corruption"] != "snow", "collapse: predictions use 2.2 classes where 10.0 are there"
    )
    (older,) = tables.tables(frame)
    assert ("a", "alarm: collapse: predictions have 1.2 to 3.2 effective classes and labels have 10.0") in (
        older.legend(older.columns)
    )
    # The CSV has each text as it was.
    shown = line(per_corruption(frame), arch="cct", method="tent", row="accuracy")
    assert "predictions have 2.2 effective classes and labels have 10.0 (snow)" in shown["notes"]


@given(st.lists(st.text(st.sampled_from("ab 0123456789.-#\0"), max_size=30), min_size=1, max_size=40))
def test_a_footnote_says_what_was_noted(texts: list[str]) -> None:
    made = notes.Notes()
    letters = [made.letter(text) for text in texts]
    assert len(set(letters)) <= 26
    for text, letter in zip(texts, letters, strict=True):
        if letters.count(letter) == 1 and len(text) <= notes.LONGEST:
            assert made.text(letter) in (text.replace("\0", ""), notes.OTHER)


def test_footnotes_never_run_out() -> None:
    frame = cells(severities=(5,))
    for n, (arch, method, corruption) in enumerate(
        (a, m, c) for a in ("resnet18", "cct") for m in ("tent", "quantile") for c in CORRUPTIONS
    ):
        frame = spoil(
            frame,
            "failed",
            f"reason {chr(97 + n % 26) * (n // 26 + 1)}",
            arch=arch,
            method=method,
            corruption=corruption,
        )
    (built,) = tables.tables(frame)
    assert len(built.notes.texts) == 26
    assert "cells.csv" in built.notes.text("z")


def test_an_extra_corruption_over_fewer_seeds_is_said_and_is_not_bold() -> None:
    every, name = (*CORRUPTIONS, *EXTRA_CORRUPTIONS), EXTRA_CORRUPTIONS[0]
    frame = cells(("source", "tent"), ("cct",), corruptions=every, seeds=(0, 1), accuracy=better)
    frame = frame[~where(frame, method="tent", corruption=name, seed=1)]
    (built,) = tables.tables(frame)
    row = next(r for r in built.rows if r.kind == "method")
    assert row.partial == {name}
    assert name in row.letters
    assert (id(row), name) not in best_places(built)
    assert (id(row), EXTRA_CORRUPTIONS[1]) in best_places(built)


def better(cell: dict[str, Any]) -> float:
    return 70.0 if cell["base"] == "source" else 80.0


def test_a_partial_baseline_gives_no_increase_and_no_bold() -> None:
    frame = cells(seeds=(0, 1), accuracy=lambda row: 90.0 if row["base"] == "source" else 70.0)
    frame = frame[~where(frame, arch="cct", method="source", corruption="fog", seed=1)]
    (built,) = tables.tables(frame)
    source, rise = (
        next(r for r in built.rows if (r.arch, r.method, r.kind) == ("cct", *wanted))
        for wanted in (("source", "source"), ("tent", "increase"))
    )
    assert source.partial == {"fog"}
    assert np.isnan(rise.value("fog"))
    assert np.isnan(rise.value("mean"))
    assert rise.value("snow") == pytest.approx(-20.0)
    assert (id(source), "snow") in best_places(built)
    assert (id(source), "fog") not in best_places(built)  # a number over fewer seeds is never the best
    assert "fog" in source.letters


def test_increase_is_the_difference_of_the_printed_numbers() -> None:
    values = {"source": 61.449, "tent": 72.451}  # 11.002 apart, but 72.5 - 61.4 is printed
    (built,) = tables.tables(cells(("source", "tent"), accuracy=lambda row: values[row["base"]]))
    rise = next(row for row in built.rows if row.kind == "increase")
    assert rise.printed("fog") == 11.1
    assert rise.printed("mean") == 11.1
    assert rise.value("fog") == pytest.approx(11.002)  # CSV: of the cells


def test_display_names_are_the_fields_and_identifiers_stay_in_csv(tmp_path: Path) -> None:
    names = {"bn_stats": "BNStats", "tent[norms=all,lr=1]": "TENT [norms=all, lr=1]", "mine": "mine",
             "quantile+cotta": "Quantile+CoTTA", "tent (batch size 64)": "TENT (batch size 64)",
             "quantile[a=1] (weights 12ab)": "Quantile [a=1] (weights 12ab)"}  # fmt: skip
    assert {label: naming.method(label) for label in names} == names


@each(
    ("label", "config", "name"),
    [
        ("stack", '{"first": "quantile", "second": "cotta"}', "Quantile + CoTTA"),
        (
            "stack (offline)",
            '{"first": "quantile_paper", "second": "tent"}',
            "Quantile (paper) + TENT (offline)",
        ),
        ("stack", "", "Quantile + CoTTA"),  # the defaults
        ("stack[second=lame]", "", "Quantile + LAME"),
        ("stack[second=lame,lr=1]", '{"first": "quantile", "second": "lame"}', "Quantile + LAME [lr=1]"),
        ("stack", "not JSON", "Quantile + CoTTA"),
        ("stacked", "", "stacked"),
    ],
)
def test_a_stack_has_the_names_of_its_two_methods(label: str, config: str, name: str) -> None:
    assert naming.method(label, config) == name


def test_rows_stand_in_the_alphabet_of_the_names_shown_and_variants_of_a_method_together() -> None:
    methods = ("tca", "stack", "sar", "actmad", "aqr", "tent[lr=0.1]", "tent", "source", "bn_stats")
    (table,) = tables.tables(cells(methods, ("cct",)))
    shown = [row.name for row in table.rows if row.measured]
    assert shown == [
        "Source", "ActMAD", "AQR", "BNStats", "LinearTCA", "Quantile + CoTTA", "SAR", "TENT", "TENT [lr=0.1]"
    ]  # fmt: skip
    with naming.chosen({"tca": "Zebra"}):
        assert naming.method_key("tca", "tca") > naming.method_key("tent", "tent")


def test_settings_stand_by_their_size_also_where_they_are_written_with_an_exponent() -> None:
    rates = ("1e-07", "2.5e-06", "1e-05", "0.0001", "0.01")
    methods = ("source", *(f"tent[lr={rate}]" for rate in reversed(rates)))
    (table,) = tables.tables(cells(methods, ("cct",)))
    shown = [row.name for row in table.rows if row.measured]
    assert shown == ["Source", *(f"TENT [lr={rate}]" for rate in rates)]


def test_tables_name_the_methods_of_a_stack_and_csv_files_its_identifier(tmp_path: Path) -> None:
    frame = cells(("source", "stack")).assign(config='{"first": "quantile", "second": "shot"}')
    console = Console(width=200, file=io.StringIO())
    console.print(terminal.render(frame))
    assert "Quantile + SHOT" in console.file.getvalue()  # type: ignore[attr-defined]
    assert set(per_corruption(frame)["method"]) == {"source", "stack"}
    archs = {"resnet18": "ResNet18", "cct": "CCT", "cct_7": "CCT-7", "vit_lite_7": "ViT-Lite-7",
             "cct_7_3x1_32": "CCT-7/3x1/32", "timm/resnet50": "timm/resnet50", "cctx": "cctx"}  # fmt: skip
    assert {arch: naming.arch(arch) for arch in archs} == archs
    datasets = {"cifar10-c": "CIFAR10-C", "digits-c": "Digits-C", "tinyimagenet-c": "TinyImageNet-C",
                "my-own": "my-own", "birds-c-local": "birds-C (own)", "cifar10-c-local": "cifar10-C (own)",
                "real-cifar10-local": "real-cifar10 (own)"}  # fmt: skip
    assert {name: naming.dataset(name) for name in datasets} == datasets
    assert naming.clean("cifar100-c") == "CIFAR100"
    assert naming.clean("birds-c-local") == "birds (own), clean"
    csv_files.write(cells(), tmp_path)
    text = "".join(path.read_text() for path in tmp_path.iterdir())
    assert "TENT" not in text
    assert "CCT" not in text


def test_what_a_method_was_given_is_in_every_csv(tmp_path: Path) -> None:
    frame = cells()
    frame.loc[frame["base"] == "quantile", "config"] = '{"epochs": 7, "source_features": 500}'
    for path in csv_files.write(frame, tmp_path):
        table = pd.read_csv(path)
        mine = table[table["method"] == "quantile"].iloc[0]
        assert mine["mode"] == "offline", path.name
        assert mine["source_data"] == "features of 500 source images", path.name
        assert mine["epochs" if path.name == "given.csv" else "epochs_seen"] == 7, path.name
        assert set(table.loc[table["method"] == "tent", "source_data"]) == {"nothing"}
    methods = pd.read_csv(tmp_path / "given.csv").set_index("method")
    assert "eval mode" in methods.loc["tent", "deviations"]  # what the method's file says
    assert "standard deviation" in methods.loc["quantile", "deviations"]
    assert methods.loc["source", "deviations"] == "none"


@each(
    ("about", "source", "short"),
    [
        ({"source_data": ""}, "nothing", "–"),
        ({"source_data": "images", "config": '{"source_images": 32}'}, "32 source images", "I 32"),
        ({"source_data": "images", "config": '{"fisher_images": 0}'}, "all source images", "I all"),
        ({"source_data": "features", "source_used": "features (10,000 images); channels (50 images)"},
         "features (10,000 images); channels (50 images)", "F 10k"),
        ({"source_data": "statistics", "source_used": "quantiles per channel (1,197 images)"},
         "quantiles per channel (1,197 images)", "S 1197"),
        ({"source_data": "features", "mode": "offline", "config": '{"epochs": 6}'},
         "features of source images", "F, 6 ep."),
        ({"source_data": "", "mode": "offline", "epochs": 3, "config": '{"epochs": 6}'}, "nothing", "3 ep."),
        ({"source_data": "", "mode": "offline", "config": '{"first": "quantile", "second": "cotta"}'},
         "nothing", "11 ep."),  # ten passes, then one
        ({"source_data": "", "mode": "offline", "epochs": 3,
          "config": '{"first": "quantile", "second": "cotta"}'}, "nothing", "6 ep."),
        ({"source_data": "", "chosen": "lr: chosen on the extra corruptions."}, "nothing", "T"),
        ({"source_data": "images", "chosen": "The paper's; lr tuned on an extra corruption"},
         "source images", "I, T"),
        ({"source_data": "", "dataset": "digits-c", "chosen": "Old. On digits-c, tuned on extra corruption"},
         "nothing", "T"),
        ({"source_data": "", "dataset": "cifar10-c", "chosen": "Old. On digits-c, tuned on extra corruption"},
         "nothing", "–"),
        ({"source_data": "", "chosen": "Not the paper's, but tuned on extra corruptions"}, "nothing", "T"),
        *(({"source_data": "", "chosen": text}, "nothing", "T") for text in (
            "The paper has no learning rate for CIFAR, so lr was chosen on the extra corruptions.",
            "`warmup` is not in the paper and was tuned on the extra corruptions.",
            "lr, which the paper does not state, was chosen on the extra corruptions.",
        )),
        *(({"source_data": "", "chosen": denial}, "nothing", "–") for denial in (
            "Nothing was tuned: the extra corruptions were not used.",
            "No setting was chosen on the extra corruptions.",
            "The paper's; lr was never tuned on an extra corruption",
            "Chosen without the extra corruptions.",
        )),
    ],
)  # fmt: skip
def test_what_was_given_in_words_and_in_short(about: dict[str, Any], source: str, short: str) -> None:
    """`chosen` is what the docstring of the method's Config says."""
    parts = json.loads(facts("stack", "quantile", "cotta"))["parts"]
    plain = {
        "about_method": json.dumps({"settings_from": about.get("chosen", ""), "parts": parts}),
        "mode": "online",
        "epochs": 0,
        "batch_size": 200,
        "base": "tent",
        "method": "tent",
        "config": "{}",
    }
    had = given_.given(plain | about)
    assert (had.source, had.short) == (source, short)


@each(
    ("about", "source", "short"),
    [
        ({"base": "quantile", "config": '{"source_features": 10000}'},
         "features of 10000 source images", "F 10k, T"),
        ({"base": "stack"}, "features of source images", "F, T"),
        ({"base": "aqr"}, "statistics of source images", "S"),
        ({"base": "come", "config": '{"host": "eata"}'}, "source images", "I"),
        ({"base": "tent"}, "nothing", "–"),
        ({"base": "nosuch"}, "n/a", "n/a"),
    ],
)  # fmt: skip
def test_a_method_that_could_not_run_needs_what_its_class_declares(
    about: dict[str, Any], source: str, short: str
) -> None:
    plain = {"mode": "online", "epochs": 0, "batch_size": 200, "source_data": "", "measured": 0}
    plain |= {"about_method": facts(about["base"], "eata"), "config": "{}", "method": about["base"]}
    had = given_.given({**plain, **about})
    assert (had.source, had.short) == (source, short)
    measured = given_.given({**plain, **about, "measured": 15})
    assert measured.source == "nothing"  # the result says so


def test_a_row_of_cells_that_are_not_there_says_what_the_method_needs() -> None:
    frame = spoil(cells(("source", "quantile")), "n/a", "no batch norm", method="quantile", arch="cct")
    frame.loc[frame["status"] == "n/a", ["source_data", "config"]] = ["", "{}"]
    rows = tables.tables(frame)[0].rows
    (row,) = [row for row in rows if row.arch == "cct" and row.kind == "method"]
    assert given_.given(row.about).source == "features of source images"


@each(
    ("label", "config", "settings"),
    [
        ("quantile", "{}", "defaults"),
        ("quantile", '{"epochs": 10, "views": true, "lr": 0.003}', "defaults"),
        ("quantile", '{"epochs": 3, "per_class": 0.0, "views": false}', "epochs=3, per_class=0, views=false"),
        (
            "deyo[plpd_limit=0.3]",
            '{"plpd_limit": 0.3, "lr": 0.005, "patches": 4}',
            "plpd_limit=0.3, lr=0.005",
        ),
        ("tent[norms=all] (offline)", '{"norms": "all", "lr": 0.001}', "norms=all"),
        ("poem", '{"gamma": 0.07, "lr": 0.00025}', "gamma=0.07, lr=0.00025"),
        ("nosuch", '{"lr": 1.0}', "defaults"),
    ],
)
def test_settings_are_those_that_differ_from_the_defaults_also_where_the_label_has_none(
    label: str, config: str, settings: str
) -> None:
    base = label.partition("[")[0]
    about = {"mode": "online", "epochs": 0, "batch_size": 200, "base": base, "method": label}
    assert given_.given({**about, "config": config, "about_method": facts(base)}).settings == settings


def test_a_method_that_ran_on_one_network_was_not_given_something_else_on_the_others() -> None:
    """A cell that did not run does not say how many source images were used."""
    frame = cells(("source", "foa")).assign(source_data="images", source_used="images (32 images)")
    lacking = where(frame, method="foa", arch="cct")
    frame = spoil(frame, "n/a", "no vision transformer", method="foa", arch="cct")
    frame.loc[lacking, ["source_data", "source_used"]] = ""
    given_to_foa = csv_files.methods_given(tables.tables(frame)).query("method == 'foa'")
    assert given_to_foa["source_data"].tolist() == ["images (32 images)"]
    (group,) = sheet_of_methods.given(Report(frame)).groups
    assert [line[4].text for line in group.lines if line[0].text == "FOA"] == ["images (32 images)"]
    nowhere = spoil(frame, "n/a", "no vision transformer", method="foa")
    assert "foa" in set(csv_files.methods_given(tables.tables(nowhere))["method"])


def test_tuned_methods_are_marked_in_tables_and_the_others_are_not() -> None:
    frame = cells(("source", "tent", "quantile"))
    methods = csv_files.methods_given(tables.tables(frame)).set_index("method")
    assert "chosen on the four extra corruptions" in methods.loc["quantile", "settings_chosen"]
    assert "CIFAR-10-C configuration" in methods.loc["tent", "settings_chosen"]
    given = {row.method: given_.given(row.about) for row in tables.tables(frame)[0].rows if row.measured}
    assert given["quantile"].tuned
    assert not given["tent"].tuned
    ours = {name: cls for name, cls in registered().items() if cls.__module__.startswith("ttabench_methods")}
    chosen = {name: facts_of(cls)["settings_from"] for name, cls in ours.items()}
    assert {name for name, text in chosen.items() if given_._is_tuned(text, "digits-c")} == {
        "actmad", "deyo", "foa", "quantile", "quantile_aqr", "quantile_paper", "quantile_selected",
        "quantile_strict", "stack",
    }  # fmt: skip
    console = Console(width=120, file=io.StringIO())
    console.print(terminal.render(frame))
    text = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert "Settings were chosen on the extra corruptions for: Quantile." in text


def test_planned_cells_that_are_missing_are_told_in_every_csv_table(tmp_path: Path) -> None:
    half = cells()
    half = half[(half["method"] != "tent") | (half["arch"] != "cct")]
    whole = {path.name: pd.read_csv(path) for path in csv_files.write(half, tmp_path / "whole")}
    (line,) = half.loc[half["method"] == "tent", ["dataset", "severity"]].drop_duplicates().to_dict("records")
    place = {"dataset": line["dataset"], "severity": line["severity"], "corruptions": ("fog",)}
    half.attrs[MISSING] = (
        Missing(method="tent", base="tent", arch="cct", cells=7, **place),
        Missing(method="tent", base="tent", arch="resnet18", cells=1, **place),
    )
    for path in csv_files.write(half, tmp_path / "half"):
        result = pd.read_csv(path)
        if path.name == "given.csv":
            continue
        assert len(result) == len(whole[path.name]) + 1, path.name
        assert (result.dtypes == whole[path.name].dtypes)[["arch", "method", "notes"]].all()
        (note,) = result.loc[(result["method"] == "tent") & (result["arch"] == "cct"), "notes"]
        assert note == "missing: 7 planned cells", path.name
        if path.name != "cost.csv":  # it counts the cells
            noted = result.loc[(result["method"] == "tent") & (result["arch"] == "resnet18"), "notes"]
            assert "1 planned cell is missing" in str(noted.iloc[0]), path.name


@pytest.mark.parametrize("other", [{"mode": "offline"}, {"batch_size": 300}])
def test_a_source_cell_that_failed_does_not_hide_one_with_a_number(other: dict[str, Any]) -> None:
    frame = cells(("source", "tent"), ("cct",))
    again = frame[frame["method"] == "source"].assign(cell_id=lambda f: [f"again{n}" for n in range(len(f))])
    failed = spoil(frame, "failed", "out of memory", method="source", corruption="fog")
    (table,) = tables.tables(pd.concat([failed, again.assign(**other)], ignore_index=True))
    (source,) = [row for row in table.rows if row.kind == "source"]
    assert source.value("mean") == pytest.approx(frame[frame["method"] == "source"]["accuracy"].mean())
    assert any(row.kind == "increase" for row in table.rows)


def test_a_number_stays_where_its_twin_failed_later() -> None:
    """By the clock: it may have gone back between the failure and the number."""
    frame = cells(("source", "tent"), ("cct",))
    failed = spoil(frame[where(frame, method="tent", corruption="fog")], "failed", "no weights")
    failed = failed.assign(checkpoint="", written=2e9, cell_id="f" * 64)
    both = pd.concat([frame, failed], ignore_index=True)
    (with_twin,), (alone,) = tables.tables(both), tables.tables(frame)
    assert [row.values for row in with_twin.rows] == [row.values for row in alone.rows]


def test_the_mixed_stream_is_not_in_the_mean_of_the_extra_corruptions() -> None:
    frame = cells(
        ("source",), ("cct",), corruptions=(*CORRUPTIONS, *EXTRA_CORRUPTIONS, "mixed"),
        accuracy=lambda row: {"mixed": 40.0}.get(row["corruption"], 90.0),
    )  # fmt: skip
    (table,) = tables.tables(frame)
    assert table.rows[0].value(MEAN_EXTRA) == 90.0
    assert table.rows[0].value("mixed") == 40.0


def test_variants_of_a_method_that_was_planned_and_measured_are_not_missing(tmp_path: Path) -> None:
    frame = pd.concat([cells(archs=("cct",)), cells(("source", "tent"), ("cct",), batch_size=64)])
    one = {"dataset": "digits-c", "severity": 5, "corruptions": ("fog",)}
    frame.attrs[MISSING] = (Missing(method="tent", base="tent", arch="cct", cells=2, **one),)
    csv_files.write(frame, tmp_path)
    methods = pd.read_csv(tmp_path / "summary.csv")["method"].tolist()
    assert "tent" not in methods
    assert sum("tent (" in name for name in methods) == 2


def test_no_corruption_is_called_like_a_column(tmp_path: Path) -> None:
    """Its numbers would stand in this column, or those of the column under it."""
    frame = cells(seeds=(0, 1))
    columns = {*pd.read_csv(csv_files.write(frame, tmp_path)[0]).columns}
    assert OF_TABLES - columns <= {MEAN_EXTRA}
    assert columns - OF_TABLES == set(CORRUPTIONS)
    with pytest.raises(UserError, match="a corruption is called 'mean', as a column of the tables is"):
        tables.tables(frame.replace({"corruption": {"fog": MEAN}}))


def test_no_text_of_a_result_is_a_formula_in_a_spreadsheet(tmp_path: Path) -> None:
    name = '=HYPERLINK("http://x","tent")'
    frame = cells(("source", name), ("cct",), corruptions=(name,))
    tables_of = [path for path in write_published(frame, tmp_path) if path.suffix == ".csv"]
    for path in [*csv_files.write(frame, tmp_path), *tables_of]:
        assert not re.search(r'(^|,)"?=HYPER', path.read_text(), re.MULTILINE), path.name
    path = csv_files.write_cells(frame, tmp_path / "cells.csv")
    assert not re.search(r'(^|,)"?=HYPER', path.read_text(), re.MULTILINE)
    assert name in read_one(path)["method"].tolist()
