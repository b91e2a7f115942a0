"""What sbatch is asked for, and when a task counts as lost: without Slurm and without submitit."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ttabench.errors import UserError
from ttabench.run.executors import Limits, slurm


def test_options_become_parameters_of_sbatch() -> None:
    given = {**slurm.OPTIONS, "time": "90.2", "mem": "1.5", "partition": "gpu", "setup": "source env.sh"}
    made = slurm.sbatch_parameters(given, "cuda", 2)
    assert (made["time"], made["mem"], made["partition"]) == (91, "1536MB", "gpu")  # minutes; GB are given
    assert (made["cpus_per_task"], made["gpus_per_node"], made["setup"][-1]) == (2, 1, "source env.sh")
    own = slurm.sbatch_parameters({**slurm.OPTIONS, "gres": "gpu:a100:1"}, "cuda", 1)
    assert own["gres"] == "gpu:a100:1"
    assert "gpus_per_node" not in own
    with pytest.raises(UserError, match="time=soon: expected minutes"):
        slurm.sbatch_parameters({**slurm.OPTIONS, "time": "soon"}, "cpu", 1)


def test_a_task_is_lost_when_it_is_neither_queued_nor_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = [0.0]
    monkeypatch.setattr(slurm.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(slurm, "in_queue", lambda: {"queued"})
    monkeypatch.setattr(slurm, "accounted", lambda name: "COMPLETED" if name == "late" else "CANCELLED")
    (tmp_path / "done").touch()

    def submitted(name: str) -> Any:
        return slurm.Submitted(
            SimpleNamespace(job_id=name, paths=SimpleNamespace(result_pickle=tmp_path / name)), []
        )

    names = ("done", "queued", "late", "gone")
    tasks = slurm.Tasks(tmp_path, 1, Limits(), {}, 2, [submitted(name) for name in names])

    def ended(at: float) -> list[str]:
        now[0] = at
        return [task.name for task, _ in tasks.look()]

    times = (0.0, slurm.GONE - 1, slurm.GONE, slurm.LATE)
    assert [ended(at) for at in times] == [["done"], [], ["gone"], ["late"]]
    assert [task.name for task in tasks.open] == ["queued"]
