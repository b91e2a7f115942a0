"""Costs and label-free scores in the store: every cell has them, and the costly scores change no number."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.unit.conftest import Run
from ttabench.observe import label_free_scores
from ttabench.observe.label_free_scores import CHEAP, COSTLY
from ttabench.store import Store, load_frame
from ttabench.store.columns import COST, COSTLY_SCORES, SCORES

SMALL = ("--methods", "tent,sotta", "--archs", "resnet18", "--corruptions", "fog,snow", "--limit", "20",
         "--batch-size", "10", "--reset", "continual", "--workers", "0")  # fmt: skip


def numbers(folder: Path) -> dict[str, tuple[float | None, bytes]]:
    return {key: (r.result.accuracy, r.result.correct) for key, r in Store.at(folder).latest().items()}


def test_the_store_knows_all_scores_without_torch() -> None:
    assert (*CHEAP, *COSTLY) == SCORES
    assert COSTLY_SCORES == COSTLY


def test_every_cell_has_its_costs_and_cheap_scores(ttabench: Run, tmp_path: Path) -> None:
    assert ttabench("sweep", *SMALL, "--out", tmp_path / "r").code == 0
    cells = load_frame(tmp_path / "r").set_index("base")
    assert (cells["images"] == 20).all()
    assert (cells.loc["source", "forward"] == 20).all()
    assert (cells.loc["source", "backward"] == 0).all()
    assert (cells.loc["tent", ["forward", "backward"]] == 20).all().all()
    assert (cells.loc["tent", "adapted_parameters"] > 0).all()
    assert (cells["compute_ratio"] > 0).all()
    assert cells[[*CHEAP]].notna().all().all()
    assert cells[[*COSTLY]].isna().all().all()
    ttabench("report", tmp_path / "r", "--format", "csv")
    written = pd.read_csv(tmp_path / "r/report/cells.csv")
    assert {*COST, *SCORES} <= set(written.columns)
    assert (written["forward"] >= 20).all()


def test_foreign_images_are_images_of_the_stream(ttabench: Run, tmp_path: Path) -> None:
    at = ("--methods", "source", "--archs", "resnet18", "--corruptions", "fog", "--limit", "40")
    ttabench("sweep", *at, "--contamination", "noise(0.2)", "--workers", "0", "--out", tmp_path / "r")
    assert list(load_frame(tmp_path / "r")["images"]) == [50]
    ttabench("sweep", *at, "--held-out", "0.25", "--workers", "0", "--out", tmp_path / "h")
    held = load_frame(tmp_path / "h")
    assert list(held["images"]) == [40]
    assert list(held["forward"]) == [40]  # 30 of them to adapt, 10 to be scored


def test_all_scores_are_added_to_stored_cells_and_change_no_number(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_free_scores, "IMAGES", 100)  # of the source
    small = ("--methods", "sotta", *SMALL[2:])  # it has a memory, and its updates draw at random
    ttabench("sweep", *small, "--out", tmp_path / "r")
    before = numbers(tmp_path / "r")
    kept = ttabench("sweep", *small, "--out", tmp_path / "r", "--scores", "all", "--overwrite", "never")
    assert "0 to run, 4 done" in kept.err
    output = ttabench("sweep", *small, "--out", tmp_path / "r", "--scores", "all")
    assert output.code == 0, output.err
    assert "4 to run, 0 done" in output.err
    cells = load_frame(tmp_path / "r")
    assert cells[[*SCORES]].notna().all().all()
    assert cells[[*COSTLY]].ge(0).all().all()
    assert cells[[*COSTLY]].le(100).all().all()
    assert numbers(tmp_path / "r") == before
    again = ttabench("sweep", *small, "--out", tmp_path / "r", "--scores", "all")
    assert "0 to run, 4 done" in again.err


def test_a_wrong_value_gets_one_sentence(ttabench: Run, tmp_path: Path) -> None:
    output = ttabench("sweep", *SMALL, "--out", tmp_path / "r", "--scores", "al")
    assert output.code == 2
    assert "did you mean 'all'" in output.err
    assert not (tmp_path / "r").exists()
