"""Choosing settings without labels: choice, oracle, gap, correlation, and what is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.unit.conftest import Run
from tests.unit.made_cells import cells, spoil, where
from tests.unit.tex import compiled
from ttabench.corruptions.corruption_names import CORRUPTIONS, EXTRA_CORRUPTIONS
from ttabench.errors import NothingToReport, UserError
from ttabench.store.columns import MISSING
from ttabench_reports.cells.missing import Missing
from ttabench_reports.evidence import selection
from ttabench_reports.evidence.report import Report
from ttabench_reports.formats import latex, markdown
from ttabench_reports.sheets.selection import sheet

TENT = {"tent": 70.0, "tent[lr=0.01]": 75.0, "tent[lr=0.1]": 80.0, "tent[lr=1]": 20.0}
ACCURACY = {"source": 60.0, "sar": 65.0, **TENT}  # of SAR there is nothing to choose
METHODS = tuple(ACCURACY)
INFOMAX = {
    "source": 0.5, "sar": 0.7, "tent": 1.0, "tent[lr=0.01]": 1.6, "tent[lr=0.1]": 1.4, "tent[lr=1]": 0.1
}  # fmt: skip


@pytest.fixture
def frame() -> pd.DataFrame:
    def accuracy(row: dict[str, Any]) -> float:
        extra = row["corruption"] in EXTRA_CORRUPTIONS
        return 100 - ACCURACY[row["method"]] if extra else ACCURACY[row["method"]]

    made = cells(METHODS, ("resnet18",), corruptions=(*CORRUPTIONS, *EXTRA_CORRUPTIONS), accuracy=accuracy)
    made["infomax"] = made["method"].map(INFOMAX)
    made.loc[made["corruption"].isin(EXTRA_CORRUPTIONS), "infomax"] = 99.0  # takes no part
    return made


def only(frame: pd.DataFrame, score: str = "infomax") -> selection.Choice:
    (choice,) = selection.choices(Report(frame), [score])
    return choice


def test_the_highest_score_is_chosen_and_the_best_setting_is_the_oracle(frame: pd.DataFrame) -> None:
    result = only(frame)
    assert result.chosen is not None
    assert result.oracle is not None
    assert (result.chosen.name, result.oracle.name) == ("lr=0.01", "lr=0.1")
    assert result.gap == pytest.approx(5)
    assert result.correlation == pytest.approx(0.8)  # one swap of neighbours among four
    assert result.left_out == {}
    line = selection.frame([result]).iloc[0]
    assert (line["settings"], line["compared"], line["accuracy"], line["gap"]) == (4, 4, 75, 5)


def test_a_tie_of_scores_is_said(frame: pd.DataFrame) -> None:
    assert selection.frame([only(frame)])["tied"].tolist() == [1]
    assert "highest score, with" not in markdown.render(sheet([only(frame)]))
    frame.loc[frame["method"].isin(("tent", "tent[lr=0.1]")), "infomax"] = 2.0
    result = only(frame)
    assert result.chosen is not None
    assert result.chosen.name == "defaults"
    assert selection.frame([result])["tied"].tolist() == [2]
    note = (
        "2 settings have the highest score, with accuracies of at least 70.0 and at most 80.0; the first one "
        "counts"
    )
    assert note in markdown.render(sheet([result]))


def test_settings_with_other_seeds_are_said(frame: pd.DataFrame) -> None:
    assert "different seeds" not in markdown.render(sheet([only(frame)]))
    more = frame[where(frame, method="tent[lr=0.1]")].assign(seed=1)
    result = only(pd.concat([frame, more.assign(cell_id="1" + more["cell_id"].str[1:])]))
    note = "settings with different seeds: 0 (defaults, lr=0.01, lr=1); 0, 1 (lr=0.1)"
    assert note in markdown.render(sheet([result]))
    assert selection.settings_frame([result]).set_index("setting")["seeds"].to_dict() == {
        "defaults": 1, "lr=0.01": 1, "lr=0.1": 2, "lr=1": 1,
    }  # fmt: skip


def test_offline_methods_stale_results_and_alarms_have_their_marks(frame: pd.DataFrame) -> None:
    adapted = frame[frame["base"] == "tent"]
    offline = adapted.assign(mode="offline", cell_id="2" + adapted["cell_id"].str[1:])
    both = pd.concat([frame, offline], ignore_index=True)
    both.loc[where(both, method="tent[lr=0.01]"), "stale"] = True
    both.loc[where(both, method="tent[lr=0.1]", corruption="fog"), "alarm"] = "few images: 2"
    choices = selection.choices(Report(both), ["infomax"])
    online, late = (line for group in sheet(choices).groups for line in group.lines)
    assert (online[1].marks, late[1].marks) == ("", "†")
    for line in (online, late):
        assert (line[4].text, line[5].marks[0], line[6].text) == ("lr=0.01", "‡", "lr=0.1")
        assert line[7].marks
    text = markdown.render(sheet(choices))
    for said in ("offline: sees all", "stale: measured with other code", "alarm under 1 of 15 corruptions"):
        assert said in text


def test_a_score_that_orders_settings_the_wrong_way_shows(frame: pd.DataFrame) -> None:
    result = only(frame, "extra")
    assert result.chosen is not None
    assert result.chosen.name == "lr=1"
    assert result.gap == pytest.approx(60)
    assert result.correlation == pytest.approx(-1)
    failed = spoil(frame, "failed", "NaN", method="tent[lr=1]", corruption=EXTRA_CORRUPTIONS[0])
    assert only(failed, "extra").left_out == {"lr=1": "measured on 3 of 4 extra corruptions"}


def test_the_accuracy_on_the_extra_corruptions_is_not_judged_by_itself(frame: pd.DataFrame) -> None:
    alone = frame[frame["corruption"].isin(EXTRA_CORRUPTIONS)]
    with pytest.raises(NothingToReport, match="no setting has the score extra"):
        only(alone, "extra")
    result = only(alone)
    assert {one.gaps["extra"] for one in result.compared} == {
        "it is the accuracy itself: only extra corruptions are measured"
    }


def test_incomplete_settings_are_left_out_and_named(frame: pd.DataFrame) -> None:
    frame = spoil(frame, "failed", "NaN", method="tent[lr=0.1]", corruption="fog")
    frame.loc[where(frame, method="tent[lr=0.01]", corruption="snow"), "infomax"] = None
    frame.attrs[MISSING] = tuple(
        Missing(f"tent[{name}]", "tent", "resnet18", "digits-c", 5, lacks, len(lacks))
        for name, lacks in (("lr=3", CORRUPTIONS), ("lr=0.1", ("fog",)))
    )
    result = only(frame)
    assert result.left_out == {
        "lr=0.1": "measured on 14 of 15 corruptions",
        "lr=0.01": "14 of 15 cells have the score",
        "lr=3": "no cell is measured yet",
    }
    assert result.chosen is not None
    assert result.oracle is not None
    assert (result.chosen.name, result.oracle.name) == ("defaults", "lr=0.01")  # the best has no score
    assert result.correlation != result.correlation
    text = markdown.render(sheet([result]))
    assert "2 of 5" in text
    for name in ("lr=0.1", "lr=0.01", "lr=3"):
        assert f"left out: {name}," in text


def test_without_several_settings_or_scores_one_sentence_says_what_to_do(frame: pd.DataFrame) -> None:
    with pytest.raises(NothingToReport, match=r"--set tent\.lr"):
        selection.choices(Report(cells(("source", "tent"))), ["infomax"])
    for score, how in (("consistency", " with --scores all"), ("snd", "")):
        with pytest.raises(NothingToReport, match=rf"has the score {score}; run the sweep again{how}\.$"):
            selection.choices(Report(frame), [score])
    main = frame[frame["corruption"].isin(CORRUPTIONS)]
    with pytest.raises(NothingToReport, match="--corruptions every"):
        selection.choices(Report(main), ["extra"])
    with pytest.raises(UserError, match="did you mean 'infomax'"):
        selection.choices(Report(frame), ["infomx"])


def test_settings_with_one_name_are_told_apart_by_what_differs(frame: pd.DataFrame) -> None:
    defaults = frame[where(frame, method="tent")]
    halves = [defaults.assign(batch_size=size, infomax=size) for size in (64, 128)]
    result = only(pd.concat([frame[where(frame, method="source")], *halves], ignore_index=True))
    assert [one.name for one in result.compared] == ["defaults (batch size 64)", "defaults (batch size 128)"]


def test_no_score_chooses_among_classifiers(frame: pd.DataFrame) -> None:
    """Each training of an architecture has its own choice: the one that it has alone."""
    others = frame.assign(checkpoint="another", infomax=-frame["infomax"], cell_id=frame["cell_id"].str[::-1])
    made = selection.choices(Report(pd.concat([frame, others], ignore_index=True)), ["infomax"])
    assert [choice.weights for choice in made] == ["weights another", "weights weights-"]
    for choice, alone in zip(made, (only(others), only(frame)), strict=True):
        assert choice.chosen is not None
        assert alone.chosen is not None
        assert alone.chosen.name == choice.chosen.name
        assert len(choice.compared) == len(alone.compared)
    shown = [line[0].text for group in sheet(made).groups for line in group.lines]
    assert shown == ["ResNet18, weights another", "ResNet18, weights weights-"]


def test_all_means_every_score_that_there_is(frame: pd.DataFrame) -> None:
    assert [choice.score for choice in selection.choices(Report(frame), ["all"])] == ["infomax", "extra"]


@pytest.mark.parametrize("document", ["all", "all_column"])
def test_it_compiles(frame: pd.DataFrame, tmp_path: Path, document: str) -> None:
    long = "tent[norms=all,optimizer=nesterov,lr=0.0005]"
    frame["method"] = frame["method"].replace({"tent[lr=0.1]": long})
    printed = sheet(selection.choices(Report(frame), ["all"]))
    latex.write_sheets([replace(printed, name="select")], tmp_path, "all")
    assert "InfoMax" in compiled(tmp_path, document)


def test_the_command_prints_and_writes_it(ttabench: Run, frame: pd.DataFrame, tmp_path: Path) -> None:
    frame.to_csv(tmp_path / "cells.csv", index=False)
    out = tmp_path / "r"
    output = ttabench(
        "report", tmp_path / "cells.csv", "--format", "csv", "--out", out, "--select", "infomax"
    )
    assert output.code == 0, output.err
    assert "InfoMax" in output.out
    assert "0.80" in output.out
    written = pd.read_csv(out / "select.csv")
    assert list(written["score"]) == ["infomax"]
    assert set(pd.read_csv(out / "select_settings.csv")["setting"]) == {
        "defaults",
        "lr=0.01",
        "lr=0.1",
        "lr=1",
    }
    other = tmp_path / "other"
    output = ttabench("report", tmp_path / "cells.csv", "--out", other, "--select", "snd")
    assert (output.code, output.err.count("\n")) == (2, 1)
    assert not other.exists()  # nothing is written
