"""Loggers get every result of a sweep: with small stand-ins for the packages, and with TensorBoard itself."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.conftest import Output
from ttabench.cell import Result
from ttabench.errors import UserError
from ttabench.loggers import name_of, open_loggers

Run = Callable[..., Output]
SMALL = (
    "--methods",
    "tent",
    "--archs",
    "resnet18",
    "--corruptions",
    "fog",
    "--limit",
    "20",
    "--workers",
    "0",
)


def log_two(name: str, folder: Path, result: Result) -> None:
    failed = replace(result, status="failed", accuracy=None, correct=b"", reason="NaN")
    with open_loggers([name], folder) as loggers:
        loggers.add(replace(result, cell=replace(result.cell, seed=3)))
        loggers.add(failed)


def test_mlflow_gets_metrics_with_the_seed_as_step(
    tmp_path: Path, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    fake = SimpleNamespace(
        start_run=lambda run_name: calls.append(run_name),
        log_metrics=lambda values, step: calls.append((values, step)),
        end_run=lambda: calls.append("end"),
    )
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    log_two("mlflow", tmp_path / "mine", result)
    name = "tent/resnet18/digits-c/fog-5"
    assert calls == [
        "mine",
        ({f"accuracy/{name}": 62.5, f"seconds/{name}": 0.5}, 3),
        ({"sweep/done": 1.0, "sweep/failed": 0.0}, 1),
        ({"sweep/done": 2.0, "sweep/failed": 1.0}, 2),
        "end",
    ]


def test_wandb_gets_the_step_as_a_value(
    tmp_path: Path, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    handle = SimpleNamespace(log=calls.append, finish=lambda: calls.append("end"))

    def init(**about: Any) -> Any:
        calls.append(about)
        return handle

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    log_two("wandb", tmp_path, result)
    assert calls[0] == {"project": "ttabench", "name": tmp_path.name, "dir": str(tmp_path)}
    assert calls[1]["step"] == 3
    assert calls[1]["accuracy/tent/resnet18/digits-c/fog-5"] == 62.5
    assert calls[-2:] == [{"sweep/done": 2.0, "sweep/failed": 1.0, "step": 2}, "end"]


def test_tensorboard_files_hold_the_accuracies(tmp_path: Path, ttabench: Run) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    output = ttabench("sweep", *SMALL, "--log", "tensorboard", "--out", tmp_path / "results")
    assert output.code == 0, output.err
    actual = accumulator.EventAccumulator(str(tmp_path / "results" / "tensorboard"))
    actual.Reload()
    tags = set(actual.Tags()["scalars"])
    assert {"accuracy/tent/resnet18/digits-c/fog-5", "accuracy/source/resnet18/digits-c/fog-5"} < tags
    assert [event.value for event in actual.Scalars("sweep/done")] == [1.0, 2.0]


def test_names_have_only_characters_that_every_logger_takes(result: Result) -> None:
    cell = replace(result.cell, label="tent[lr=0.01,norms=all]", arch="timm/resnet50", severity=0)
    assert name_of(replace(result, cell=cell)) == "tent_lr_0.01_norms_all_/timm_resnet50/digits-c/fog"


def test_a_package_that_is_missing_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(UserError, match=f"pip install {name}"), open_loggers([name], tmp_path):
            pass
    with pytest.raises(UserError, match="did you mean 'wandb'"), open_loggers(["wandbb"], tmp_path):
        pass
