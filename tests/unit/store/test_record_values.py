"""The values of a stored result: what ttabench writes passes, other types and ranges do not."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from tests.cases import each
from tests.unit.stored_results import CELL, measured
from ttabench.cell import Cell
from ttabench.observe import calibration
from ttabench.observe.accuracy_windows import windows
from ttabench.observe.unknown_classes import CERTAINTIES, FIGURES
from ttabench.store.columns import COST, OF_UNKNOWN, SCORES
from ttabench.store.record_values import BINS, OF_BINS, check_values
from ttabench.store.record_values import CELL as CELL_FIELDS
from ttabench.system.checked_lines import Damaged

RIGHT = np.arange(200) % 2 == 0
FIGURES_OF_ONE = dict.fromkeys(FIGURES, 50.0)
DETAILS: dict[str, Any] = {
    "adapted": "2 layers", "alarm": "", "source_warning": "", "resets": [1], "mine": {"a": None},
    "cost": {**dict.fromkeys(COST, 2.5), "device_mb": None}, "unlabelled": dict.fromkeys(SCORES, -0.5),
    "calibration": calibration.calibration_bins(np.linspace(0, 1, 200, dtype=np.float32), RIGHT),
    "windows": windows(RIGHT),
    "unknown": {"images": 7, **dict.fromkeys(CERTAINTIES, FIGURES_OF_ONE), "own": None},
}  # fmt: skip


def record(**details: Any) -> dict[str, Any]:
    stored = {"written": 1.0, "source": "", "details": {**DETAILS, **details}}
    return {**measured(CELL, RIGHT).to_json(), **stored}


def test_what_ttabench_writes_passes() -> None:
    check_values(record())
    check_values(record(unlabelled={}, calibration={}))
    assert {*CELL_FIELDS.__struct_fields__} == {field.name for field in fields(Cell)}
    assert calibration.BINS == BINS
    assert DETAILS["calibration"].keys() == set(OF_BINS)
    assert OF_UNKNOWN == CERTAINTIES


def test_the_correctness_of_images_comes_back_as_bits() -> None:
    assert check_values(record()) == np.packbits(RIGHT).tobytes()
    assert check_values({key: value for key, value in record().items() if key != "correct"}) == b""
    for wrong in ("A", "QUJD=", "QU JD", "QUJé", None, [1]):
        with pytest.raises(Damaged, match="its correct is "):
            check_values(record() | {"correct": wrong})


@each("name, value", [("accuracy", 100.5), ("clean_accuracy", 100.5), ("clean_accuracy", -0.5)])
def test_a_number_beyond_its_range_is_damaged(name: str, value: float) -> None:
    with pytest.raises(Damaged, match=f"its {name} is {value}"):
        check_values(record() | {name: value})


ROW = [1.0] * BINS


@each(
    ("name", "value"),
    [
        ("cost", {"forward": "x"}), ("cost", {"forward": [1]}), ("cost", {"forward": math.inf}),
        ("cost", {"forward": math.nan}), ("cost", {"forward": 10**400}), ("cost", {"a": 10**400, "b": 0.5}),
        ("unlabelled", {"snd": {}}), ("calibration", {"count": ROW, "confidence": ROW}),
        ("calibration", {"count": ROW, "confidence": ROW, "correct": ROW[1:]}),
        ("calibration", {"count": ROW, "confidence": ROW, "correct": [[1]] * BINS}),
        ("calibration", {"count": ROW, "confidence": ROW, "correct": 1.0}),
        ("calibration", {"count": ROW, "confidence": ROW, "correct": "1" * BINS}),
        ("calibration", {"count": ROW, "confidence": ROW, "correct": [*ROW[1:], math.nan]}),
        ("windows", {"length": 100}), ("windows", {"length": 0, "accuracy": [1.0]}),
        ("windows", {"length": "100", "accuracy": [1.0]}), ("windows", {"length": 100, "accuracy": ["x"]}),
        ("unknown", {"images": "x"}), ("unknown", {"own": {"auroc": "x"}}), ("unknown", None),
    ],
    ids=str,
)  # fmt: skip
def test_what_tables_and_plots_could_not_read_is_damaged(name: str, value: Any) -> None:
    with pytest.raises(Damaged, match=rf"its details\.{name}"):
        check_values(record(**{name: value}))
