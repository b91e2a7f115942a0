"""What a method reports is stored as JSON, whatever its numbers are; and its folder may be gone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from ttabench.cell import Result
from ttabench.errors import UserError
from ttabench.run.cell_result import plain
from ttabench.store import Store, Writer


def test_numbers_of_numpy_and_torch_and_nan_become_json() -> None:
    reported = {
        "float": np.float32(0.5), "int": np.int64(3), "bool": np.bool_(True), "array": np.arange(2),
        "tensor": torch.tensor([1.5]), "nan": float("nan"), "inner nan": np.array([np.nan, np.inf]),
        "pair": (np.float64(1.0), {2: torch.tensor(4)}), "none": None, "text": "x", "path": Path("a"),
    }  # fmt: skip
    stored = {name: plain(value) for name, value in reported.items()}
    assert json.loads(json.dumps(stored, allow_nan=False)) == {
        "float": 0.5, "int": 3, "bool": True, "array": [0, 1], "tensor": [1.5], "nan": "nan",
        "inner nan": ["nan", "inf"], "pair": [1.0, {"2": 4}], "none": None, "text": "x", "path": "a",
    }  # fmt: skip


def test_a_writer_without_its_folder_is_one_sentence(tmp_path: Path, result: Result) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        Writer(tmp_path / "gone").append(result)


def test_a_folder_that_is_deleted_while_a_sweep_runs_is_noticed(tmp_path: Path, result: Result) -> None:
    store = Store.create(tmp_path / "results", {"methods": ["tent"]})
    writer = store.writer()
    writer.append(result)
    shutil.rmtree(tmp_path / "results")
    with pytest.raises(UserError, match="was deleted while the sweep ran"):
        writer.append(result)
