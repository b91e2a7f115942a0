"""The table of docs/choosing-settings.md is the one that its commands give."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.unit.conftest import Run

PAGE = Path(__file__).resolve().parents[3] / "docs" / "choosing-settings.md"


@pytest.mark.slow
def test_the_commands_give_the_table(ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands, table = PAGE.read_text().split("```")[1:4:2]
    for command in commands.replace("\\\n", " ").strip().splitlines():
        output = ttabench(*shlex.split(command)[1:])
        assert output.code == 0, output.err
    printed = [line.split() for line in output.out.splitlines()]
    for line in table.strip().splitlines():
        assert line.split() in printed
