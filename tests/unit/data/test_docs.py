"""The examples of docs/bring-your-own.md run as they stand, top to bottom, in an empty folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ttabench.cli import make_app
from ttabench.data.catalog import dataset
from ttabench.data.published.known_datasets import PUBLISHED

PAGE = Path(__file__).resolve().parents[3] / "docs" / "bring-your-own.md"


@pytest.mark.usefixtures("short_training", "own_cache", "own_data")
@pytest.mark.filterwarnings("ignore:mynets")  # the untrained net of the example
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    commands = 0
    for language, block in re.findall(r"```(python|console)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        if language == "python":
            exec(compile(block, PAGE.name, "exec"), names)
            continue
        for line in block.splitlines():
            program, *arguments = shlex.split(line.removeprefix("$ "))
            assert program == "ttabench"
            done = CliRunner().invoke(make_app(), arguments, catch_exceptions=False)
            assert done.exit_code == 0, f"{line}: {done.output}"
            commands += 1
    assert commands == 9
    assert dataset("flowers-c-local").corruptions == ("gaussian_noise", "fog")
    assert dataset("weather-c-local").num_classes == 4


def test_the_folders_in_the_text_are_those_that_are_read() -> None:
    text = PAGE.read_text()
    for facts in PUBLISHED.values():
        assert facts.name in text
        assert f"$TTABENCH_DATA/{facts.corrupted_folder}/" in text
        assert facts.clean_folder in text
