"""The page and the workflow of the accuracy gate: their commands exist, and the ten lines are ten."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

import ttabench_methods.tent as module
from tests.unit.conftest import Run
from tests.unit.written_commands import options_exist, step
from ttabench.cli import command
from ttabench_reports.compare import Bounds, compare

ROOT = Path(__file__).resolve().parents[3]
PAGE, WORKFLOW = ROOT / "docs/gate.md", ROOT / ".github/workflows/accuracy.yml"


def commands(file: Path) -> list[list[str]]:
    lines = (line.strip().removeprefix("- ") for line in file.read_text().splitlines())
    result = [re.fullmatch(r"(?:\$ |run: )?(ttabench \w+ [^|]*).*", line) for line in lines]
    return [shlex.split(match[1])[1:] for match in result if match]


@pytest.mark.parametrize(("file", "least"), [(PAGE, 5), (WORKFLOW, 4)])
def test_every_command_and_option_exists(file: Path, least: int) -> None:
    assert len(commands(file)) >= least
    options_exist(commands(file))


def test_a_method_that_a_pull_request_adds_to_the_sweep_is_not_asked_of_the_base(tmp_path: Path) -> None:
    """Both sides measure the same, and what both of them know."""
    root, bin_ = tmp_path / "repository", tmp_path / "bin"
    gate = root / "tests/regression/gate.toml"
    for folder in (gate.parent, bin_):
        folder.mkdir(parents=True)
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run([*git, "init", "-q"], cwd=root, check=True)
    for methods in ('["tent"]', '["tent", "new"]'):
        gate.write_text(f"methods = {methods}\n")
        subprocess.run([*git, "add", "."], cwd=root, check=True)
        subprocess.run([*git, "commit", "-qm", "one"], cwd=root, check=True)
    # A sweep that leaves its sweep file in place of results.
    scripts = {"pip": "", "ttabench": '[ "$1 $2 $4" = "sweep --config --out" ]\ncp "$3" "$5"\n'}
    for name, code in scripts.items():
        (bin_ / name).write_text(f"#!/bin/sh -e\n{code}")
        (bin_ / name).chmod(0o755)
    for name in ("Measure the base", "Measure the pull request"):
        env = {"PATH": f"{bin_}:/usr/bin:/bin", "BASE": "HEAD~1", "RUNNER_TEMP": str(tmp_path)}
        shell = ["bash", "-euo", "pipefail", "-c", step(WORKFLOW, name)]
        subprocess.run(shell, cwd=root, check=True, capture_output=True, env=env)
    for side in ("base", "head"):
        assert (tmp_path / f"results-{side}").read_text() == 'methods = ["tent"]\n'


def test_the_workflow_of_an_author_is_ten_lines_and_says_what_to_check_once() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    remarks = [line.strip() for line in block.splitlines() if line.strip().startswith("#")]
    assert len(block.strip().splitlines()) - len(remarks) == 10
    assert "check once that the gate fails with the sign of the step reversed" in remarks[0]


def test_the_page_names_the_bounds_in_force() -> None:
    shown = {
        name: parameter.show_default
        for parameter in command().commands["compare"].params
        for name in parameter.opts
    }
    bounds, text = Bounds(), PAGE.read_text()
    assert f"`--max-drop` ({bounds.max_drop:g} point)" in text
    assert f"`--max-mean-drop` ({bounds.max_mean_drop:g} points)" in text
    assert f"`--alpha` ({bounds.alpha:g})" in text
    for option, value in (
        ("--max-drop", bounds.max_drop), ("--max-mean-drop", bounds.max_mean_drop), ("--alpha", bounds.alpha),
    ):  # fmt: skip
        assert shown[option] == f"{value:g}"


@pytest.mark.slow
def test_a_wrong_sign_fails_the_sweep_of_the_workflow(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = ("sweep", "--config", ROOT / "tests/regression/gate.toml", "--methods", "tent", "--workers", "0")
    assert ttabench(*sweep, "--out", tmp_path / "before").code == 0
    right = module.minimise
    monkeypatch.setattr(module, "minimise", lambda loss, optimizer: right(-loss, optimizer))
    assert ttabench(*sweep, "--out", tmp_path / "after").code == 0
    outcome = compare(tmp_path / "before", tmp_path / "after")
    assert outcome.failed
    assert (outcome.means["verdict"] == "fell").sum() == 1
    assert not compare(tmp_path / "before", tmp_path / "before", 0, 0).failed
