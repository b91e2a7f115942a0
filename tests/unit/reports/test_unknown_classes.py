"""Unknown classes in reports: means of what cells store, only over whole rows, in table, CSV and plot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cases import each
from tests.unit.made_cells import cells, spoil, where
from ttabench.store.columns import UNKNOWN
from ttabench_reports import plots
from ttabench_reports.cells.calibration import packed
from ttabench_reports.evidence.report import Report
from ttabench_reports.formats import csv_files, latex
from ttabench_reports.plots.severities import unknown_curves
from ttabench_reports.sheets import unknown_classes
from ttabench_reports.sheets.sheet import Sheet

CORRUPTIONS = ("snow", "fog")


def contaminated(own: str = "come") -> pd.DataFrame:
    """Two corruptions, two seeds, two severities; only one method has a certainty of its own."""
    frame = cells(
        ("source", "tent", "come"), ("cct",), corruptions=CORRUPTIONS, severities=(1, 5), seeds=(0, 1),
        contamination="cifar10.1(0.5)", foreign="f" * 64, foreign_images=360.0,
    )  # fmt: skip
    draw = np.random.default_rng(0)
    frame = frame.assign(**{name: draw.uniform(0, 100, len(frame)) for name in UNKNOWN})
    frame.loc[frame["base"] != own, [name for name in UNKNOWN if name.endswith("own")]] = np.nan
    return frame


def test_figures_are_means_over_corruptions_and_seeds(tmp_path: Path) -> None:
    frame = contaminated()
    csv_files.write(frame, tmp_path)
    written = pd.read_csv(tmp_path / "unknown.csv")
    assert len(written) == 6
    for line in written.itertuples():
        of_row = frame[where(frame, method=line.method, severity=line.severity)]
        for name in UNKNOWN:
            assert getattr(line, name) == pytest.approx(of_row[name].mean(), abs=1e-4, nan_ok=True)
    assert set(written["foreign_images"]) == {360}
    assert set(written["contamination"]) == {"cifar10.1(0.5)"}
    assert set(written["table"]) == {table.title for table in Report(frame).tables}


def test_an_alarm_stands_beside_the_accuracy_and_in_the_notes(tmp_path: Path) -> None:
    frame = contaminated()
    said = "few images: 2 of each class"
    frame.loc[where(frame, method="tent", severity=5, corruption="fog"), "alarm"] = said
    sheet = made(frame)[1]
    (marks,) = (
        entry.marks for group in sheet.groups for line in group.lines for entry in line[2:] if entry.marks
    )
    assert sheet.notes[marks] == "alarm under 1 of 2 corruptions"
    csv_files.write(frame, tmp_path)
    notes = pd.read_csv(tmp_path / "unknown.csv").set_index(["severity", "method"])["notes"]
    assert notes[5, "tent"] == f"alarm: {said} (fog); alarm under 1 of 2 corruptions"
    assert notes.drop((5, "tent")).isna().all()


def test_a_row_that_lacks_the_figures_of_a_cell_is_left_out() -> None:
    frame = contaminated()
    frame.loc[where(frame, method="tent", severity=5, corruption="fog", seed=1), "foreign_images"] = np.nan
    rows = [row for table in Report(frame).tables for row in table.rows if row.unknown]
    assert [row.method for row in rows] == ["source", "come", "tent", "source", "come"]


def made(frame: pd.DataFrame) -> list[Sheet]:
    return list(unknown_classes.sheets(Report(frame)))


def test_figures_are_no_means_where_a_seed_failed() -> None:
    """As for the accuracy: every seed of every corruption, or no mean."""
    sums = {"count": 4.0, "confidence": 3.0, "correct": 2.0}
    bins = packed({key: [n, *[0.0] * 14] for key, n in sums.items()})
    frame = contaminated()
    frame = frame[frame["severity"] == 5].assign(calibration=[bins] * (len(frame) // 2))

    def there(frame: pd.DataFrame) -> dict[str, tuple[bool, bool]]:
        (table,) = Report(frame).tables
        rows = [row for row in table.rows if row.measured]
        return {row.method: (bool(row.unknown), row.reliability is not None) for row in rows}

    assert set(there(frame).values()) == {(True, True)}
    lacking = spoil(frame, "failed", "no memory", method="tent", corruption="fog", seed=1)
    assert there(lacking) == there(frame) | {"tent": (False, False)}


def test_a_table_has_the_printed_figures_of_each_method() -> None:
    frame = contaminated()
    sheet = made(frame)[1]
    assert sheet.name.startswith("unknown_digits-c")
    assert [text for text, _ in sheet.over] == ["", "Maximum softmax", "Energy", "Own certainty"]
    (lines,) = [group.lines for group in sheet.groups]
    tent = next(line for line in lines if line[0].text == "TENT")
    mean = frame.loc[where(frame, method="tent", severity=5), "auroc_softmax"].mean()
    assert tent[3].text == f"{mean:.1f}"
    assert [cell.text for cell in tent[-3:]] == ["–"] * 3
    assert [len(part.heads) for part in sheet.narrow()] == [6, 5, 5]


@each(
    "column,changed,beside,over",
    [
        pytest.param("fog", {}, "per corruption", True, id="corruptions"),
        pytest.param("mixed", {}, "in the stream", False, id="mixed"),
        pytest.param(
            "recurring", {"stream": "recurring(2)", "reset": "continual"}, "in the stream", False,
            id="long stream",
        ),
    ],
)  # fmt: skip
def test_foreign_images_are_those_of_a_corruption_or_of_the_whole_stream(
    column: str, changed: dict[str, str], beside: str, over: bool
) -> None:
    frame = contaminated()
    (sheet,) = made(frame[where(frame, severity=5, corruption="fog")].assign(corruption=column, **changed))
    assert f"with 360 foreign images {beside}." in sheet.caption
    assert ("means over the corruptions" in sheet.footer) is over


def test_the_own_certainty_has_columns_where_a_method_has_one() -> None:
    sheet = made(contaminated(own="nobody"))[0]
    assert [text for text, _ in sheet.over] == ["", "Maximum softmax", "Energy"]
    assert len(sheet.heads) == 9


def test_a_clean_sweep_has_none_of_it(tmp_path: Path) -> None:
    frame = cells(("source", "tent"), ("cct",), corruptions=CORRUPTIONS, severities=(1, 5))
    assert made(frame) == []
    assert list(unknown_curves(Report(frame))) == []
    csv_files.write(frame, tmp_path)
    assert not (tmp_path / "unknown.csv").exists()


def test_a_plot_shows_them_over_the_severities() -> None:
    report = Report(contaminated())
    drawn = list(plots.drawings(report, ("unknown",)))
    assert [drawing.about for drawing in drawn] == ["digits-c maximum softmax", "digits-c energy"]
    with plots.plot_style():
        figure = next(unknown_curves(report)).figure
    (axes,) = figure.axes
    frame = contaminated()
    by_severity = frame[frame["method"] == "tent"].groupby("severity")["auroc_softmax"].mean()
    curves = [list(line.get_ydata()) for line in axes.lines]
    assert any(curve == pytest.approx(by_severity.tolist()) for curve in curves)


def test_latex_has_the_tables(tmp_path: Path) -> None:
    paths = latex.write(contaminated(), tmp_path)
    assert sum(path.name.startswith("unknown_") for path in paths) == 4  # two severities, two forms
