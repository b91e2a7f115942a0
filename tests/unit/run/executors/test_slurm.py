"""Sweeps on Slurm, whose commands start processes on this machine: see `fake_slurm`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit import fake_slurm
from tests.unit.conftest import Run
from tests.unit.sweep_processes import GRID, correct, records, wait_for
from ttabench.errors import UserError
from ttabench.run.executors import Limits, Setup, open_engine, slurm
from ttabench.store.new_records import sizes
from ttabench.sweep.hand_over import hand_over
from ttabench.sweep.options_to_grid import make_grid
from ttabench.sweep.sweep_file import keep, to_toml, with_flags
from ttabench.system.work_claims import FolderProcesses

SWEEP = ("sweep", *GRID, "--corruptions", "fog,snow", "--out")


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the state of Slurm is."""
    (tmp_path / "slurm commands").mkdir()
    jobs = fake_slurm.install(tmp_path / "slurm commands")
    monkeypatch.setenv("PATH", f"{jobs.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(jobs))
    return jobs


def array(folder: Path) -> slurm.Array:
    return slurm.Array("ttabench-1a2b", folder / "50 % of logs", ["--time=5"], "")


def test_a_task_computes_each_cell_once_with_the_bits_of_local(
    ttabench: Run, here: Path, jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ttabench(*SWEEP, here, "--workers", "0").code == 0
    local = correct(here)
    monkeypatch.setenv("SLURM_ARRAY_TASK_MIN", "of the job that the sweep is started in")
    asks = ("--executor", "slurm", "--workers", "1", "--device", "cpu", "--overwrite", "always")
    output = ttabench(*SWEEP, here, *asks, "--executor-options", "time=30,partition=main")
    assert output.code == 0, output.err
    assert "4 cells, 0 failed" in output.err
    assert set(records(here).values()) == {2}
    assert correct(here) == local
    asked = json.loads((jobs / "asked.json").read_text())
    assert (asked["array"], asked["time"], asked["partition"]) == ("0-3%1", "30", "main")
    (folder,) = (here / "tasks").iterdir()
    assert "[4/4]" in (folder / "0.log").read_text()
    wait_for(lambda: slurm.call("squeue", "--name", folder.name) == "")
    watch = FolderProcesses(here)
    wait_for(lambda: not any(watch.alive(lease.name) for lease in watch.leases()))


def test_a_task_leaves_out_what_another_one_has_stored_though_all_is_to_be_computed_again(
    ttabench: Run, here: Path
) -> None:
    assert ttabench(*SWEEP, here, "--workers", "0").code == 0
    flags = {"methods": "bn_stats", "archs": "net:build", "datasets": "./few-c-local", "batch_size": 10}
    options = with_flags({}, {**flags, "corruptions": "fog,snow", "overwrite": "always", "cell_timeout": 0.5})
    asked = keep(to_toml(make_grid(options).to_options()), here)
    command = hand_over(asked, options, (0, 2), sizes(here), here / "tasks" / "x", here)
    assert command[-4:] == ("--overwrite", "always", "--shard", "1/2")
    task = [part for part in command if part not in ("--cell-timeout", "0.5", "--shard", "1/2")]
    for _ in range(2):
        output = ttabench(*task, "--workers", "0")
        assert (output.code, output.out) == (0, ""), output.err
        assert set(records(here).values()) == {2}
    (here / "tasks" / "x" / "begun.json").write_text("[]")
    assert "is not what a sweep hands over" in ttabench(*task, "--workers", "0").err


def test_tasks_that_cannot_run_end_the_sweep_with_their_last_words(
    ttabench: Run, here: Path, jobs: Path
) -> None:
    asks = ("--executor", "slurm", "--workers", "1", "--device", "cpu")
    output = ttabench(*SWEEP, here, *asks, "--executor-options", "setup=echo no torch here; exit 1")
    assert output.code == 2
    assert "4 of 4 cells are missing, and nothing runs any more (no torch here)." in output.err
    assert "run the same command again" in output.err


def test_a_classifier_that_no_task_has_trained_ends_the_sweep(
    ttabench: Run, jobs: Path, tmp_path: Path
) -> None:
    small = ("--methods", "source", "--archs", "vit_lite", "--corruptions", "fog", "--limit", "20")
    asks = ("--executor", "slurm", "--device", "cpu", "--executor-options", "setup=exit 1")
    output = ttabench("sweep", *small, *asks, "--out", tmp_path / "out")
    assert output.code == 2
    assert "no classifier was trained for vit_lite on digits-c; see" in output.err
    (script,) = (tmp_path / "out").glob("tasks/*/task.sh")
    assert "train --archs vit_lite --datasets digits-c --threads 1" in script.read_text()


def test_an_array_is_taken_back_by_its_name(
    jobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "_cases", lambda commands: ["echo begun", "exec sleep 600"])
    mine = array(tmp_path)
    mine.start([("sweep",)] * 3, 2)
    wait_for(lambda: len(list(mine.folder.glob("*.log"))) == 2)
    wait_for(lambda: mine.trouble() == "begun")
    assert len(list(mine.folder.glob("*.log"))) == 2  # the third waits
    assert mine.is_open()
    assert mine.hint == f"Slurm runs 1 task. For what they do, see the logs in {mine.folder}"
    (jobs / "waiting").write_text("PENDING None")
    assert mine.hint == "`squeue --name=ttabench-1a2b` says what Slurm waits for"
    reasons = ("Resources", "ReqNodeNotAvail, UnavailableNodes:n7", "Resources")
    (jobs / "waiting").write_text("\n".join(f"PENDING {reason}" for reason in reasons))
    assert mine.hint.startswith(
        "Slurm gives as reason: Resources; ReqNodeNotAvail, UnavailableNodes:n7. `squeue"
    )
    mine.cancel()
    wait_for(lambda: not mine.is_open())


def test_tasks_that_slurm_ended_name_the_time_limit(tmp_path: Path) -> None:
    mine = array(tmp_path)
    mine.folder.mkdir()
    (mine.folder / "0.log").write_text("tent: 3/60 adapting\nttabench: ended by SIGTERM.\n")
    assert "time=MINUTES" in mine.trouble()


def test_what_slurm_refuses_or_does_not_answer_is_said(
    jobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (jobs / "refuses").write_text("sbatch: error: Batch job submission failed: Invalid partition")
    mine = array(tmp_path)
    with pytest.raises(UserError, match=r"Slurm refuses the job: .*Invalid partition"):
        mine.start([("sweep",)], 1)
    monkeypatch.setenv("PATH", "/nowhere")
    assert mine.is_open()  # as far as can be seen
    with pytest.warns(UserWarning, match="Later: scancel --name=ttabench-1a2b"):
        mine.cancel()
    with pytest.raises(UserError, match="sbatch is missing"):
        open_engine("slurm", Setup())


def test_options_become_those_of_sbatch() -> None:
    def asked(device: str = "cpu", seconds: float = 0.0, **given: str) -> list[str]:
        return slurm.sbatch_options({**slurm.OPTIONS, **given}, Setup(limits=Limits(seconds)), device, 2)

    many = asked("cuda", time="90.2", mem="1.5", partition="gpu")
    for option in ("--time=91", "--mem=1536M", "--partition=gpu", "--cpus-per-task=2", "--gpus-per-node=1"):
        assert option in many
    assert {"--time=240", "--signal=B:TERM@60"} <= set(asked())
    assert {"--time=1", "--signal=B:TERM@15"} <= set(asked(time="1"))
    assert "--time=310" in asked(seconds=18_000)  # a cell may take five hours
    own = asked("cuda", gres="gpu:a100:2")
    assert "--gres=gpu:a100:2" in own
    assert "--gpus-per-node=1" not in own


@pytest.mark.parametrize(
    ("gres", "per_gpu", "device", "workers", "each"),
    [("", 3, "cuda", "auto", 3), ("gpu:a100:2", 1, "auto", "auto", 2), ("", 1, "auto", "1", 1)],
)
def test_a_task_works_on_the_gpus_that_it_gets(
    jobs: Path, tmp_path: Path, gres: str, per_gpu: int, device: str, workers: str, each: int
) -> None:
    options = {"gres": gres} if gres else {}
    setup = Setup(device=device, per_gpu=per_gpu, folder=tmp_path, options=options)
    engine: Any = open_engine("slurm", setup)
    assert engine.run.keywords["arguments"][2:] == ("--workers", workers)
    assert (engine.run.keywords["each"], engine.workers) == (each, 32 * each)
    assert engine.device == ("cpu" if workers == "1" else "cuda")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda:1"}, "Slurm chooses the GPU"),
        ({"workers": "0"}, "expected auto or 1 or more"),
        ({"options": {"time": "soon"}}, "expected minutes"),
        ({"options": {"queue": "gpu"}}, "no such option"),
    ],
)
def test_mistakes_come_out_before_anything_is_submitted(
    jobs: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        open_engine("slurm", Setup(**options))
    assert list(jobs.iterdir()) == []


def test_tasks_find_what_this_process_does_besides_its_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("venv", "venv/lib", "venv two", "base", "base/lib", "it's mine")
    folders = [tmp_path / name for name in names]
    for folder in folders:
        folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "base"))
    monkeypatch.setattr(sys, "path", [str(folder) for folder in folders])
    (line,) = slurm._exports()
    for before in ("", "/earlier"):
        told = subprocess.run(
            ["bash", "-c", f'set -u; {line}; echo "$PYTHONPATH"'], env={"PYTHONPATH": before},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert told.stdout == ":".join(filter(None, [f"{folders[2]}", f"{folders[5]}", before])) + "\n"
    monkeypatch.setattr(sys, "path", [str(tmp_path / "venv")])
    assert slurm._exports() == []


def test_each_task_of_an_array_has_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "echo")
    script = "\n".join(slurm._cases([("train", "it's"), ("train", "two words")]))
    said = [
        subprocess.run(
            ["bash", "-c", script], env={**os.environ, "SLURM_ARRAY_TASK_ID": task},
            capture_output=True, text=True, check=True,
        ).stdout
        for task in "01"
    ]  # fmt: skip
    assert said == ["-m ttabench train it's\n", "-m ttabench train two words\n"]
