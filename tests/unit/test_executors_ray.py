"""Jobs on a real Ray cluster of several nodes on this machine, one of which is killed while it works."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import Output
from ttabench.errors import UserError
from ttabench.run.executors import Died, Limits, Setup, open_engine
from ttabench.run.worker_state import WorkerState
from ttabench.store import Store

pytest.importorskip("ray", reason="Ray is not installed: pip install 'ttabench[ray]'")

Emit = Callable[[Any], None]


@dataclass(frozen=True)
class Step:
    """A cell that is stored, and where it ran."""

    finished: tuple[str, ...]
    pid: int
    parent: int


@dataclass(frozen=True)
class Steps:
    """Cells by name, as a unit has them; ``kill`` ends its process."""

    names: tuple[str, ...]
    seconds: float = 0.0

    def __call__(self, emit: Emit, state: WorkerState) -> None:
        for cell in self.names:
            if cell == "kill":
                os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(self.seconds)
            emit(Step((cell,), os.getpid(), os.getppid()))

    def split(self, finished: Collection[str]) -> tuple[Steps | None, Steps | None]:
        left = tuple(cell for cell in self.names if cell not in finished)
        first, rest = Steps(left[:1], self.seconds), Steps(left[1:], self.seconds)
        return (first if first.names else None), (rest if rest.names else None)


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


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    import ray

    made = Nodes(3)
    ray.init(address=made.cluster.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.cluster.shutdown()


def test_a_node_that_is_killed_loses_no_cell(nodes: Nodes, tmp_path: Path) -> None:
    engine = open_engine("ray", Setup(folder=tmp_path))
    assert (engine.workers, engine.device) == (3, "cpu")
    jobs = [Steps(tuple(f"{job}{cell}" for cell in range(5)), 0.3) for job in "abcdefgh"]
    done: list[str] = []
    workers = set()
    for event in engine.run(jobs, 3):
        assert not isinstance(event, Died), event.reason
        if isinstance(event, Step):
            done += event.finished
            workers.add(event.pid)
            if len(done) == 10:
                nodes.kill_one()
    assert sorted(set(done)) == sorted(cell for job in jobs for cell in job.names)
    assert len(done) <= 40 + 2  # what ran on the node and what was on its way
    assert len(workers) <= 4  # a slot keeps its process from job to job


@pytest.mark.slow
def test_a_sweep_gives_the_numbers_of_local_bit_for_bit_though_a_node_is_killed(
    nodes: Nodes, ttabench: Callable[..., Output], tmp_path: Path
) -> None:
    sweep = ("sweep", "--methods", "bn_stats,tent", "--archs", "resnet18,cct", "--limit", "100")
    local, ray = tmp_path / "local", tmp_path / "ray"
    assert ttabench(*sweep, "--workers", "2", "--out", local).code == 0

    def kill() -> None:
        while len(list(Store.at(ray).records()) if (ray / "sweep.json").exists() else ()) < 20:
            time.sleep(0.1)
        nodes.kill_one()

    killer = threading.Thread(target=kill)
    killer.start()
    output = ttabench(*sweep, "--executor", "ray", "--out", ray)
    killer.join()
    assert output.code == 0, output.err
    expected, actual = Store.at(local).latest(), Store.at(ray).latest()
    assert expected.keys() == actual.keys()
    for cell, record in expected.items():
        again = actual[cell].result
        assert again.status == record.result.status
        assert (again.accuracy, again.correct) == (record.result.accuracy, record.result.correct)
    ids = [record.cell_id for record in Store.at(ray).records()]
    assert len(ids) - len(set(ids)) <= 1  # only what ran on the node that was killed may be there twice
    assert "0 to run" in ttabench(*sweep, "--out", ray).err


def test_deaths_limits_and_mistakes_are_those_of_local(nodes: Nodes, tmp_path: Path) -> None:
    jobs = [Steps(("a", "kill", "b"))]
    events = list(open_engine("ray", Setup(folder=tmp_path)).run(jobs, 1))
    assert [event.finished for event in events if isinstance(event, Step)] == [("a",), ("b",)]
    assert [event for event in events if isinstance(event, Died)] == [
        Died(
            Steps(("kill",)),
            "the worker process was killed by SIGSEGV (a crash in native code), twice, the second time alone",
        )
    ]
    limited = open_engine("ray", Setup(folder=tmp_path, limits=Limits(seconds=1)))
    (died,) = limited.run([Steps(("long",), 60)], 1)
    assert died.reason == "it ran longer than 1 s and was stopped"
    with pytest.raises(ZeroDivisionError):
        list(open_engine("ray", Setup(folder=tmp_path)).run([raises], 1))
    with pytest.raises(UserError, match="this Ray cluster has no GPU"):
        open_engine("ray", Setup(folder=tmp_path, device="cuda"))
    with pytest.raises(UserError, match="Ray chooses the GPU"):
        open_engine("ray", Setup(folder=tmp_path, device="cuda:1"))
    with pytest.raises(UserError, match="has no such option"):
        open_engine("ray", Setup(folder=tmp_path, options={"partition": "gpu"}))


def test_an_address_without_a_cluster_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(UserError, match=r"no Ray cluster answers at 127\.0\.0\.1:9"):
        open_engine("ray", Setup(folder=tmp_path, options={"address": "127.0.0.1:9"}))
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with pytest.raises(UserError, match="no Ray cluster answers"):
        open_engine("ray", Setup(folder=tmp_path))


def raises(emit: Emit, state: WorkerState) -> None:
    raise ZeroDivisionError
