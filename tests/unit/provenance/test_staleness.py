"""Which code a stored result is compared with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.stored_results import CELL
from ttabench.cell.protocol import Protocol
from ttabench.provenance import staleness
from ttabench.provenance.staleness import code_now, code_of


def test_the_code_of_a_stored_result_is_that_of_its_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(staleness, "current_code", lambda *given: asked.append(given))
    with_foreign = replace(CELL, protocol=Protocol(contamination="noise(0.2)"))
    for cell in (CELL, with_foreign, replace(CELL, image_files=True)):
        code_of(cell)
        code_now({"cell": cell.to_json()})
    place = "tent", "digits-c", "fog", "resnet18"
    settings = {"lr": 0.001, "norms": "batch"}
    ways = [("", settings, False), ("noise(0.2)", settings, False), ("", settings, True)]
    assert asked == [(*place, *way) for way in ways for _ in range(2)]
