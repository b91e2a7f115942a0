"""Sweeps on the Slurm of this machine, if it has one; `test_slurm` uses one made up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.conftest import Run
from tests.unit.sweep_processes import GRID, correct, environment, records, wait_for
from ttabench.run.executors.slurm import call

ON_SLURM = ("--executor", "slurm", "--workers", "1", "--device", "cpu", "--executor-options", "time=20")
SWEEP = ("sweep", *GRID, "--corruptions", "fog,snow", "--out")


@pytest.fixture
def idle() -> Iterator[None]:
    """A Slurm that has a free node, and no job when the test ends."""
    if not call("sinfo", "--noheader", "--Node", "--states=idle"):
        pytest.skip("no Slurm with a free node answers here: see sinfo")
    yield
    wait_for(lambda: not jobs())


def jobs(*chosen: str) -> list[str]:
    """The numbers of the tasks of this user, e.g. those with ``--states=RUNNING``."""
    listed = call("squeue", "--noheader", "--user", str(os.getuid()), "--format", "%A", *chosen)
    assert listed is not None
    return listed.split()


def sweep_process(out: Path, pause: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ttabench", *SWEEP, str(out), *ON_SLURM]
    return subprocess.Popen(
        command, cwd=out.parent, env=environment(out.parent, pause), stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
@pytest.mark.usefixtures("idle")
def test_a_task_that_slurm_ends_loses_no_cell_and_the_bits_are_those_of_local(
    ttabench: Run, here: Path
) -> None:
    alone = here.parent / "alone"
    assert ttabench(*SWEEP, alone, "--workers", "0").code == 0
    sweep = sweep_process(here, pause=0.1)
    wait_for(lambda: (here / "cells").exists() and records(here))
    (task,) = jobs("--states=RUNNING")
    assert call("scontrol", "requeue", task) is not None
    _, told = sweep.communicate(timeout=600)
    assert sweep.returncode == 0, told
    assert "4 cells, 0 failed" in told
    assert correct(here) == correct(alone)
    assert set(records(here).values()) == {1}
    (log,) = here.glob("tasks/*/0.log")
    assert "ended by SIGTERM" in log.read_text()  # a later task, or the same one again, has done the rest


@pytest.mark.slow
@pytest.mark.usefixtures("idle")
def test_ctrl_c_takes_the_tasks_back(here: Path) -> None:
    sweep = sweep_process(here, pause=60)
    wait_for(lambda: jobs("--states=RUNNING"))
    sweep.send_signal(signal.SIGINT)
    _, told = sweep.communicate(timeout=120)
    assert sweep.returncode == 130, told
    assert "the same command goes on from there" in told
    wait_for(lambda: not jobs())
