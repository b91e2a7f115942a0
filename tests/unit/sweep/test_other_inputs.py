"""Notes on inputs that are not those of stored cells; images and weights: `cli/test_sweep.py`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.unit.stored_results import CELL, fill, measured
from ttabench.cell import Cell
from ttabench.cell.protocol import Protocol
from ttabench.store import Store
from ttabench.sweep.other_inputs import notes_on_other_inputs


def test_foreign_images_that_changed_since_are_noted(tmp_path: Path) -> None:
    def beside(images: str, contamination: str = "others-local(0.5)") -> Cell:
        return replace(CELL, foreign=images * 64, protocol=Protocol(contamination=contamination))

    store = Store.create(tmp_path / "results", {"methods": ["tent"]})
    fill(store, measured(beside("a"), np.ones(4, bool)))

    def notes(cell: Cell) -> list[str]:
        agenda: Any = SimpleNamespace(todo=[cell], done=[], failed=[])
        return [*notes_on_other_inputs(agenda, [], store)]

    (note,) = notes(beside("b"))
    assert " had other foreign images of others-local(0.5), so " in note
    assert not notes(replace(beside("a"), seed=1))
    assert not notes(beside("b", "noise(0.5)"))
    assert not notes(CELL)
