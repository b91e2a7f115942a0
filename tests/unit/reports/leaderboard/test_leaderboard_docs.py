"""The page and the workflow of the leaderboard: their commands exist, and théir shell does what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.cases import each
from tests.unit.reports.leaderboard.test_leaderboard import right
from tests.unit.reports.tables.test_tables import documented
from tests.unit.stored_results import folder
from tests.unit.written_commands import options_exist, step
from ttabench_reports.leaderboard.entries import COLUMNS

ROOT = Path(__file__).resolve().parents[4]
PAGE, WORKFLOW = ROOT / "docs/leaderboard.md", ROOT / ".github/workflows/submission.yml"


def commands(file: Path) -> list[list[str]]:
    result = re.findall(r"(?:\$ |^\s*|dir |\\n' )(ttabench \w+ -?[^|`<\n]*)", file.read_text(), re.MULTILINE)
    return [shlex.split(text)[1:] for text in result]


@pytest.mark.parametrize(("file", "least"), [(PAGE, 4), (WORKFLOW, 2)])
def test_every_command_and_option_exists(file: Path, least: int) -> None:
    assert len(commands(file)) >= least
    options_exist(commands(file))


def test_every_column_of_the_csv_file_is_documented() -> None:
    table = PAGE.read_text().partition("## The columns of")[2].partition("\n## ")[0]
    own = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)))
    assert {*own} < {*COLUMNS}
    assert {*COLUMNS} - {*own} <= documented()[""]


def shell(code: str, where: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code], cwd=where, capture_output=True, text=True, check=False,
        timeout=100, env={"PATH": "/usr/bin:/bin", "HOME": str(where), **env},
    )  # fmt: skip


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A pull request that adds a folder, changes a second one and touches a third one's plan only."""
    root = tmp_path / "repository"
    for name in ("reference/digits-c", "submissions/old", "submissions/théir s"):
        folder(root / "results" / name, {("fog", 0): right(0.7)})
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]

    def commit(*paths: str) -> None:
        for command in (["add", *paths], ["commit", "-qm", "one"]):
            subprocess.run([*git, *command], cwd=root, check=True, capture_output=True)

    subprocess.run([*git, "init", "-q"], cwd=root, check=True)
    commit("results/reference", "results/submissions/old")
    (root / "results/reference/digits-c/plan.jsonl").write_text("")
    (shard,) = (root / "results/submissions/old/cells").iterdir()
    shard.write_text(shard.read_text() + shard.read_text().splitlines()[-1] + "\n")
    commit(".")
    return root


def test_the_workflow_finds_the_folders_with_new_results(repository: Path) -> None:
    done = shell(step(WORKFLOW, "Folders with new results"), repository, BASE="HEAD~1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["results/submissions/old", "results/submissions/théir s"]
    assert (repository.parent / "folders").read_text() == done.stdout


def test_the_reference_results_are_named_first(repository: Path) -> None:
    bin_ = repository.parent / "bin"
    bin_.mkdir()
    (bin_ / "ttabench").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (bin_ / "ttabench").chmod(0o755)
    code = step(WORKFLOW, "Recompute all accuracies and build the leaderboard")
    done = shell(code, repository, PATH=f"{bin_}:/usr/bin:/bin", RUNNER_TEMP="/tmp")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[3:] == [
        "results/reference/digits-c", "results/submissions/old", "results/submissions/théir s",
    ]  # fmt: skip


@each(
    ("codes", "expected"),
    [("0 0", 0), ("0 3", 0), ("0 4", 0), ("1 0", 1), ("3 2", 1), ("1 4", 1), ("4 2", 1), ("0 5", 1)],
)
def test_a_cell_that_is_not_made_again_fails_the_workflow(tmp_path: Path, codes: str, expected: int) -> None:
    where = tmp_path / "repository"
    bin_ = tmp_path / "bin"
    for path in (where, bin_):
        path.mkdir()
    first, second = codes.split()
    (bin_ / "ttabench").write_text(f"#!/bin/sh\ncase $2 in a) exit {first};; *) exit {second};; esac\n")
    (bin_ / "ttabench").chmod(0o755)
    (tmp_path / "folders").write_text("a\nb\n")
    done = shell(
        step(WORKFLOW, "Run some cells again"), where, PATH=f"{bin_}:/usr/bin:/bin", GITHUB_RUN_ID="7"
    )
    assert done.returncode == expected, done.stderr
    assert (
        "::warning::b: some cells were not checked, this machine trains other weights" in done.stdout
    ) == (second == "3")
    assert ("::warning::b: some cells were not run, their data, weights" in done.stdout) == (second == "4")
    assert ("::error::b: nothing was measured of some methods" in done.stdout) == (second == "5")
