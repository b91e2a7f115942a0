"""Mistakes of a first day: what the command line says, and that the commands it prints run."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.unit import data_fakes as fakes
from tests.unit.conftest import Run
from tests.unit.stored_results import filled
from ttabench.cell import Result
from ttabench.store import Store


@pytest.fixture
def birds(tmp_path: Path, own_data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """birds/{train,test}/{crow,owl}, in the working folder; the data root is apart from it."""
    monkeypatch.chdir(tmp_path)
    for i, (split, name) in enumerate((s, n) for s in ("train", "test") for n in ("crow", "owl")):
        folder = Path("birds") / split / name
        folder.mkdir(parents=True)
        for k in range(2):
            fakes.write_png(folder / f"{k}.png", fakes.clean_images(1, seed=2 * i + k)[0])
    return Path("birds")


def test_the_sweep_that_generate_prints_needs_only_what_was_generated(ttabench: Run, birds: Path) -> None:
    made = ttabench(
        "data", "generate", birds / "test", "--train", birds / "train",
        "--corruptions", "fog,contrast", "--severities", "1,3", "--workers", "0",
    )  # fmt: skip
    assert made.code == 0, made
    order, ready, hint = made.out.splitlines()
    assert order == "classes: 0 crow, 1 owl. The outputs of a network must have this order."
    _, _, command = ready.partition("is ready: ttabench ")
    assert "--archs resnet18_w8. To train your own network: ttabench train" in hint
    listed = ttabench(*shlex.split(command), "--methods", "bn_stats", "--archs", "resnet18_w8", "--dry-run")
    assert listed.code == 0, listed
    assert listed.out.count("bn_stats") >= 4


def test_a_generated_set_goes_into_the_folder_that_out_names(
    ttabench: Run, birds: Path, tmp_path: Path
) -> None:
    options = ("--corruptions", "fog", "--severities", "1", "--workers", "0", "--out", tmp_path / "elsewhere")
    assert ttabench("data", "generate", birds / "test", *options).code == 0
    assert [folder.name for folder in (tmp_path / "elsewhere").iterdir()] == ["birds-c-local"]


def test_a_corruption_that_was_not_generated_is_answered_with_those_that_were(
    ttabench: Run, birds: Path
) -> None:
    ttabench(
        "data", "generate", birds / "test", "--corruptions", "fog", "--severities", "5", "--workers", "0"
    )
    output = ttabench(
        "sweep",
        "--datasets",
        "birds-c-local",
        "--archs",
        "resnet18_w8",
        "--corruptions",
        "snow,fog",
        "--dry-run",
    )
    assert output.code == 2
    assert "birds-c-local has no snow; for what it has: --corruptions fog" in output.err


def test_by_default_an_own_dataset_is_measured_on_what_it_has_of_the_fifteen(
    ttabench: Run, birds: Path
) -> None:
    made = ("--corruptions", "fog,contrast,spatter", "--severities", "5", "--workers", "0")
    ttabench("data", "generate", birds / "test", "--train", birds / "train", *made)
    sweep = ("sweep", "--archs", "resnet18_w8", "--methods", "source", "--dry-run")
    output = ttabench(*sweep, "--datasets", "birds-c-local,digits-c")
    assert output.code == 0, output
    assert "birds-c-local has 2 of the 15 corruptions; measured on these: fog, contrast." in output.err
    assert [output.out.count(f"· {name} ·") for name in ("birds-c-local", "digits-c")] == [2, 15]
    assert "has no snow" in ttabench(*sweep, "--datasets", "birds-c-local", "--corruptions", "fog,snow").err


def test_a_severity_that_was_not_generated_is_refused_before_anything_runs(
    ttabench: Run, birds: Path
) -> None:
    made = (
        "data",
        "generate",
        birds / "test",
        "--corruptions",
        "fog",
        "--severities",
        "1,3",
        "--workers",
        "0",
    )
    ttabench(*made, "--train", birds / "train")
    sweep = ("sweep", "--datasets", "birds-c-local", "--archs", "resnet18_w8", "--corruptions", "fog")
    output = ttabench(*sweep, "--dry-run")
    assert output.code == 2
    assert "birds-c-local has no fog at severity 5; it has 1,3: choose with --severities" in output.err
    assert ttabench(*sweep, "--severities", "1,3", "--dry-run").code == 0
    printed = ttabench(*sweep, "--stream", "recurring(2)", "--dry-run")
    assert "birds-c-local has no fog at severity 5; it has 1,3: choose with --severities" in printed.err
    printed = ttabench(*sweep, "--stream", "gradual", "--dry-run")
    assert "birds-c-local has no fog at severity 2; it has 1,3: generate the others first" in printed.err
    assert ttabench(*sweep, "--stream", "recurring(2)", "--severities", "3", "--dry-run").code == 0


def test_a_dataset_without_training_images_can_get_them_later(ttabench: Run, birds: Path) -> None:
    made = ("data", "generate", birds / "test", "--corruptions", "fog", "--severities", "5", "--workers", "0")
    assert "no training images" in ttabench(*made).out
    again = ttabench(*made, "--train", birds / "train")
    assert (again.code, "no training images" in again.out) == (0, False), again
    sweep = ("sweep", "--datasets", "birds-c-local", "--archs", "resnet18_w8", "--corruptions", "fog")
    assert ttabench(*sweep, "--dry-run").code == 0


def test_one_folder_too_high_is_answered_with_the_right_one(ttabench: Run, birds: Path) -> None:
    output = ttabench("data", "generate", birds)
    assert output.code == 2
    _, _, command = output.err.strip().partition("per class: ttabench ")
    made = ttabench(
        *shlex.split(command), "--corruptions", "fog", "--severities", "5", "--workers", "0", "--size", "32"
    )
    assert made.code == 0, made


def test_one_folder_too_high_is_never_answered_with_training_images(ttabench: Run, birds: Path) -> None:
    (birds / "test").rename(birds / "val 2026")
    output = ttabench("data", "generate", birds)
    assert output.code == 2
    _, _, command = output.err.strip().partition("per class: ttabench ")
    test, train = (str(birds / name) for name in ("val 2026", "train"))
    assert shlex.split(command) == ["data", "generate", test, "--train", train]


@pytest.mark.parametrize("given", ["birds", "birds/test"])
def test_clean_images_in_place_of_a_dataset(ttabench: Run, birds: Path, given: str) -> None:
    output = ttabench("sweep", "--datasets", f"./{given}", "--archs", "resnet18_w8")
    assert output.code == 2
    assert "Run `ttabench data generate" in output.err
    assert "birds/test --train TRAIN` first" in output.err


def test_a_dataset_that_was_not_generated(ttabench: Run, birds: Path) -> None:
    output = ttabench("sweep", "--datasets", "brids-c-local", "--archs", "resnet18_w8")
    assert output.code == 2
    assert "no generated dataset 'brids-c-local'" in output.err
    assert "ttabench data generate" in output.err


def test_files_that_are_no_images_are_left_out_and_named(ttabench: Run, birds: Path) -> None:
    for place in (birds / "test/crow/notes.txt", birds / "test/list.csv", birds / "test/.hidden"):
        place.write_text("no image")
    output = ttabench(
        "data", "generate", birds / "test", "--corruptions", "fog", "--severities", "5", "--workers", "0"
    )
    assert output.code == 0, output
    assert "left out 2 files that are not .jpeg, .jpg, .png" in output.err
    assert "or .ppm, such as crow/notes.txt." in output.err
    assert "hidden" not in output.err


def test_a_method_whose_package_is_not_installed(ttabench: Run) -> None:
    output = ttabench("conform", "my_own_method")
    assert output.code == 2
    assert "pip install -e FOLDER" in output.err


def test_a_folder_whose_sweep_ended_before_its_first_cell(ttabench: Run, tmp_path: Path) -> None:
    Store.create(tmp_path / "results", {"methods": ["tent"]})
    output = ttabench("status", tmp_path / "results")
    assert output.code == 0
    assert "none yet" in output.out


def test_report_says_which_files_to_open_apart_from_the_list_of_files(
    ttabench: Run, tmp_path: Path, result: Result
) -> None:
    filled(tmp_path / "results", result)
    output = ttabench("report", tmp_path / "results", "--format", "latex,html")
    assert output.code == 0, output
    page = tmp_path / "results/report/results.html"
    assert page.is_file()
    assert f"Open in a browser: {page}\n" in output.err
    assert all(Path(line).is_file() for line in output.out.splitlines())


def test_a_terminal_is_not_filled_with_the_names_of_files(
    ttabench: Run, tmp_path: Path, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "results", result)
    listed = ttabench("report", tmp_path / "results", "--format", "csv,latex").out.splitlines()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    out = ttabench("report", tmp_path / "results", "--format", "csv,latex").out
    kinds = Counter(Path(line).suffix for line in listed)
    assert len(listed) > 10
    assert (
        out
        == f"{len(listed)} files in {tmp_path / 'results/report'}: {kinds['.csv']} csv, {kinds['.tex']} tex\n"
    )


def test_a_locale_without_the_characters_of_a_table_gets_question_marks() -> None:
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    script = "import sys; from ttabench.cli import main; sys.argv[1:] = ['list', 'settings', 'memo']; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=plain, check=False)
    assert done.returncode == 0, done.stderr
    assert b"?: learning rate" in done.stdout  # η


def test_images_of_224_pixels_that_are_no_jpeg_files_are_said(ttabench: Run, tmp_path: Path) -> None:
    """The published images of ImageNet-C are."""
    images = np.random.default_rng(0).integers(0, 256, (2, 224, 224, 3), np.uint8)
    np.savez(tmp_path / "mine.npz", images=images, labels=np.arange(2))
    command = ("data", "generate", tmp_path / "mine.npz", "--corruptions", "brightness")
    few = ("--severities", "5", "--workers", "0")
    for more, said in (((), True), (("--size", "224"), True), (("--jpeg", "85"), False)):
        output = ttabench(*command, *few, *more, "--root", tmp_path / "-".join(("to", *more)))
        assert output.code == 0, output.err
        assert ("quality 85; for such images: --jpeg 85." in output.out) is said
