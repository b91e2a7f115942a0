"""`report --rename`: names of one's own in tables and plots; identifiers stay in CSV files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.conftest import Run
from tests.unit.made_cells import cells
from ttabench.errors import UserError
from ttabench_reports.words import naming
from ttabench_reports.words.renaming import rename

FORMATS = "csv,latex,markdown,html"


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    made = cells(("source", "tent", "tent[lr=0.01]", "quantile"), datasets=("digits-c", "birds-c-local"))
    made.to_csv(tmp_path / "cells.csv", index=False)
    return tmp_path / "cells.csv"


def test_tables_show_the_name_and_csv_files_the_identifier(
    ttabench: Run, stored: Path, tmp_path: Path
) -> None:
    plain, named = tmp_path / "plain", tmp_path / "named"
    assert ttabench("report", stored, "--format", FORMATS, "--out", plain).code == 0
    given = ("quantile=Ours & more", "resnet18=Small_net", "birds-c-local=Birds")
    renames = [word for text in given for word in ("--rename", text)]
    assert ttabench("report", stored, "--format", FORMATS, "--out", named, *renames).code == 0
    text = (named / "tables.md").read_text()
    assert "Ours &amp; more" in text
    assert "Small\\_net" in text
    assert "Birds, severity 5" in text
    for word in ("| Quantile", "ResNet18", "birds"):
        assert word not in text
    latex = "".join(file.read_text() for file in sorted(named.glob("*.tex")))
    assert r"Ours \& more" in latex
    assert r"Small\_net" in latex
    assert "Ours &amp; more" in (named / "results.html").read_text()
    for file in plain.glob("*.csv"):
        assert (named / file.name).read_bytes() == file.read_bytes(), file.name


def test_a_name_holds_for_all_settings_or_for_those_of_one_label(stored: Path) -> None:
    made = cells(("source", "tent", "tent[lr=0.01]"))
    with rename(["tent=Ours"], made):
        assert naming.method("tent[lr=0.01]") == "Ours [lr=0.01]"
    with rename(["tent[lr=0.01]=Ours = tuned"], made):
        assert naming.method("tent[lr=0.01]") == "Ours = tuned"
        assert naming.method("tent") == "TENT"
    assert naming.method("tent") == "TENT"


def test_a_name_counts_only_for_the_report_that_asks_for_it(
    ttabench: Run, stored: Path, tmp_path: Path
) -> None:
    ttabench("report", stored, "--format", "markdown", "--out", tmp_path / "one", "--rename", "tent=Ours")
    ttabench("report", stored, "--format", "markdown", "--out", tmp_path / "two")
    assert "Ours" not in (tmp_path / "two" / "tables.md").read_text()


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["tent"], "expected IDENTIFIER=NAME"),
        (["tent="], "expected IDENTIFIER=NAME"),
        (["tent=a\nb"], "expected IDENTIFIER=NAME"),
        (["tnet=Ours"], "tent"),
        (["tent=One", "tent=Two"], "two names"),
        (["tent=One,quantile=Two"], "give quantile a --rename of its own"),
        (["tent=Quantile"], "tent and quantile"),
        (["tent=Ours", "quantile=Ours"], "'Ours'"),
        (["cct=ResNet18"], "cct and resnet18"),
    ],
)
def test_a_name_that_misleads_is_refused(
    ttabench: Run, stored: Path, tmp_path: Path, texts: list[str], problem: str
) -> None:
    with pytest.raises(UserError, match=problem):
        rename(texts, cells())
    renames = [word for text in texts for word in ("--rename", text)]
    done = ttabench("report", stored, "--out", tmp_path / "out", *renames)
    assert done.code == 2
    assert problem in done.err
    assert not (tmp_path / "out").exists()


def test_a_new_spelling_of_the_same_row_is_no_conflict() -> None:
    with rename(["tent=TENT", "cct=resnet18"], cells()):
        assert naming.method("tent") == "TENT"
