"""The ablation table: which cells make one, and that its numbers are theirs."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.unit.conftest import Run
from tests.unit.made_cells import cells, spoil, with_correctness
from tests.unit.stored_results import fill
from tests.unit.tex import compiled
from ttabench.cell import Result
from ttabench.cell.protocol import Protocol
from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench.errors import NothingToReport
from ttabench.store import Store
from ttabench_reports import ablation
from ttabench_reports.cells.missing import Missing
from ttabench_reports.formats.latex.floats import printed
from ttabench_reports.sheets import words
from ttabench_reports.tables.build import tables

BATCHES, POINTS = (50, 128, 1000), (10, 20)


def configured(settings: dict[str, dict[str, Any]], **made: Any) -> pd.DataFrame:
    """Cells of methods by label, each with these settings stored; labels that say nothing of them."""
    frame = cells(("source", *settings), ("cct",), **made)
    configs = {label: json.dumps({"lr": 0.001, **config}) for label, config in settings.items()}
    frame["config"] = frame["method"].map(configs).fillna("{}")
    return frame


def grid(**made: Any) -> pd.DataFrame:
    """quantile under BATCHES × POINTS; the accuracy tells the combination, the corruption and the seed."""
    pairs = dict(enumerate(itertools.product(BATCHES, POINTS)))

    def accuracy(row: dict[str, Any]) -> float:
        place = re.fullmatch(r"quantile\[variant (\d)\]", row["method"])
        if place is None:
            return 30.0
        batch, points = pairs[int(place[1])]
        return 50 + batch / 100 + points / 10 + len(row["corruption"]) / 10 + row["seed"]

    settings = {
        f"quantile[variant {i}]": {"minibatch": b, "quantiles_per_class": q} for i, (b, q) in pairs.items()
    }
    return configured(settings, accuracy=accuracy, **made)


def only(frame: pd.DataFrame) -> ablation.Ablation:
    (actual,), reasons = ablation.ablations(tables(frame))
    assert reasons == []
    return actual


def why_not(frame: pd.DataFrame) -> str:
    actual, (reason,) = ablation.ablations(tables(frame))
    assert actual == []
    return reason


MEAN_LENGTH = sum(map(len, CORRUPTIONS)) / len(CORRUPTIONS)


def expected(batch: int, points: int, seeds: float = 0.0) -> float:
    return 50 + batch / 100 + points / 10 + MEAN_LENGTH / 10 + seeds


def test_lines_have_the_mean_over_the_corruptions_of_each_combination() -> None:
    frame = ablation.lines(only(grid()))
    assert list(frame.columns[:6]) == [
        "dataset", "severity", "arch", "method", "minibatch", "quantiles_per_class"
    ]  # fmt: skip
    seen = frame[["minibatch", "quantiles_per_class"]].astype(int).itertuples(index=False, name=None)
    order = list(seen)
    assert order == [(b, q) for q in POINTS for b in BATCHES]  # as the paper: the first varies fastest
    assert list(frame["accuracy"]) == pytest.approx([expected(*pair) for pair in order])
    assert set(frame["corruptions"]) == {15}
    assert set(frame["notes"]) == {""}


def test_crossed_has_the_first_setting_down_and_the_second_across() -> None:
    frame = ablation.crossed(only(grid()))
    assert list(frame.columns) == ["minibatch", "quantiles_per_class=10", "quantiles_per_class=20"]
    assert list(frame["minibatch"]) == ["50", "128", "1000"]  # numbers in order, not texts
    for batch, *values in frame.astype(float).itertuples(index=False):
        assert values == pytest.approx([expected(batch, points) for points in POINTS])


def test_seeds_are_averaged_and_their_spread_is_told() -> None:
    made = only(grid(seeds=(0, 2)))
    first = ablation.lines(made).iloc[0]
    assert first["accuracy"] == pytest.approx(expected(50, 10, seeds=1.0))
    assert first["sd"] == pytest.approx(2**0.5)
    assert "Mean and standard deviation over 2 seeds." in ablation.sheets.paper(made, "x").caption


def test_numbers_of_seeds_and_epochs_that_differ_are_told_as_a_range() -> None:
    labels = {f"quantile[epochs={epochs}]": epochs for epochs in (1, 5, 10)}
    frame = cells(("source", *labels), ("cct",), corruptions=("fog", "snow"), seeds=(0, 1, 2))
    frame["config"] = [json.dumps({"epochs": labels.get(method, 0)}) for method in frame["method"]]
    most = frame["method"].map(dict(zip(labels, (1, 2, 3), strict=True))).fillna(3)
    sheet = ablation.sheets.paper(only(frame[frame["seed"] < most]), "x")
    assert "deviation over 1 to 3 seeds." in sheet.caption
    assert "; 1 to 10 epochs over the test images." in sheet.footer


def test_absent_and_failed_combinations_say_so_and_are_never_filled() -> None:
    frame = grid()
    frame = spoil(frame, "failed", "out of memory", method="quantile[variant 0]", corruption="fog")
    frame["method"] = frame["config"].map(named).where(frame["base"] == "quantile", "source")
    last = named(json.dumps({"minibatch": 1000, "quantiles_per_class": 20}))
    ((made,), _) = ablation.ablations(tables(frame[frame["method"] != last]), [planned(last)])
    lines = ablation.lines(made).set_index(["minibatch", "quantiles_per_class"])
    assert lines.loc[("1000", "20"), "notes"] == "not run"
    assert "out of memory" in str(lines.loc[("50", "10"), "notes"])
    assert lines["accuracy"].isna().sum() == 2
    sheet = ablation.sheets.paper(made, "x")
    assert "out of memory" in printed(sheet, "page").text
    measured = [(128, 10), (1000, 10), (50, 20), (128, 20)]
    shown = [line[-1].text for line in sheet.groups[0].lines]
    assert shown == ["–", *(f"{expected(*pair):.1f}" for pair in measured), "–"]


def named(config: str) -> str:
    """The label that a sweep gives to a combination, whose default is 128."""
    settings = {k: v for k, v in json.loads(config).items() if k in ("minibatch", "quantiles_per_class")}
    return f"quantile[{','.join(f'{k}={v}' for k, v in settings.items() if v != 128)}]"


def planned(label: str, **other: Any) -> Missing:
    one = {"arch": "cct", "dataset": "digits-c", "severity": 5, **other}
    return Missing(label, "quantile", corruptions=("fog",), cells=1, **one)


def test_combinations_that_were_neither_run_nor_planned_are_not_shown() -> None:
    frame = grid()
    frame["method"] = frame["config"].map(named).where(frame["base"] == "quantile", "source")
    absent = ("quantile[minibatch=1000,quantiles_per_class=20]", "quantile[quantiles_per_class=20]")
    built = tables(frame[~frame["method"].isin(absent)])

    def shown(*missing: Missing) -> list[tuple[str, str]]:
        ((made,), _) = ablation.ablations(built, missing)
        assert len(ablation.sheets.paper(made, "x").groups[0].lines) == len(made.points)
        lines = ablation.lines(made)
        return list(zip(lines["minibatch"], lines["quantiles_per_class"], strict=True))

    run = [("50", "10"), ("128", "10"), ("1000", "10"), ("50", "20")]
    assert shown() == run
    assert shown(planned(absent[0])) == [*run, ("1000", "20")]
    assert shown(planned(absent[1])) == [*run, ("128", "20")]  # its label does not name the default
    assert shown(planned("quantile[quantiles_per_class=30]")) == [*run, ("128", "30")]
    assert shown(planned("quantile[lr=3,minibatch=1000,quantiles_per_class=20]")) == run
    online = Protocol(mode="online", batch_size=128)
    assert shown(planned(absent[0], protocols=((online, 1),))) == run
    assert shown(planned(absent[0], arch="resnet18")) == run


def test_the_best_is_bold_and_the_caption_tells_source_and_protocol() -> None:
    made = only(grid())
    for sheet in (ablation.sheets.paper(made, "x"), ablation.sheets.cross(made, "x")):
        text = printed(sheet, "page").text
        assert re.findall(r"\\textbf{(.*?)}", text) == [f"{expected(1000, 20):.1f}"]
        assert re.findall(r"\\underline{(.*?)}", text) == [f"{expected(1000, 10):.1f}"]
        assert "Source: 30.0." in text
        assert "of Quantile on CCT, Digits-C" in text
        assert "Given of the source data: features of source images" in text
        assert "offline, batch size 128, iid order" in text
        assert "by minibatch and quantiles per class" in text


def test_the_source_of_a_caption_is_the_printed_one_where_settings_have_other_seeds() -> None:
    """Each seed holds out other images, so a row with fewer is compared with a part of Source."""
    settings = {"tent": {}, "tent[lr=0.1]": {"lr": 0.1}}
    frame = configured(settings, seeds=(0, 1), held_out=0.5, accuracy=lambda row: 50.0 + 10 * row["seed"])
    made = only(frame[(frame["method"] != "tent") | (frame["seed"] == 0)])
    assert [row.baseline.value("mean") for row in made.rows.values() if row.baseline] == [50.0, 55.0]
    for sheet in (ablation.sheets.paper(made, "a"), ablation.sheets.cross(made, "b")):
        assert "Source: 55.0." in sheet.caption


def test_one_setting_is_a_single_row() -> None:
    rates = {"tent[a]": {"lr": 0.0001}, "tent[b]": {"lr": 0.01}, "tent[c]": {"lr": 0.001}}
    values = {"tent[a]": 60.0, "tent[b]": 61.0, "tent[c]": 62.0, "source": 50.0}
    made = only(configured(rates, accuracy=lambda row: values[row["method"]]))
    frame = ablation.crossed(made)
    assert frame.to_dict("records") == [
        {"method": "tent", "lr=0.0001": 60.0, "lr=0.001": 62.0, "lr=0.01": 61.0}
    ]
    assert list(ablation.lines(made)["accuracy"]) == pytest.approx([60.0, 62.0, 61.0])


def test_three_settings_are_no_ablation() -> None:
    settings = {
        f"quantile[{i}]": {"minibatch": a, "epochs": b, "size": c}
        for i, (a, b, c) in enumerate(itertools.product((1, 2), (3, 4), ("small", "paper")))
    }
    reason = why_not(configured(settings))
    assert "quantile on cct" in reason
    assert "3 settings differ (epochs, minibatch, size)" in reason


def test_settings_that_never_change_alone_are_no_ablation() -> None:
    pairs = {"quantile[a]": {"x": 1, "y": 1}, "quantile[b]": {"x": 2, "y": 2}}
    assert "x and y always change together" in why_not(configured(pairs))
    cross = {**pairs, "quantile[c]": {"x": 1, "y": 2}}
    assert len(ablation.lines(only(configured(cross)))) == 3


def test_two_incomplete_means_compare_nothing() -> None:
    pairs = {"tent[a]": {"norms": "all"}, "tent[b]": {"norms": "batch"}}
    frame = spoil(configured(pairs), "n/a", "no batch norm", method="tent[b]")
    assert "fewer than two" in why_not(frame)


def test_what_was_not_measured_the_same_way_is_never_in_one_ablation() -> None:
    frame = configured({"tent[a]": {"steps": 1}, "tent[b]": {"steps": 2}})
    other = frame.assign(batch_size=64, cell_id="x" + frame["cell_id"])
    actual, _ = ablation.ablations(tables(pd.concat([frame, other])))
    assert sorted(made.about["batch_size"] for made in actual) == [64, 200]
    mixed = pd.concat([frame[frame["method"] != "tent[b]"], other[other["method"] == "tent[b]"]])
    assert ablation.ablations(tables(mixed)) == ([], [])


def test_ablations_of_several_weights_name_theirs(tmp_path: Path) -> None:
    """In the caption, in the CSV file, and in the names of the files."""
    settings = {"tent[a]": {"lr": 0.1}, "tent[b]": {"lr": 0.2}}
    both = [configured(settings).assign(checkpoint=digit * 64) for digit in "ab"]
    crossings, _ = ablation.ablations(tables(pd.concat(both, ignore_index=True)))
    names = [f"weights {digit * 8}" for digit in "ab"]
    captions = [ablation.sheets.paper(one, "name").caption for one in crossings]
    for name, caption, one in zip(names, captions, crossings, strict=True):
        assert f"TENT on CCT, {name}, " in caption
        assert set(ablation.lines(one)["weights"]) == {name}
    files = {path.name for path in ablation.write(pd.concat(both, ignore_index=True), tmp_path)}
    assert {f"ablation_tent-cct-weights-{d * 8}-digits-c-severity-5.csv" for d in "ab"} <= files
    alone = only(both[0])
    assert "weights" not in ablation.sheets.paper(alone, "name").caption
    assert set(ablation.lines(alone)["weights"]) == {""}


def test_an_ablation_says_which_tests_are_weak_and_which_could_not_be_made() -> None:
    settings = {"tent[a]": {"lr": 0.1}, "tent[b]": {"lr": 0.2}}
    frame = with_correctness(configured(settings, seeds=range(7)), 100, {"tent[a]": 1.0})
    theirs = frame["method"] == "tent[b]"
    for kept, weak, untested in (
        (frame["seed"] >= 0, False, False),
        (frame["seed"] < 3, True, False),
        (theirs ^ (frame["seed"] == 0), False, True),  # the other has the first seed alone
    ):
        footer = ablation.sheets.paper(only(frame[kept]), "name").footer
        assert (words.WEAK in footer) == weak
        assert (words.NOT_TESTED in footer) == untested
    assert words.WEAK not in ablation.sheets.paper(only(configured(settings, seeds=range(3))), "n").footer


def test_a_setting_named_like_a_column_does_not_replace_it() -> None:
    frame = ablation.lines(only(configured({"tent[a]": {"seeds": 7}, "tent[b]": {"seeds": 8}})))
    assert list(frame["tent.seeds"]) == ["7", "8"]
    assert list(frame["seeds"]) == [1, 1]


def test_values_are_told_apart_by_kind() -> None:
    of = ablation.Value.of
    assert of(1) == of(1.0) != of(True)
    assert [v.text for v in sorted(map(of, ("paper", 10, 9.5, True, None)))] == [
        "none", "true", "9.5", "10", "paper"
    ]  # fmt: skip


def test_an_ordinary_sweep_has_none(tmp_path: Path) -> None:
    with pytest.raises(NothingToReport, match="no method ran with several values"):
        ablation.write(cells(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_files_are_well_formed_and_compile(tmp_path: Path) -> None:
    frame = spoil(grid(datasets=("my_data%", "cifar10-c")), "failed", "50% of {x_y", corruption="fog",
                  method="quantile[variant 0]")  # fmt: skip
    paths = ablation.write(frame, tmp_path)
    assert len(paths) == len(set(paths)) == 2 * (2 + 4) + 2
    for path in paths:
        if path.suffix == ".csv":
            assert pd.read_csv(path).shape == ((3, 3) if path.stem.endswith("_crossed") else (6, 13))
    for document in ("ablations", "ablations_column"):
        assert "50% of" in compiled(tmp_path, document)
    log = (tmp_path / "ablations.log").read_text(errors="replace")
    assert "(1 page" in log or "(2 pages" in log  # four small tables share pages


def test_from_the_sweep_to_the_table(ttabench: Run, tmp_path: Path) -> None:
    out = tmp_path / "results"
    asked = ("--methods", "tent", "--archs", "resnet18", "--corruptions", "fog", "--limit", "40")
    crossing = ("--set", "tent.lr=1e-3,1e-4", "--set", "tent.norms=batch,all")
    output = ttabench("sweep", *asked, *crossing, "--out", out, "--workers", "0", "--device", "cpu")
    assert output.code == 0, output.err
    output = ttabench("report", out, "--format", "ablation")
    assert output.code == 0, output.err
    assert "_crossed.tex" in output.out
    (table,) = (p for p in (out / "report").glob("ablation_*.csv") if not p.stem.endswith("_crossed"))
    lines = pd.read_csv(table)
    cells_ = pd.read_csv(out / "report" / "cells.csv")
    adapted = cells_[cells_["base"] == "tent"]
    configs = [json.loads(config) for config in adapted["config"]]
    stored = {(c["lr"], c["norms"]): a for c, a in zip(configs, adapted["accuracy"], strict=True)}
    assert len(stored) == 4
    shown = dict(zip(zip(lines["lr"], lines["norms"], strict=True), lines["accuracy"], strict=True))
    assert shown == pytest.approx(stored, abs=1e-4)


def test_why_there_is_none_is_told_only_to_who_asked(
    ttabench: Run, tmp_path: Path, result: Result, other: Result
) -> None:
    store = Store.create(tmp_path / "results", {})
    fill(store, result, other)
    output = ttabench("report", store.root, "--out", tmp_path / "usual")
    assert output.code == 0, output.err
    assert "ablation" not in output.out + output.err
    output = ttabench("report", store.root, "--format", "ablation", "--out", tmp_path / "asked")
    assert output.code == 2
    assert "no method ran with several values of one setting" in output.err
    for asked in (("--format", "ablation"), ("--format", "plots,ablation"), ("--select", "infomax")):
        output = ttabench("report", store.root, *asked, "--out", tmp_path / "new" / "folder")
        assert (output.code, (tmp_path / "new").exists()) == (2, False)  # no plots, no cells.csv
    (tmp_path / "old").mkdir()
    assert ttabench("report", store.root, "--format", "ablation", "--out", tmp_path / "old").code == 2
    assert list((tmp_path / "old").iterdir()) == []
