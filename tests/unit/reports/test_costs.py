"""The cost table: medians over cells, missing costs visible, in all formats."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from tests.unit.conftest import Run
from tests.unit.made_cells import cells, spoil, where
from tests.unit.tex import compiled, font_sizes
from ttabench.errors import NothingToReport, UserError
from ttabench_reports import plots
from ttabench_reports.cells.costs_apart import with_costs
from ttabench_reports.evidence.gains_and_costs import costs
from ttabench_reports.evidence.report import Report
from ttabench_reports.formats import latex, markdown
from ttabench_reports.page import html
from ttabench_reports.sheets import every
from ttabench_reports.sheets.costs import cost
from ttabench_reports.terminal import sheets as terminal

SPENT = {"images": 400, "ms_per_image": 2.0, "forward": 400, "backward": 100, "compute_ratio": 3.0,
         "adapted_parameters": 1200, "host_mb": 50.0, "device": "cpu"}  # fmt: skip


@pytest.fixture
def frame() -> pd.DataFrame:
    frame = cells(("source", "tent", "bn_stats", "cotta"), **SPENT)
    frame["compute_ratio"] = np.tile([1.0, 2.0, 9.0], len(frame) // 3)
    frame.loc[frame["base"] == "cotta", ["forward", "backward"]] = [400 * 34, 400]
    return spoil(frame, "n/a", "no batch norm", arch="cct", method="bn_stats")


def test_a_row_has_the_medians_of_its_cells_and_passes_per_image(frame: pd.DataFrame) -> None:
    result = costs(Report(frame)).set_index(["arch", "method"])
    tent = result.loc["resnet18", "tent"]
    assert tent["compute_ratio"] == 2
    assert (tent["forward_passes"], tent["backward_passes"]) == (1, 0.25)
    assert result.loc[("cct", "cotta"), "forward_passes"] == 34
    assert (tent["cells"], tent["cells_with_cost"], tent["notes"]) == (15, 15, "")
    source = result.loc["resnet18", "source"]
    assert tent["increase"] == pytest.approx(tent["accuracy"] - source["accuracy"])


def test_missing_costs_show(frame: pd.DataFrame) -> None:
    mask = where(frame, method="tent", arch="resnet18", corruption="fog")
    frame.loc[mask, ["images", "forward", "backward", "compute_ratio"]] = None
    frame.loc[frame["base"] == "cotta", [*SPENT]] = None
    frame.loc[where(frame, method="tent", corruption="snow"), "device"] = "cuda"
    result = costs(Report(frame)).set_index(["arch", "method"])
    assert result.loc[("resnet18", "tent"), "notes"].startswith("the cost of some of its cells")
    assert result.loc[("resnet18", "tent"), "device"] == "cpu, cuda"
    assert result.loc[("cct", "cotta"), "cells_with_cost"] == 0
    text = markdown.render(cost(Report(frame)))  # type: ignore[arg-type]
    assert "its cost was not measured" in text
    assert "the cost of some of its cells was not measured" in text
    assert "| CoTTA<sup>" in text
    assert "| Model | Method | Given |" in text
    assert "Given: what a method sees of the source data" in text
    assert "n/a" in text
    assert "nan" not in text.lower()


def test_devices_are_those_of_cells_with_a_number(frame: pd.DataFrame) -> None:
    """A cell that did not run is stored with the device of the process that wrote so."""
    frame = spoil(
        frame.assign(device="cuda"), "failed", "the worker was killed", method="tent", corruption="fog"
    )
    frame.loc[frame["accuracy"].isna(), "device"] = "cpu"
    result = costs(Report(frame)).set_index(["arch", "method"])["device"]
    assert result["resnet18", "tent"] == "cuda"
    assert result["cct", "bn_stats"] == ""
    sheet = cost(Report(frame))
    assert sheet is not None
    assert "the device used (cuda)" in sheet.footer


def test_there_is_no_table_without_costs_and_old_cells_still_have_reports() -> None:
    report = Report(cells())
    assert cost(report) is None
    assert "cost" not in {sheet.name for sheet in every.sheets(report)}
    assert costs(report)["compute_ratio"].isna().all()


def test_memory_of_a_gpu_has_a_column_where_there_is_one(frame: pd.DataFrame) -> None:
    assert "Device" not in [head.text for head in cost(Report(frame)).heads]  # type: ignore[union-attr]
    report = Report(frame.assign(device_mb=2048.0, device="cuda"))
    sheet = cost(report)
    assert sheet is not None
    assert sheet.heads[-1].text == "Device"
    assert sheet.groups[0].lines[1][-1].text == "2,048"
    assert "device used (cuda)" in sheet.footer


@pytest.mark.parametrize("document", ["all", "all_column"])
def test_it_compiles(frame: pd.DataFrame, tmp_path: Path, document: str) -> None:
    sheet = cost(Report(frame.assign(device_mb=123456.0, adapted_parameters=86_567_656)))
    assert sheet is not None
    latex.write_sheets([sheet], tmp_path, "all")
    text = compiled(tmp_path, document)
    assert "CoTTA" in text
    assert "86,567,656" in text


@pytest.mark.parametrize("document", ["all", "all_column"])
def test_on_paper_it_is_readable_and_whole(frame: pd.DataFrame, tmp_path: Path, document: str) -> None:
    sheet = cost(Report(frame.assign(device_mb=2048.0, device="cuda", adapted_parameters=175_752)))
    assert sheet is not None
    latex.write_sheets([sheet], tmp_path, "all")
    assert min(font_sizes(tmp_path, document)) >= 7
    text = (tmp_path / f"{document}.txt").read_text()
    assert {head.text for head in sheet.heads} <= {*text.split()}


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_terminal_shows_every_number(frame: pd.DataFrame, width: int) -> None:
    sheet = cost(Report(frame))
    assert sheet is not None
    console = Console(width=width, file=io.StringIO())
    with console.capture() as capture:
        console.print(terminal.render(sheet))
    text = capture.get()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for number in ("2.00", "0.250", "1,200", "34"):
        assert number in text
    for name in ("ResNet18", "BNStats", "CoTTA", *(head.text for head in sheet.heads)):
        assert name in text


def test_the_command_prints_it(ttabench: Run, frame: pd.DataFrame, tmp_path: Path) -> None:
    frame.to_csv(tmp_path / "cells.csv", index=False)
    output = ttabench("report", tmp_path / "cells.csv", "--format", "csv", "--out", tmp_path / "r", "--cost")
    assert output.code == 0, output.err
    assert "Cost of adaptation" in output.out
    assert (tmp_path / "r/cost.csv").exists()
    cells().to_csv(tmp_path / "old.csv", index=False)
    output = ttabench("report", tmp_path / "old.csv", "--out", tmp_path / "o", "--format", "csv", "--cost")
    assert output.code == 2
    assert "no cell has a cost" in output.err
    assert not (tmp_path / "o").exists()


def test_why_there_are_no_costs_is_that_no_cell_has_a_number() -> None:
    failed = spoil(cells(("source", "tent")), "failed", "no memory")
    with pytest.raises(NothingToReport, match="none has a number; ttabench status DIR says why"):
        terminal.costs(Report(failed))


@pytest.mark.parametrize(("ratio", "doubted"), [(1.1, False), (0.9, False), (1.12, True), (0.61, True)])
def test_where_source_is_not_timed_as_its_own_forward_pass_the_table_warns(
    frame: pd.DataFrame, ratio: float, doubted: bool
) -> None:
    sound = frame["base"].eq("source") & frame["arch"].eq("cct")
    frame["compute_ratio"] = frame["compute_ratio"].where(frame["base"] != "source", ratio).where(~sound, 1.0)
    says = f"Source itself has C = {ratio:.2f} and not 1"
    notes = costs(Report(frame)).set_index(["arch", "method"])["notes"]
    assert notes.loc["resnet18", "source"].startswith(says) == doubted
    assert not notes.drop(("resnet18", "source")).str.contains("Source itself").any()
    text = markdown.render(cost(Report(frame)))  # type: ignore[arg-type]
    assert (says in text) == doubted


def test_source_in_offline_mode_has_the_time_of_its_passes(frame: pd.DataFrame) -> None:
    """Passes over all images, which adapt to none, come before those that are scored."""
    offline = frame.assign(mode="offline", epochs=2)
    source = offline["base"] == "source"
    offline.loc[source, "forward"] = 1200
    for ratio, says in ((3.2, ""), (4.0, "Source itself has C = 4.00 and not 3.")):
        timed = offline.assign(compute_ratio=offline["compute_ratio"].where(~source, ratio))
        notes = costs(Report(timed)).set_index(["arch", "method"])["notes"]
        assert notes.loc["cct", "source"].startswith(says)
        assert bool(says) == ("Source itself" in notes.loc["cct", "source"])
    without = costs(Report(frame.assign(forward=np.nan, compute_ratio=2.0))).set_index(["arch", "method"])
    assert without.loc[("cct", "source"), "notes"].startswith("Source itself has C = 2.00 and not 1.")


def test_times_measured_apart_stand_in_place_of_those_of_a_busy_machine(frame: pd.DataFrame) -> None:
    apart = frame[frame["corruption"].isin(["fog", "snow", "frost"]) & (frame["base"] != "cotta")]
    apart = apart.assign(compute_ratio=4.0, ms_per_image=7.0, forward=1, processor="A quiet one", limit=10)
    report = Report(with_costs(frame, apart))
    result = costs(report).set_index(["arch", "method"])
    assert set(result.loc["resnet18"].loc[["source", "tent", "bn_stats"], "compute_ratio"]) == {4.0}
    assert result.loc[("resnet18", "tent"), "forward_passes"] == 1  # of the 15 cells, not of those apart
    assert np.isnan(result.loc[("resnet18", "cotta"), "compute_ratio"])  # never two measurements in a column
    text = markdown.render(cost(report))  # type: ignore[arg-type]
    assert "measured separately, without other work on the machine, on A quiet one" in text
    assert "its cost was not measured" in text
    before, after = (costs(Report(cells)) for cells in (frame, with_costs(frame, apart)))
    pd.testing.assert_series_equal(before["accuracy"], after["accuracy"])


def test_workers_that_shared_a_gpu_are_said_and_no_costs_of_a_quiet_machine(frame: pd.DataFrame) -> None:
    shared = frame.assign(per_gpu=np.where(frame["corruption"] == "fog", 7.0, np.nan))
    said = "Up to 7 workers shared a GPU"
    apart = with_costs(shared, frame.assign(processor="A quiet one"))
    for given, known in ((frame, False), (frame.assign(per_gpu=1.0), False), (shared, True), (apart, False)):
        assert (said in markdown.render(cost(Report(given)))) == known  # type: ignore[arg-type]
    with pytest.raises(UserError, match="--costs was measured with 7 workers on a GPU"):
        with_costs(frame, shared)


def test_recomputed_activations_are_said_and_no_costs_measured_apart(frame: pd.DataFrame) -> None:
    recomputed = frame.assign(recomputed=np.where(frame["corruption"] == "fog", 1.0, np.nan))
    for given, known in ((frame, False), (recomputed, True)):
        assert ("Activations were recomputed" in markdown.render(cost(Report(given)))) == known  # type: ignore[arg-type]
    with pytest.raises(UserError, match="--costs was measured with --activations recompute"):
        with_costs(frame, recomputed)


def test_a_plot_of_costs_says_how_times_were_measured_as_the_table_does(frame: pd.DataFrame) -> None:
    shared = frame.assign(per_gpu=7.0)
    apart = with_costs(shared, frame.assign(processor="A quiet one"))
    old = with_costs(shared, frame.assign(processor="A quiet one", stale=frame["corruption"] == "fog"))
    for given, said in (
        (shared, "Up to 7 workers shared a GPU, which makes times longer."),
        (apart, "without other work on the machine, on A quiet one."),
        (old, "on A quiet one, some of them with other code than is installed."),
    ):
        (drawing,) = plots.drawings(Report(given), ("cost",))
        assert said in drawing.caption
        assert said in cost(Report(given)).footer  # type: ignore[union-attr]
    without = apart.assign(compute_ratio=np.nan, ms_per_image=np.nan, seconds=1.0)
    without.attrs = apart.attrs
    (drawing,) = plots.drawings(Report(without), ("cost",))
    assert "Seconds for a corruption" in {text.get_text() for text in drawing.figure.texts}
    assert "A quiet one" not in drawing.caption
    assert "Up to 7 workers shared a GPU" in drawing.caption


def test_times_of_several_devices_in_one_row_are_marked(frame: pd.DataFrame) -> None:
    frame.loc[where(frame, method="tent", arch="cct", corruption="fog"), "device"] = "cuda"
    notes = costs(Report(frame)).set_index(["arch", "method"])["notes"]
    says = "its cells ran on different devices (cpu, cuda)"
    assert notes.loc["cct", "tent"].startswith(says)
    assert not notes.drop(("cct", "tent")).str.contains("devices").any()
    assert says in markdown.render(cost(Report(frame)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "other",
    [{"device": "cuda"}, {"batch_size": 16}, {"config": "{}"}, {"arch": "cvt"}, {"pace": 1.0},
     {"pace_ratio": 3.0}, {"held_out": 0.5}, {"stream": "recurring(2)"}, {"reset": "episodic"}],
)  # fmt: skip
def test_times_of_other_cells_do_not_stand_for_these(frame: pd.DataFrame, other: dict[str, object]) -> None:
    usual = frame.assign(stream="")
    with pytest.raises(UserError, match="--costs has no cell of the same"):
        with_costs(usual, usual.assign(**other))


def test_a_reset_at_the_start_of_each_corruption_is_none_during_it(frame: pd.DataFrame) -> None:
    changed = with_costs(frame.assign(reset="continual"), frame.assign(compute_ratio=4.0, processor="A"))
    assert set(changed["compute_ratio"].dropna()) == {4.0}
    assert set(changed["reset"]) == {"continual"}


def test_the_command_takes_costs_from_another_folder(
    ttabench: Run, frame: pd.DataFrame, tmp_path: Path
) -> None:
    frame.to_csv(tmp_path / "cells.csv", index=False)
    frame.assign(compute_ratio=8.0).to_csv(tmp_path / "quiet.csv", index=False)
    options = ("--costs", tmp_path / "quiet.csv", "--format", "csv", "--out", tmp_path / "r")
    output = ttabench("report", tmp_path / "cells.csv", *options)
    assert output.code == 0, output.err
    assert set(pd.read_csv(tmp_path / "r/cost.csv")["compute_ratio"].dropna()) == {8.0}


def test_attested_cells_are_said_once_as_their_times_are_of_other_code() -> None:
    frame = cells(("source", "tent"), ("cct",), corruptions=("fog",)).assign(**SPENT)
    plain = cost(Report(frame.assign(attested=False)))
    told = cost(Report(frame.assign(attested=["True", *["False"] * (len(frame) - 1)])))
    assert plain is not None
    assert told is not None
    assert "attested" not in plain.footer
    said = "1 cell is attested: the code changed since"
    assert told.footer.count(said) == html(Report(frame.assign(attested=frame.index == 0))).count(said) == 1
