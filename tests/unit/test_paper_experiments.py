"""The paper's experiments: their sweep files are its tables; the script finds and shrinks its data."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import paper_experiments as script

from ttabench.corruptions.names import CORRUPTIONS
from ttabench.data.dataset import Labelled
from ttabench.errors import UserError
from ttabench.parse_methods import parse_method
from ttabench.store import load_frame

MAIN = ("cifar10-c", "cifar100-c", "tinyimagenet-c")
FILES = {file.stem: file for file in script.sweeps()}


def rows(shared: Path, name: str) -> list[dict[str, str]]:
    with (shared / "paper" / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_a_sweep_with_a_title_and_small_networks(name: str) -> None:
    assert script.title(FILES[name]).endswith(".")
    grids = script.grids(FILES[name], {})
    assert {arch for grid in grids for arch in grid.archs} <= script.SMALL.keys()
    assert all({"source", "quantile_paper"} <= {parse_method(m)[0] for m in grid.methods} for grid in grids)


@pytest.mark.parametrize("name", MAIN)
def test_a_main_table_has_nine_methods_on_four_networks(name: str) -> None:
    (grid,) = script.grids(FILES[name], {})
    assert grid.datasets == (name,)
    assert len(grid.archs) == 4
    assert set(grid.methods) - {"source", "quantile"} == {
        "bn_stats", "tent", "cotta", "eata", "sotta", "rotta", "sar", "medbn", "quantile_paper",
    }  # fmt: skip
    assert (grid.corruptions, grid.severities, grid.seeds) == (CORRUPTIONS, (5,), (0, 1, 2))


def test_ablation_and_severities_are_the_rows_of_the_paper(shared: Path) -> None:
    asked: set[tuple[str, str]] = set()
    for grid in script.grids(FILES["ablation"], {}):
        settings = dict(text.removeprefix("quantile_paper.").split("=") for text in grid.settings)
        points = settings["quantiles_per_class"].split(",")
        asked |= {(batch, n) for batch in settings["minibatch"].split(",") for n in points}
    table = rows(shared, "ablation_table")
    assert asked == {(row["batch_size"], row["quantiles_per_class"]) for row in table}
    (grid,) = script.grids(FILES["severity"], {})
    figure = rows(shared, "severity_figure")
    assert {(row["dataset"], row["arch"], row["corruption"], int(row["severity"])) for row in figure} == {
        (grid.datasets[0], grid.archs[0], grid.corruptions[0], severity) for severity in grid.severities
    }


def test_what_is_not_here_is_said_with_the_command_that_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTABENCH_DATA", str(tmp_path))
    output = script.missing(["cifar10-c", "digits-c", "cifar10-c"])
    assert output == ["cifar10-c is not here: 3.1 GB to download; ttabench data fetch cifar10-c."]
    monkeypatch.setattr(sys, "argv", ["paper_experiments.py", "--only", "severity"])
    with pytest.raises(UserError, match="ttabench data fetch cifar10-c"):
        script.main()
    monkeypatch.setattr(sys, "argv", ["paper_experiments.py", "--scale", "0"])
    with pytest.raises(UserError, match="expected a share above 0, at most 1"):
        script.main()
    with pytest.raises(UserError, match="did you mean 'ablation'"):
        script.sweeps(["ablaton"])
    assert script.clean_images("cifar10-c", tmp_path) is None


def test_given_weights_are_used_and_nothing_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[tuple[object, ...]] = []
    monkeypatch.setattr(script, "run", lambda *arguments: commands.append(arguments) or 0)
    monkeypatch.setattr(script, "missing", lambda names: [])
    options = ["--workers", "2", "--checkpoint", "cct.pt"]
    given = ["--only", "severity", "--out", str(tmp_path), "--"]
    monkeypatch.setattr(sys, "argv", ["paper_experiments.py", *given, *options])
    assert script.main() == 0
    out = tmp_path.resolve() / "severity"
    assert commands == [("sweep", "--config", FILES["severity"], "--out", out, *options), ("report", out)]


def test_a_share_has_every_class_and_two_halves_share_no_image() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(7), 20))
    images = np.broadcast_to(np.arange(140, dtype=np.uint8)[:, None, None, None], (140, 2, 2, 3))
    whole = Labelled(images, labels)
    small = script.share(whole, 0.1)
    assert np.bincount(small.labels).tolist() == [2] * 7
    assert np.bincount(script.share(whole, 0.001).labels).tolist() == [1] * 7
    first = small.images[:, 0, 0, 0]
    assert (labels[first] == small.labels).all()
    halves = script.split_in_two(whole)
    assert [np.bincount(half.labels).tolist() for half in halves] == [[10] * 7] * 2
    assert not set(halves[0].images[:, 0, 0, 0]) & set(halves[1].images[:, 0, 0, 0])


@pytest.mark.slow
def test_a_rehearsal_runs_where_no_images_are(tmp_path: Path) -> None:
    command = [sys.executable, script.__file__, "--only", "severity", "--scale", "0.01", "--workers", "0"]
    options = ["--images", str(tmp_path), "--out", str(tmp_path / "out"), "--", "--limit", "20"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "ttabench data fetch cifar10-c" in done.stdout
    cells = load_frame(tmp_path / "out" / "severity")
    assert set(cells["severity"]) == {1, 2, 3, 4, 5}
    assert set(cells["dataset"]) == {"digits-c"}
    assert (tmp_path / "out" / "severity" / "report" / "cells.csv").exists()
