"""Where in the code a cell failed: file and line behind the reason, from the stored traceback."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.unit.conftest import Run
from tests.unit.stored_results import filled
from ttabench.cell import Cell
from ttabench.errors import UserError
from ttabench.run.failed_at import reason_and_place
from ttabench.run.worker import failed


def raised(code: str, file: str = "/home/me/mine.py") -> Exception:
    """The exception of a program, as if it stood in a file."""
    try:
        exec(compile(code, file, "exec"), {"torch": torch, "UserError": UserError})
    except Exception as problem:
        return problem
    raise AssertionError("nothing was raised")


def shown(cell: Cell, problem: Exception) -> str:
    result = failed(cell, problem)
    return reason_and_place(result.reason, result.details)


def test_an_exception_of_the_method_has_its_file_and_line(cell: Cell) -> None:
    problem = raised("def adapt():\n    return self_modle\n\nadapt()")
    assert shown(cell, problem) == "NameError: name 'self_modle' is not defined (/home/me/mine.py, line 2)"


def test_one_inside_a_library_has_the_line_that_called_it(cell: Cell) -> None:
    inside = raised("x = 1\ntorch.nn.functional.conv2d(torch.ones(1), None)")
    assert shown(cell, inside).endswith("(/home/me/mine.py, line 2)")
    ours = raised("from ttabench.cell.protocol import Protocol\nProtocol(limit=-1)")
    assert shown(cell, ours).endswith("(/home/me/mine.py, line 2)")


def test_text_of_several_lines_is_no_obstacle(cell: Cell) -> None:
    problem = raised("raise ValueError('first\\nsecond: line')")
    assert shown(cell, problem) == "ValueError: first (/home/me/mine.py, line 1)"


@pytest.mark.parametrize("text", ["mine: lr is -1; expected more.", "no images"])
def test_a_sentence_that_ttabench_wrote_stays_as_it_is(cell: Cell, text: str) -> None:
    assert shown(cell, raised(f"raise UserError({text!r})")) == text


def test_a_result_without_a_traceback_stays_as_it_is() -> None:
    assert reason_and_place("KeyError: 3", {}) == "KeyError: 3"
    assert reason_and_place("", {"traceback": ""}) == ""


def test_status_shows_it(cell: Cell, tmp_path: Path, ttabench: Run) -> None:
    store = filled(tmp_path / "results", failed(replace(cell, seed=1), raised("1 / 0", file="/m.py")))
    output = ttabench("status", store.root)
    assert "division by zero" in output.out
    assert "(/m.py, line 1)" in " ".join(output.out.split())
