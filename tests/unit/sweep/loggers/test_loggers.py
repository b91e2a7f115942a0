"""Loggers get every result of a sweep: with small stand-ins for the packages, and with TensorBoard itself."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.conftest import Run
from ttabench.cell import Result
from ttabench.cell.protocol import Protocol
from ttabench.errors import UserError
from ttabench.store import Store
from ttabench.sweep.loggers import name_of, names_of, open_loggers

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
    assert name_of(cell) == "tent_lr_0.01_norms_all_/timm_resnet50/digits-c/fog"


def test_cells_of_one_method_under_two_protocols_have_two_names(result: Result) -> None:
    online = replace(result.cell, protocol=Protocol(batch_size=16))
    large = replace(online, protocol=Protocol(batch_size=32))
    offline = replace(online, protocol=Protocol(mode="offline", batch_size=16))
    other = replace(large, label="source", method="source")
    again = replace(online, seed=7)
    cells = (online, large, offline, other, again)
    names = names_of(cells)
    plain = "tent/resnet18/digits-c/fog-5"
    assert [names[cell.cell_id] for cell in cells] == [
        f"{plain}/mode-online/batch_size-16", f"{plain}/mode-online/batch_size-32",
        f"{plain}/mode-offline/batch_size-16", "source/resnet18/digits-c/fog-5",
        f"{plain}/mode-online/batch_size-16",
    ]  # fmt: skip
    weights = [replace(online, checkpoint=text * 64) for text in "ab"]
    assert [*names_of(weights).values()] == [f"{plain}/weights-aaaaaaaa", f"{plain}/weights-bbbbbbbb"]


def test_a_sweep_tells_loggers_its_protocols_apart(
    tmp_path: Path, ttabench: Run, mlflow: SimpleNamespace
) -> None:
    logged: list[str] = []
    mlflow.log_metrics = lambda values, step: logged.extend(values)
    file = tmp_path / "sweep.toml"
    file.write_text(
        'methods = ["source"]\narchs = ["resnet18"]\ncorruptions = ["fog"]\nlimit = 20\nbatch_size = 10\n'
        "[[include]]\nmethods = ['source']\nbatch_size = 20\n"
    )
    output = ttabench("sweep", "--config", file, "--workers", "0", "--log", "mlflow", "--out", tmp_path / "r")
    assert output.code == 0, output.err
    accuracies = [name for name in logged if name.startswith("accuracy/")]
    assert sorted(name.rpartition("/")[2] for name in accuracies) == ["batch_size-10", "batch_size-20"]


def test_a_package_that_is_missing_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(UserError, match=f"pip install {name}"), open_loggers([name], tmp_path):
            pass
    with pytest.raises(UserError, match="did you mean 'wandb'"), open_loggers(["wandbb"], tmp_path):
        pass


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A stand-in for MLflow that takes everything."""
    fake = SimpleNamespace(
        start_run=lambda run_name: None, log_metrics=lambda values, step: None, end_run=lambda: None
    )
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    return fake


def no_route(*_: Any, **__: Any) -> None:
    raise ConnectionError("no route to the server.\nA second line.")


def test_a_logger_whose_server_is_gone_is_left_out_and_the_sweep_goes_on(
    tmp_path: Path, ttabench: Run, mlflow: SimpleNamespace
) -> None:
    pytest.importorskip("tensorboard")
    mlflow.log_metrics = no_route
    out = tmp_path / "results"
    output = ttabench("sweep", *SMALL, "--log", "mlflow,tensorboard", "--out", out)
    assert output.code == 0, output.err
    said = [line for line in output.err.splitlines() if "mlflow" in line]
    assert len(said) == 1, output.err
    assert (
        "--log mlflow: ConnectionError: no route to the server. No more results of this sweep are sent to it"
        in said[0]
    )
    assert "Traceback" not in output.err
    assert len(Store(out).latest()) == 2
    assert list((out / "tensorboard").iterdir())


def test_a_logger_that_cannot_be_closed_is_one_warning(
    tmp_path: Path, mlflow: SimpleNamespace, result: Result
) -> None:
    mlflow.end_run = no_route
    with pytest.warns(UserWarning, match="--log mlflow: ConnectionError"), open_loggers(["mlflow"], tmp_path):
        pass


def test_a_logger_that_cannot_be_started_is_one_sentence(
    tmp_path: Path, ttabench: Run, mlflow: SimpleNamespace
) -> None:
    mlflow.start_run = no_route
    output = ttabench("sweep", *SMALL, "--log", "mlflow", "--out", tmp_path / "results")
    assert output.code == 2
    assert "--log mlflow cannot be started: ConnectionError: no route to the server." in output.err
    assert "Traceback" not in output.err
