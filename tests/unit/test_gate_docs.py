"""The page and the workflow of the accuracy gate: their commands exist, and the ten lines are ten."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

import ttabench_methods.tent as module
from tests.unit.conftest import Output
from tests.unit.written_commands import options_exist
from ttabench.cli import app
from ttabench_reports.compare import compare

ROOT = Path(__file__).resolve().parents[2]
PAGE, WORKFLOW = ROOT / "docs/gate.md", ROOT / ".github/workflows/accuracy.yml"


def commands(file: Path) -> list[list[str]]:
    lines = (line.strip().removeprefix("- ") for line in file.read_text().splitlines())
    result = [re.fullmatch(r"(?:\$ |run: )?(ttabench \w+ [^|]*).*", line) for line in lines]
    return [shlex.split(match[1])[1:] for match in result if match]


@pytest.mark.parametrize(("file", "least"), [(PAGE, 5), (WORKFLOW, 4)])
def test_every_command_and_option_exists(file: Path, least: int) -> None:
    assert len(commands(file)) >= least
    options_exist(commands(file))


def test_the_workflow_of_an_author_is_ten_lines() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(block.strip().splitlines()) == 10


def test_the_page_names_the_bounds_in_force() -> None:
    options = {
        name: parameter.default
        for parameter in typer.main.get_command(app).commands["compare"].params  # type: ignore[attr-defined]
        for name in parameter.opts
    }
    text = PAGE.read_text()
    assert f"`--max-drop` ({options['--max-drop']:g} point)" in text
    assert f"`--max-mean-drop` ({options['--max-mean-drop']:g} points)" in text
    assert f"`--alpha` ({options['--alpha']:g})" in text


@pytest.mark.slow
def test_a_wrong_sign_fails_the_sweep_of_the_workflow(
    ttabench: Callable[..., Output], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
