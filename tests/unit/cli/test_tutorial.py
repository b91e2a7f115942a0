"""The tutorial runs as it stands, top to bottom, in an empty folder, with untrained networks for digits-c."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.unit.conftest import Run
from tests.unit.tex import compiled

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tutorial.md"


@pytest.mark.slow
@pytest.mark.usefixtures("short_training", "own_data")
@pytest.mark.filterwarnings("ignore")  # networks that were trained on a few images, or not at all
def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ttabench: Run) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for language, block in re.findall(r"```(python|console|latex)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        if language == "latex":
            Path("paper.tex").write_text(block)
            if shutil.which("pdflatex") and shutil.which("pdftotext"):
                assert "Figure 1" in compiled(tmp_path, "paper")
            continue
        if language == "python":
            exec(compile(block, PAGE.name, "exec"), names)
            continue
        for line in block.splitlines():
            prompt, program, *arguments = shlex.split(line)
            assert (prompt, program) == ("$", "ttabench")
            more = ("--workers", "0") if arguments[0] == "sweep" else ()
            output = ttabench(*arguments, *more)
            assert output.code == 0, f"{line}: {output.out}{output.err}"
    assert list(Path("first/report").glob("*.tex"))
    assert list(Path("first/report").glob("ablation*"))
    assert list(Path("shades-results/report").glob("*.png"))
