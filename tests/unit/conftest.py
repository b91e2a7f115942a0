from __future__ import annotations

from dataclasses import replace

import pytest

from ttabench.cell import Cell, Result
from ttabench.protocol import Protocol


@pytest.fixture
def cell() -> Cell:
    return Cell(
        method="tent", config=(("lr", 0.001), ("norms", "batch")), label="tent",
        arch="resnet18", checkpoint="c" * 64, dataset="digits-c", fingerprint="f" * 64,
        corruption="fog", severity=5, seed=0, protocol=Protocol(),
    )  # fmt: skip


@pytest.fixture
def result(cell: Cell) -> Result:
    return Result(
        cell=cell, status="ok", accuracy=62.5, clean_accuracy=97.0, n_images=8, seconds=0.5,
        correct=bytes([0b10110110]), details={"adapted": "2 BatchNorm2d"},
    )  # fmt: skip


@pytest.fixture
def other(result: Result) -> Result:
    return replace(result, cell=replace(result.cell, corruption="snow"), accuracy=50.0)
