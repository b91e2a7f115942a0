"""Sweeps on Ray: on a cluster of several nodes on this machine where it is installed, else on one made up."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.unit.conftest import Run
from tests.unit.sweep_processes import GRID, correct, records
from ttabench.errors import UserError
from ttabench.run.executors import Setup, open_engine
from ttabench.run.executors.ray import RETRIES, Tasks

SWEEP = ("sweep", *GRID, "--corruptions", "fog,snow,frost", "--out")


class Nodes:
    """A cluster whose head has no cores, and nodes of one core each."""

    def __init__(self, count: int) -> None:
        from ray.cluster_utils import Cluster

        self.cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
        )
        self.nodes = [self.cluster.add_node(num_cpus=1, object_store_memory=80_000_000) for _ in range(count)]
        self.cluster.wait_for_nodes()

    def kill_one(self) -> None:
        self.cluster.remove_node(self.nodes.pop(), allow_graceful=False)


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'ttabench[ray]'")
    made = Nodes(2)
    ray.init(address=made.cluster.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.cluster.shutdown()


def test_a_node_that_is_killed_loses_no_cell_and_the_bits_are_those_of_local(
    nodes: Nodes, ttabench: Run, here: Path
) -> None:
    alone = here.parent / "alone"
    assert ttabench(*SWEEP, alone, "--workers", "0").code == 0

    def kill() -> None:
        while not (here / "cells").exists() or not records(here):
            time.sleep(0.1)
        nodes.kill_one()

    killer = threading.Thread(target=kill)
    killer.start()
    output = ttabench(*SWEEP, here, "--executor", "ray")
    killer.join()
    assert output.code == 0, output.err
    expected = correct(alone)
    assert correct(here) == expected
    assert sum(records(here).values()) <= len(expected) + 1  # only what ran on the node may be there twice
    with pytest.raises(UserError, match="this Ray cluster has no GPU"):
        open_engine("ray", Setup(folder=here, device="cuda"))


def test_an_address_without_a_cluster_is_refused_at_once(
    made_up: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up.is_initialized = lambda: False
    with pytest.raises(UserError, match=r"no Ray cluster answers at 127\.0\.0\.1:9"):
        open_engine("ray", Setup(folder=tmp_path, options={"address": "127.0.0.1:9"}))
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with pytest.raises(UserError, match="no Ray cluster answers"):
        open_engine("ray", Setup(folder=tmp_path))


class Task:
    """A task of Ray that has ended with `problem`, or runs."""

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self.arguments, self.runs, self.problem = arguments, True, None

    def end(self, problem: Any = None) -> None:
        self.runs, self.problem = False, problem


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module ray with a cluster of two nodes; `tasks` are those that were started."""
    ray: Any = ModuleType("ray")
    ray.tasks, ray.asked = [], {}

    def remote(**asked: Any) -> Any:
        ray.asked = asked

        def start(*arguments: Any) -> Task:
            ray.tasks.append(Task(arguments))
            return ray.tasks[-1]  # type: ignore[no-any-return]

        return lambda function: SimpleNamespace(remote=start)

    def wait(tasks: list[Task], num_returns: int, timeout: float) -> tuple[list[Task], list[Task]]:
        return [task for task in tasks if not task.runs], [task for task in tasks if task.runs]

    def get(task: Task) -> None:
        if task.problem is not None:
            raise task.problem

    node = {"Alive": True, "Resources": {"CPU": 4.0, "GPU": 2.0}}
    ray.nodes = lambda: [node, node, {"Alive": False, "Resources": {"GPU": 8.0}}]
    ray.is_initialized = lambda: True
    ray.remote, ray.wait, ray.get, ray.cancel = remote, wait, get, Task.end
    monkeypatch.setitem(sys.modules, "ray", ray)
    return ray


@pytest.mark.parametrize(
    ("given", "workers", "needs"),
    [
        ({}, 4, {"num_cpus": 0, "num_gpus": 1}),
        ({"per_gpu": 4}, 16, {"num_cpus": 0, "num_gpus": 0.25}),
        ({"device": "cpu"}, 8, {"num_cpus": 1}),
        ({"device": "cpu", "workers": "3"}, 3, {"num_cpus": 1}),
    ],
)
def test_there_is_one_task_per_gpu_or_core(
    made_up: Any, tmp_path: Path, given: dict[str, Any], workers: int, needs: dict[str, float]
) -> None:
    engine: Any = open_engine("ray", Setup(folder=tmp_path, **given))
    assert (engine.workers, engine.device) == (workers, "cpu" if "device" in given else "cuda")
    places = engine.run.keywords["places"]
    places.start([("sweep",)] * workers, workers)
    assert len(made_up.tasks) == workers
    assert made_up.asked.items() >= {**needs, "max_retries": RETRIES}.items()


def test_tasks_are_open_until_the_last_has_ended_and_say_what_went_wrong(
    made_up: Any, tmp_path: Path
) -> None:
    tasks = Tasks(made_up, {"num_cpus": 1}, tmp_path / "logs")
    assert not tasks.is_open()
    tasks.start([("sweep",), ("sweep",)], 2)
    first, second = made_up.tasks
    first.end()
    assert (tasks.is_open(), tasks.trouble()) == (True, "")
    second.end(RuntimeError("its node was lost\nand more"))
    assert (tasks.is_open(), tasks.trouble()) == (False, "its node was lost")
    tasks.start([("sweep",)], 1)
    tasks.cancel()
    assert not tasks.is_open()


@pytest.mark.parametrize(
    ("device", "message"), [("cuda:1", "Ray chooses the GPU"), ("cpu", "has no such option")]
)
def test_mistakes_are_one_sentence(tmp_path: Path, device: str, message: str) -> None:
    options = {"partition": "gpu"} if device == "cpu" else {}
    with pytest.raises(UserError, match=message):
        open_engine("ray", Setup(folder=tmp_path, device=device, options=options))


def test_a_task_runs_the_command_in_the_folder_of_the_sweep_and_logs_what_it_says(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from ttabench.run.executors.ray import work\n"
        f"log = Path({str(tmp_path)!r}) / 'a.log'\n"
        "work(['list', 'protocols'], log, log.parent, ['/mine'], {'TTABENCH_MINE': '1'})\n"
        "assert os.environ['TTABENCH_MINE'] == '1' and sys.path[-1] == '/mine' and Path.cwd() == log.parent\n"
        "try:\n"
        "    work(['list', 'protocol'], log, '/no such folder', [], {})\n"
        "except RuntimeError as problem:\n"
        "    os.system(f'echo it says: \"{problem}\"')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    log = (tmp_path / "a.log").read_text()
    assert "wild:mixed" in log
    assert log.count("ttabench: unknown listing 'protocol'") == 2
    assert "it says: ttabench: unknown" in log
