"""Jobs on a real Slurm: what is cancelled, killed, put back or out of time runs again, or is recorded."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from ttabench.run.executors.retry import Attempt

from tests.unit.conftest import Output
from ttabench.cell import Cell, Result
from ttabench.errors import UserError
from ttabench.run.events import Done
from ttabench.run.executors import Died, Limits, Setup, open_engine, retry, slurm
from ttabench.run.unit import Unit
from ttabench.run.worker_state import WorkerState
from ttabench.store import Store
from ttabench.store.tail import Tail, sizes

pytest.importorskip("submitit", reason="submitit is not installed: pip install 'ttabench[slurm]'")

Emit = Callable[[Any], None]
FOREVER, CRASHES = 900, 901  # seeds of cells that do not end, or end their process


@pytest.fixture(scope="session")
def slurm_here() -> None:
    """Asked when a test needs it: without a controller, ``sinfo`` takes seconds to say so."""
    if not slurm_runs():
        pytest.skip("Slurm is not running here")


def slurm_runs() -> bool:
    try:
        done = subprocess.run(["sinfo", "-h", "-o", "%t"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return any(state in done.stdout for state in ("idle", "mix", "alloc"))


on_slurm = pytest.mark.usefixtures("slurm_here")


@dataclass(frozen=True)
class Quick(Unit):
    """A unit whose cells only take time; `begun` is the store before, see `ttabench.store.tail.sizes`."""

    pause: float = 1.0
    begun: tuple[tuple[str, int], ...] = ()

    def __call__(self, emit: Emit, state: WorkerState) -> Done:
        writer, tail = Store.at(self.results).writer(), Tail(self.results, dict(self.begun))
        for cell in self.cells:
            if tail.has(cell.cell_id):
                continue
            task = [os.environ.get(f"SLURM_ARRAY_{part}_ID", "") for part in ("JOB", "TASK")]
            name = "_".join(task) if all(task) else os.environ["SLURM_JOB_ID"]
            with (self.results / "log").open("a") as file:
                file.write(f"{cell.seed} {name} {os.getppid()}\n")
            if cell.seed == CRASHES:
                os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(600 if cell.seed == FOREVER else self.pause)
            result = Result(cell=cell, status="ok", accuracy=100.0, n_images=1, correct=b"\x80")
            writer.append(result)
            emit(Done((result,)))
        return Done()


def log(store: Store) -> list[tuple[int, str, int]]:
    """(seed, task, process of the task) of each cell that was begun."""
    file = store.root / "log"
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [(int(seed), task, int(pid)) for seed, task, pid in lines]


def wait_for(condition: Callable[[], Any], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.1)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(slurm, "GONE", 4.0)
    return Store.create(tmp_path / "results", {})


def quick(cell: Cell, store: Store, seeds: list[list[int]], pause: float = 1.0) -> list[Unit]:
    begun = tuple(sizes(store.root).items())
    return [
        Quick(tuple((replace(cell, seed=seed),) for seed in ours), store.root, pause=pause, begun=begun)
        for ours in seeds
    ]


def run(
    units: list[Unit], store: Store, violence: Callable[[], None] | None = None, **options: str
) -> list[Any]:
    """Run units with two workers and `violence` beside them."""
    engine = open_engine("slurm", Setup(workers="2", folder=store.root, options={"time": "5", **options}))
    beside = threading.Thread(target=violence or (lambda: None))
    beside.start()
    events = list(engine.run(units, 2))
    beside.join()
    wait_for(lambda: slurm.in_queue() == set())
    return events


def done(events: list[Any]) -> set[int]:
    return {result.cell.seed for event in events if isinstance(event, Done) for result in event.results}


def tell(*command: str) -> None:
    subprocess.run(command, check=True, timeout=30)


def cancel(task: str, pid: int) -> None:
    tell("scancel", task)


def kill(task: str, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def put_back(task: str, pid: int) -> None:
    """What Slurm does to a task that it preempts."""
    tell("scontrol", "requeue", task)


@on_slurm
@pytest.mark.parametrize(
    ("violence", "accounting"),
    [
        (cancel, True),
        (cancel, False),
        (kill, True),
        pytest.param(put_back, True, marks=pytest.mark.slow),  # Slurm waits two minutes before it goes on
    ],
)
def test_a_task_that_is_cancelled_killed_or_preempted_loses_the_cell_that_ran(
    cell: Cell, store: Store, violence: Callable[[str, int], None], accounting: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if not accounting:
        monkeypatch.setattr(slurm, "accounted", lambda name: "")

    def strike() -> None:
        wait_for(lambda: any(seed == 1 for seed, _, _ in log(store)))
        violence(*next(entry[1:] for entry in log(store) if entry[0] == 1))

    units = quick(cell, store, [[0, 1, 2, 3], [10, 11, 12, 13], [20], [30]])
    events = run(units, store, strike)
    expected = {0, 1, 2, 3, 10, 11, 12, 13, 20, 30}
    assert done(events) == expected
    assert not [event for event in events if isinstance(event, Died)]
    begun = Counter(seed for seed, _, _ in log(store))
    assert begun == Counter({seed: 2 if seed == 1 else 1 for seed in expected})
    assert {record.result.cell.seed for record in store.records()} == expected
    assert len(list(store.records())) == len(expected)


@on_slurm
def test_a_cell_that_crashes_is_recorded_and_says_how(cell: Cell, store: Store) -> None:
    events = run(quick(cell, store, [[0, CRASHES, 2]], 0.1), store)
    assert done(events) == {0, 2}
    reason = "the worker process was killed by SIGSEGV (a crash in native code), twice, the second time alone"
    assert [(e.job.cells[0].seed, e.reason) for e in events if isinstance(e, Died)] == [(CRASHES, reason)]


@on_slurm
def test_what_is_cancelled_each_time_is_recorded_with_its_log(
    cell: Cell, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "TRIES", 2)

    def strike() -> None:
        for count in (1, 2):
            wait_for(lambda count=count: [seed for seed, _, _ in log(store)].count(FOREVER) == count)
            tell("scancel", [task for seed, task, _ in log(store) if seed == FOREVER][-1])

    events = run(quick(cell, store, [[FOREVER], [1], [2]], 0.1), store, strike)
    (died,) = [event for event in events if isinstance(event, Died)]
    assert done(events) == {1, 2}
    assert died.job.cells[0].seed == FOREVER
    state = slurm.accounted([task for seed, task, _ in log(store) if seed == FOREVER][-1])
    assert state.startswith("CANCELLED") or not state  # not every Slurm has accounting
    assert f"left the queue{f' as {state}' if state else ''}; log: " in died.reason
    assert died.reason.endswith("log.err, 2 times")
    assert Path(died.reason.partition("log: ")[2].removesuffix(", 2 times")).exists()


@on_slurm
@pytest.mark.slow
@pytest.mark.timeout(1200)  # Slurm waits two minutes before a task runs again
def test_a_task_at_its_time_limit_goes_back_into_the_queue_as_long_as_it_gets_on(
    cell: Cell, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "TRIES", 1)
    units = quick(cell, store, [[*range(6), FOREVER], [20]], 8.0)
    events = run(units, store, time="2")  # Slurm tells of a limit up to a minute early
    assert done(events) == {*range(6), 20}
    (died,) = [event for event in events if isinstance(event, Died)]
    assert died.job.cells[0].seed == FOREVER
    assert "at its time limit before any cell was done" in died.reason
    began = [(task, pid) for seed, task, pid in log(store) if seed != 20]
    assert len({task for task, _ in began}) == 1  # the same task: Slurm queued it again, not the sweep
    assert len({pid for _, pid in began}) > 1
    assert Counter(seed for seed, _, _ in log(store))[0] == 1
    assert len(list(store.records())) == 7


@on_slurm
def test_an_interrupted_sweep_takes_its_tasks_out_of_the_queue(cell: Cell, store: Store) -> None:
    engine = open_engine("slurm", Setup(workers="1", folder=store.root, options={"time": "5"}))
    events = engine.run(quick(cell, store, [[0, FOREVER], [FOREVER], [FOREVER]], 0.1), 1)
    assert next(events).results[0].cell.seed == 0
    assert len(slurm.in_queue() or ()) == 3
    events.close()
    wait_for(lambda: slurm.in_queue() == set(), 30)


@on_slurm
def test_a_sweep_that_is_interrupted_while_sbatch_runs_leaves_nothing_in_the_queue(
    cell: Cell, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, taken = tmp_path / "sbatch", tmp_path / "taken"
    slow.write_text(f'#!/bin/sh\n{shutil.which("sbatch")} "$@"\ntouch {taken}\nsleep 2\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    engine = open_engine("slurm", Setup(workers="1", folder=store.root, options={"time": "5"}))

    def interrupt() -> None:
        wait_for(taken.exists)
        assert len(slurm.in_queue() or ()) == 3
        os.kill(os.getpid(), signal.SIGINT)

    beside = threading.Thread(target=interrupt)
    beside.start()
    with pytest.raises(KeyboardInterrupt):
        list(engine.run(quick(cell, store, [[FOREVER], [FOREVER], [FOREVER]]), 1))
    beside.join()
    wait_for(lambda: slurm.in_queue() == set(), 30)


@on_slurm
@pytest.mark.slow  # Slurm waits two minutes before a task runs again
def test_a_task_that_hears_of_its_preemption_before_its_first_cell_is_queued_again_by_itself(
    cell: Cell, store: Store
) -> None:
    def strike() -> None:
        wait_for(lambda: log(store))
        tell("scancel", "--signal=USR2", log(store)[0][1])  # as with PreemptParameters=send_user_signal

    events = run(quick(cell, store, [[0]], 10.0), store, strike, time="60")
    assert done(events) == {0}
    assert not [event for event in events if isinstance(event, Died)]
    first, second = log(store)
    assert first[1] == second[1]  # the same task: Slurm queued it again, not the sweep
    assert first[2] != second[2]


@on_slurm
def test_what_a_job_raises_and_what_slurm_refuses_are_one_sentence(cell: Cell, store: Store) -> None:
    (unit,) = quick(cell, store, [[0]])
    engine = open_engine("slurm", Setup(folder=store.root, options={"time": "5"}))
    with pytest.raises(UserError, match="expected a results folder"):
        list(engine.run([replace(unit, results=store.root / "elsewhere")], 1))
    engine = open_engine("slurm", Setup(folder=store.root, options={"partition": "nowhere"}))
    with pytest.raises(UserError, match=r"Slurm refuses the job: .*partition"):
        list(engine.run([unit], 1))


@on_slurm
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda:1"}, "Slurm chooses the GPU"),
        ({"workers": "0"}, "expected auto or 1 or more"),
        ({"options": {"time": "soon"}}, "expected minutes"),
        ({"options": {"queue": "gpu"}}, "no such option"),
    ],
)
def test_mistakes_come_out_before_anything_is_submitted(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_engine("slurm", Setup(**options))


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
    (line,) = slurm.sbatch_parameters(slurm.OPTIONS, "cpu", 1)["setup"]
    for before in ("", "/earlier"):
        told = subprocess.run(
            ["bash", "-c", f'set -u; {line}; echo "$PYTHONPATH"'], env={"PYTHONPATH": before},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert told.stdout == ":".join(filter(None, [f"{folders[2]}", f"{folders[5]}", before])) + "\n"
    monkeypatch.setattr(sys, "path", [str(tmp_path / "venv")])
    assert slurm.sbatch_parameters(slurm.OPTIONS, "cpu", 1)["setup"] == []


def test_packs_hold_as_many_cells_each_and_keep_the_order(cell: Cell, tmp_path: Path) -> None:
    units = [
        Unit(tuple((replace(cell, seed=seed),) for seed in range(n)), tmp_path) for n in (8, 6, 4, 2, 1, 1)
    ]
    attempts = [Attempt(unit) for unit in units]
    for most in (1, 2, 3, 6, 1000):
        packs = slurm.pack(attempts, most)
        assert len(packs) <= most
        assert [one for ours in packs for one in ours] == attempts
    assert [sum(len(one.job.cells) for one in ours) for ours in slurm.pack(attempts, 3)] == [8, 10, 4]
    assert len(slurm.pack([Attempt("a job without cells")] * 5000, 1000)) == 1000


def test_the_time_limit_of_a_task_comes_from_the_limits_of_its_cells(cell: Cell, tmp_path: Path) -> None:
    limited = Unit(((cell,),), tmp_path, seconds=1800)
    assert slurm.time_limit([Attempt(limited), Attempt(limited)]) == 70
    assert slurm.time_limit([Attempt(limited), Attempt(replace(limited, seconds=0))]) == 240


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="sbatch is missing"):
        open_engine("slurm", Setup(limits=Limits(seconds=1)))


@on_slurm
@pytest.mark.slow
def test_a_sweep_gives_the_numbers_of_local_and_status_names_its_logs(
    ttabench: Callable[..., Output], tmp_path: Path
) -> None:
    sweep = (
        "sweep",
        "--methods",
        "bn_stats",
        "--archs",
        "resnet18",
        "--corruptions",
        "fog,snow",
        "--limit",
        "50",
    )
    local, out = tmp_path / "local", tmp_path / "out"
    assert ttabench(*sweep, "--workers", "1", "--out", local).code == 0
    output = ttabench(*sweep, "--executor", "slurm", "--workers", "2", "--out", out)
    assert output.code == 0, output.err
    expected, actual = Store.at(local).latest(), Store.at(out).latest()
    assert {cell: record.result.correct for cell, record in expected.items()} == {
        cell: record.result.correct for cell, record in actual.items()
    }
    assert f"{out / 'slurm'}, " in ttabench("status", out).out.replace("\n", "")
