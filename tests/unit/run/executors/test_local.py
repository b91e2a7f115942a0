"""Jobs in processes: each bound to its GPU, and none of them able to take the rest down."""

from __future__ import annotations

import errno
import mmap
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.sweep_processes import wait_for
from ttabench.errors import UserError
from ttabench.run.executors import (
    Died,
    Limits,
    Setup,
    child,
    inline,
    local,
    open_engine,
    watched_worker,
    workers,
)
from ttabench.run.executors.watched_worker import WorkerProcess, describe, resident
from ttabench.run.executors.workers import bindings, pick_executor, pick_workers, sharing
from ttabench.run.kept_objects import WorkerState

Emit = Callable[[Any], None]


@dataclass(frozen=True)
class Says:
    """Tells its name, its process and what GPU that sees, once there is the file `after`."""

    name: str = "fine"
    after: Path | None = None

    def __call__(self, emit: Emit, state: WorkerState) -> tuple[str, int, str]:
        if self.after:
            wait_for(self.after.exists)
        assert torch.get_num_threads() == 1
        return self.name, os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES", "")


@dataclass(frozen=True)
class Kills:
    """Ends its process with a signal, or with an exit code where `how` is negative."""

    how: int
    once: Path | None = None  # a file that marks that it was done already

    def __call__(self, emit: Emit, state: WorkerState) -> str:
        if self.once and self.once.exists():
            return "second time"
        if self.once:
            self.once.touch()
        if self.how < 0:
            os._exit(-self.how)
        os.kill(os.getpid(), self.how)
        time.sleep(60)
        return "still here"


@dataclass(frozen=True)
class Event:
    cell: str
    pid: int


@dataclass(frozen=True)
class Hangs:
    """A cell ends when there is a file of its name: the third never does."""

    folder: Path

    def __call__(self, emit: Emit, state: WorkerState) -> None:
        for cell in ("a", "b", "c"):
            emit(Event(cell, os.getpid()))
            while not (self.folder / cell).exists():
                time.sleep(0.01)


class Clock:
    """The clock of the limits, which goes on by hand: on a busy machine everything may take long."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(watched_worker, "time", self)

    def monotonic(self) -> float:
        return self.now


@dataclass(frozen=True)
class Grows:
    """Fills so many bytes, and keeps them for a while."""

    size: int

    def __call__(self, emit: Emit, state: WorkerState) -> str:
        held = bytearray(b"x") * self.size
        time.sleep(3)
        return str(len(held))


@dataclass(frozen=True)
class Meets:
    """Waits until as many workers are at work as there are jobs: each has one of these."""

    folder: Path
    count: int

    def __call__(self, emit: Emit, state: WorkerState) -> tuple[str, int, str]:
        (self.folder / str(os.getpid())).touch()
        wait_for(lambda: len(list(self.folder.iterdir())) == self.count)
        return "met", os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES", "")


@pytest.mark.usefixtures("forked_workers")
def test_each_worker_is_bound_to_its_own_gpu_and_gpus_are_shared_evenly(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    count = pick_workers("auto", "cuda", 1, per_gpu=2)
    assert count == 4
    jobs = [*[Meets(tmp_path, count)] * count, *[Says()] * 8]
    output = list(pick_executor(count, "cuda")(jobs, count))
    seen = {pid: gpu for _, pid, gpu in output}
    assert sorted(seen.values()) == ["0", "0", "1", "1"]
    assert all(seen[pid] == gpu for _, pid, gpu in output)
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_a_worker_has_its_gpu_and_one_numpy_thread_before_the_script_of_the_user_runs(tmp_path: Path) -> None:
    """Python runs the top of the script in every worker. CUDA and NumPy keep what they read there."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os\n"
        "AT_THE_TOP = [os.environ.get(name) for name in ('CUDA_VISIBLE_DEVICES', 'OPENBLAS_NUM_THREADS')]\n"
        "def job(emit, state):\n"
        "    return AT_THE_TOP\n"
        "if __name__ == '__main__':\n"
        "    from ttabench.run.executors import local\n"
        "    os.environ.update(CUDA_VISIBLE_DEVICES='4,7', OPENBLAS_NUM_THREADS='8')\n"
        "    print(list(local.run([job], 1, environments=({'CUDA_VISIBLE_DEVICES': '7'},))))\n"
        "    print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['OPENBLAS_NUM_THREADS'])\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout == "[['7', '1']]\n4,7 8\n"


def test_bindings_keep_to_the_gpus_that_this_process_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, MIG-9a")
    assert bindings("cuda") == ({"CUDA_VISIBLE_DEVICES": "5"}, {"CUDA_VISIBLE_DEVICES": "MIG-9a"})
    assert bindings("cuda:1") == bindings("cpu") == ({},)
    assert pick_workers("auto", "cuda:1", 1, per_gpu=3) == 3
    workers_on_two_gpus = {(4, 2): 2, (3, 1): 2, (0, 1): 1, (1, 7): 7}  # of Ray, each task has one worker
    assert {
        given: sharing(given[0], "cuda", given[1]) for given in workers_on_two_gpus
    } == workers_on_two_gpus
    assert sharing(3, "cuda:1", 1) == 3
    assert sharing(3, "cpu", 7) == 0


@pytest.mark.parametrize(
    ("ranks", "gpus", "expected"),
    [(2, 2, [["0"], ["1"]]), (2, 4, [["0", "2"], ["1", "3"]]), (3, 2, [["0"], ["1"], ["0"]])],
)
def test_under_torchrun_each_rank_has_its_share_of_the_gpus(
    monkeypatch: pytest.MonkeyPatch, ranks: int, gpus: int, expected: list[list[str]]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    for rank, names in enumerate(expected):
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        assert [one["CUDA_VISIBLE_DEVICES"] for one in bindings("cuda")] == names
        assert pick_workers("auto", "cuda", 1, per_gpu=2) == 2 * len(names)
    monkeypatch.setattr(workers, "available_cores", lambda: 2 * ranks)
    assert pick_workers("auto", "cpu", 100) == 2


def test_without_workers_each_rank_computes_on_a_gpu_of_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(workers, "pick_device", lambda name: "cuda")
    assert open_engine("local", Setup(workers="0")).device == "cuda"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    for rank, device in enumerate(("cuda:0", "cuda:1", "cuda:0")):
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        assert open_engine("local", Setup(workers="0")).device == device
        assert open_engine("local", Setup(workers="1")).device == "cuda"  # its worker sees one GPU


def test_ranks_of_srun_share_the_gpus_and_the_cores_of_their_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(workers, "available_cores", lambda: 8)
    step = {"SLURM_STEP_TASKS_PER_NODE": "4,2(x2)", "SLURM_NODEID": "2", "SLURM_CPUS_ON_NODE": "8"}
    for name, value in step.items():
        monkeypatch.setenv(name, value)
    for rank, names in enumerate((["0", "2"], ["1", "3"])):
        monkeypatch.setenv("SLURM_LOCALID", str(rank))
        assert [one["CUDA_VISIBLE_DEVICES"] for one in bindings("cuda")] == names
        assert pick_workers("auto", "cpu", 100) == 4
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "16")  # this task is bound to half of them
    assert pick_workers("auto", "cpu", 100) == 8
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)  # as with --gpus-per-task=1
    assert bindings("cuda") == ({"CUDA_VISIBLE_DEVICES": "0"},)
    monkeypatch.delenv("SLURM_STEP_TASKS_PER_NODE")  # a batch script is one process
    assert pick_workers("auto", "cpu", 100) == 8
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "2")  # granted, but not bound: all 8 are visible
    assert pick_workers("auto", "cpu", 100) == 2


@pytest.mark.parametrize(("on_node", "share"), [("4", ["0", "1"]), ("2", ["1"]), ("", ["1"])])
def test_a_rank_of_srun_that_has_gpus_of_its_own_uses_all_of_them(
    monkeypatch: pytest.MonkeyPatch, on_node: str, share: list[str]
) -> None:
    """With ``--gpus-per-task=2``, each of two ranks sees two of the four GPUs of the step."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    step = {"SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_NODEID": "0", "SLURM_LOCALID": "1"}
    for name, value in {**step, "SLURM_GPUS_ON_NODE": on_node}.items():
        monkeypatch.setenv(name, value)
    assert [one["CUDA_VISIBLE_DEVICES"] for one in bindings("cuda")] == share
    assert pick_workers("auto", "cuda", 1, per_gpu=3) == 3 * len(share)
    assert workers.own_gpu("cuda") == ("cuda" if len(share) == 2 else "cuda:1")
    monkeypatch.setenv("LOCAL_RANK", "1")  # torchrun in the step: its ranks share the GPUs of this task
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert [one["CUDA_VISIBLE_DEVICES"] for one in bindings("cuda")] == ["1"]
    assert workers.own_gpu("cuda") == "cuda:1"


DEATHS = {signal.SIGSEGV: "was killed by SIGSEGV (a crash in native code)", -7: "ended with exit code 7"}


@pytest.mark.usefixtures("forked_workers")
def test_a_death_says_what_happened_and_the_other_jobs_go_on() -> None:
    deadly = [Kills(how) for how in DEATHS]
    events = list(local.run([Says("a"), *deadly, Says("b"), Says("c")], 1))
    died = [event for event in events if isinstance(event, Died)]
    assert died == [
        Died(Kills(how), f"the worker process {reason}, twice, the second time alone")
        for how, reason in DEATHS.items()
    ]
    assert sorted(event[0] for event in events if not isinstance(event, Died)) == ["a", "b", "c"]


def test_memory_is_blamed_where_the_kernel_says_so_and_guessed_only_where_it_says_nothing() -> None:
    killed = "was killed by SIGKILL"
    assert [describe(-9, ran_out) for ran_out in (True, False, None)] == [
        f"{killed} (the machine ran out of memory)", killed, f"{killed} (out of memory?)",
    ]  # fmt: skip
    assert {describe(-11, ran_out) for ran_out in (True, False, None)} == {
        "was killed by SIGSEGV (a crash in native code)"
    }


@dataclass(frozen=True)
class Step:
    """A cell of `Steps` that is stored."""

    finished: tuple[str, ...]


@dataclass(frozen=True)
class Steps:
    """Cells by name, as a unit has them; ``kill`` ends the process, ``hang`` does not end."""

    cells: tuple[str, ...]

    def __call__(self, emit: Emit, state: WorkerState) -> None:
        for cell in self.cells:
            emit(Event(cell, os.getpid()))
            if cell.startswith("kill"):
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(600 if cell == "hang" else 0.05)
            emit(Step((cell,)))

    def split(self, finished: Collection[str]) -> tuple[Steps | None, Steps | None]:
        left = tuple(cell for cell in self.cells if cell not in finished)
        return (Steps(left[:1]) if left else None), (Steps(left[1:]) if left[1:] else None)


@pytest.mark.usefixtures("forked_workers")
def test_a_dead_worker_loses_the_cell_it_was_at_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, events = Clock(monkeypatch), []
    for event in local.run([Steps(("a", "kill", "b", "hang", "c", "d"))], 1, limits=Limits(seconds=2)):
        events.append(event)
        clock.now += 3 * (isinstance(event, Event) and event.cell == "hang")
    begun = [event.cell for event in events if isinstance(event, Event)]
    assert begun == ["a", "kill", "b", "hang", "c", "d", "kill"]  # the one that may go better alone, last
    assert [event.finished for event in events if isinstance(event, Step)] == [("a",), ("b",), ("c",), ("d",)]
    assert [(event.job.cells, event.reason) for event in events if isinstance(event, Died)] == [
        (("hang",), "it ran longer than 2 s and was stopped"),
        (("kill",), "the worker process was killed by SIGKILL, twice, the second time alone"),
    ]


@pytest.mark.usefixtures("forked_workers")
def test_a_job_that_died_once_is_repeated(tmp_path: Path) -> None:
    assert list(local.run([Kills(signal.SIGKILL, tmp_path / "once")], 1)) == ["second time"]


@pytest.mark.usefixtures("forked_workers")
def test_a_job_offered_to_a_worker_that_has_just_died_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    give, offered = WorkerProcess.give, list[Any]()

    def give_to_the_dead(worker: WorkerProcess, job: Any) -> bool:
        if not offered:
            assert worker._process is not None
            worker._process.kill()
            worker._process.join()
        offered.append(job)
        return give(worker, job)

    monkeypatch.setattr(WorkerProcess, "give", give_to_the_dead)
    assert [event[0] for event in local.run([Says("a"), Says("b")], 1)] == ["a", "b"]
    assert offered == [Says("a"), Says("a"), Says("b")]


@pytest.mark.usefixtures("forked_workers")
def test_a_worker_that_cannot_start_is_told_apart_and_the_others_do_the_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: list[str] = []

    def tell(message: str, **_: object) -> None:
        told.append(message)
        (tmp_path / "told").touch()

    monkeypatch.setattr(local.warnings, "warn", tell)
    bad = {"TTABENCH_TEST": "a\0b"}  # no environment can hold this: the start fails
    jobs = [Says(after=tmp_path / "told")] * 4
    output = list(local.run(jobs, 2, environments=(bad, {"CUDA_VISIBLE_DEVICES": "1"})))
    assert [gpu for _, _, gpu in output] == ["1"] * 4
    with pytest.raises(UserError, match="no worker process can start"):
        list(local.run([Says()], 1, environments=(bad,)))
    reason = "it ended with exit code 0: ValueError: embedded null byte"
    assert told == [f"a worker process cannot start: {reason}"] * 2


@pytest.mark.usefixtures("forked_workers")
def test_where_the_system_starts_no_process_it_is_asked_again_and_then_says_why(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """As where a user may have no more processes or open files."""
    refusals, real = [1], watched_worker.ctrl_c_waits

    def refuse() -> Any:
        if refusals[0]:
            refusals[0] -= 1
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return real()

    monkeypatch.setattr(watched_worker, "ctrl_c_waits", refuse)
    assert [name for name, _, _ in local.run([Says("a")], 1)] == ["a"]
    refusals[0] = local.STARTS
    with pytest.raises(UserError, match="no worker process can start"):
        list(local.run([Says()], 1))
    told = [str(one.message) for one in recwarn if "cannot start" in str(one.message)]
    assert told == ["a worker process cannot start: Resource temporarily unavailable"]


@pytest.mark.usefixtures("forked_workers")
def test_a_cell_that_hangs_is_stopped_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # The limit is per cell: cells that take 1 s each are not stopped after 1.5 s.
    clock, events, takes = Clock(monkeypatch), [], {"a": 1, "b": 1, "c": 2}
    for event in local.run([Says("a"), Hangs(tmp_path), Says("b")], 1, limits=Limits(seconds=1.5)):
        events.append(event)
        if isinstance(event, Event):
            clock.now += takes[event.cell]
            if event.cell != "c":
                (tmp_path / event.cell).touch()
    seen = [event for event in events if isinstance(event, Event)]
    assert [event.cell for event in seen] == ["a", "b", "c"]
    assert [e for e in events if isinstance(e, Died)] == [
        Died(Hangs(tmp_path), "it ran longer than 1.5 s and was stopped", too_long=True)
    ]
    assert [event[0] for event in events if isinstance(event, tuple)] == ["a", "b"]
    with pytest.raises(ProcessLookupError):
        os.kill(seen[0].pid, 0)


@pytest.mark.usefixtures("forked_workers")
def test_the_time_in_which_all_processes_stood_still_is_none_of_a_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after Ctrl-Z, or where a cluster suspends a job."""
    clock, give, waits, given = Clock(monkeypatch), WorkerProcess.give, local.wait, list[Any]()
    job = Says("a", after=tmp_path / "go on")

    def noted(worker: WorkerProcess, job: Any) -> bool:
        given.append(job)
        return give(worker, job)

    def stopped_once(ones: Any, timeout: float) -> Any:
        if "stopped" in given:  # and the limits were looked at since
            (tmp_path / "go on").touch()
        found = waits(ones, timeout)
        if given == [job]:
            given.append("stopped")
            clock.now += 100
        return found

    monkeypatch.setattr(local, "time", clock)
    monkeypatch.setattr(local, "wait", stopped_once)
    monkeypatch.setattr(WorkerProcess, "give", noted)
    events = list(local.run([job], 1, limits=Limits(seconds=1.5)))
    assert given == [job, "stopped"]
    assert [event[0] for event in events] == ["a"]


@pytest.mark.slow
def test_a_cell_that_grows_is_stopped_and_the_rest_goes_on() -> None:
    jobs = [Says("a"), Grows(1_500_000_000), Grows(1000), Says("b")]
    events = list(local.run(jobs, 1, limits=Limits(memory=1_000_000_000)))
    reason = "the worker process grew beyond 1 GB of memory, twice, the second time alone"
    assert [e for e in events if isinstance(e, Died)] == [Died(jobs[1], reason)]
    assert "1000" in events
    assert [event[0] for event in events if isinstance(event, tuple)] == ["a", "b"]


class Unpicklable(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


@dataclass(frozen=True)
class Raises:
    def __call__(self, emit: Emit, state: WorkerState) -> None:
        raise Unpicklable(1, 2)


@dataclass(frozen=True)
class Prints:
    """Prints more than a pipe holds."""

    def __call__(self, emit: Emit, state: WorkerState) -> str:
        for stream in (sys.stdout, sys.stderr):
            for _ in range(100):
                print("x" * 2000, file=stream, flush=True)
        return "printed"


@pytest.mark.parametrize("closed", [False, True])
def test_what_a_job_prints_does_not_hold_it_up_where_nobody_reads(closed: bool) -> None:
    reader, writer = os.pipe()
    kept = [os.dup(number) for number in (1, 2)]
    if closed:
        os.close(reader)
    try:
        for number in (1, 2):
            os.dup2(writer, number)
        output = list(local.run([Prints()], 1, limits=Limits(seconds=60)))
    finally:
        for number, old in zip((1, 2), kept, strict=True):
            os.dup2(old, number)
            os.close(old)
        os.close(writer)
        if not closed:
            os.close(reader)
    assert output == ["printed"]


@pytest.mark.usefixtures("forked_workers")
def test_what_a_job_raises_comes_through_even_where_it_cannot_be_pickled() -> None:
    with pytest.raises(RuntimeError, match="Unpicklable: 1 and 2"):
        list(local.run([Raises()], 1))


def test_a_worker_whose_parent_was_killed_leaves_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Left(BaseException):
        pass

    def leave(code: int) -> None:
        raise Left(code)

    monkeypatch.setattr(child.os, "_exit", leave)
    ours, theirs = multiprocessing.Pipe()
    ours.close()
    with pytest.raises(Left, match="1"):
        child.Link(theirs).send("event")


def test_ctrl_c_while_workers_start_is_answered_by_the_parent_alone(tmp_path: Path) -> None:
    """Python runs the top of the script in every worker, before any code of this package."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "if __name__ != '__main__':\n"
        "    pathlib.Path(f'begun-{os.getpid()}').touch()\n"
        "    while signal.SIGINT not in signal.sigpending():\n"
        "        time.sleep(0.01)\n"
        "    pathlib.Path(f'waits-{os.getpid()}').touch()\n"
        "    time.sleep(600)\n"
        "if __name__ == '__main__':\n"
        "    from ttabench.run.executors import local\n"
        "    try:\n"
        "        list(local.run([print, print], 2))\n"
        "    except KeyboardInterrupt:\n"
        "        sys.exit(130)\n"
    )
    process = subprocess.Popen([sys.executable, script], stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    wait_for(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
    for begun in tmp_path.glob("begun-*"):
        os.kill(int(begun.name.partition("-")[2]), signal.SIGINT)
    # A terminal sends it to all at once; here the parent does not kill them before they would answer.
    wait_for(lambda: len(list(tmp_path.glob("waits-*"))) == 2 or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert err == ""


@dataclass(frozen=True)
class Blocks:
    """The signals that a worker, and a process that it starts, do not get."""

    def __call__(self, emit: Emit, state: WorkerState) -> list[str]:
        read = "import signal; print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"
        done = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, check=True)
        return [str(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))), done.stdout.strip()]


def test_no_signal_stays_blocked() -> None:
    assert list(local.run([Blocks()], 1)) == [["[]", "[]"]]
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.usefixtures("forked_workers")
def test_workers_start_where_signals_cannot_be_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows."""
    monkeypatch.delattr(signal, "pthread_sigmask")
    assert [event[0] for event in local.run([Says("a")], 1)] == ["a"]


@pytest.mark.usefixtures("forked_workers")
def test_a_closed_generator_ends_its_workers_at_once(tmp_path: Path) -> None:
    events = local.run([Hangs(tmp_path), Hangs(tmp_path)], 2)
    first = next(events)
    events.close()  # the cells would never end
    with pytest.raises(ProcessLookupError):
        os.kill(first.pid, 0)


def test_limits_need_a_process_that_can_be_killed() -> None:
    assert pick_executor(0, "cpu") is inline.run
    with pytest.raises(UserError, match="--workers to 1"):
        pick_executor(0, "cpu", Limits(seconds=1))


@pytest.mark.usefixtures("forked_workers")
def test_an_executor_is_found_by_name_and_takes_only_its_own_options() -> None:
    engine = open_engine("local", Setup(workers="3", device="cpu"))
    assert (engine.workers, engine.device) == (3, "cpu")
    assert sorted(event[0] for event in engine.run([Says("a"), Says("b")], 1)) == ["a", "b"]
    with pytest.raises(UserError, match="unknown executor 'locl'; did you mean 'local'"):
        open_engine("locl", Setup())
    with pytest.raises(UserError, match="--executor-options time: the executor local has no such option"):
        open_engine("local", Setup(options={"time": "60"}))


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_pages_of_files_are_no_memory_of_a_cell(tmp_path: Path) -> None:
    """The kernel takes them back when it needs them."""
    size = 50_000_000
    (tmp_path / "images.npy").write_bytes(bytes(size))
    before = resident(os.getpid())
    mapped = np.memmap(tmp_path / "images.npy", np.uint8, "r")
    assert mapped.sum() == 0  # reads every page
    assert resident(os.getpid()) - before < size / 2
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE) as held:  # no array: it may get memory that was freed before
        held.write(b"\1" * size)
        assert resident(os.getpid()) - before > size / 2


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_shared_memory_is_memory_of_a_cell() -> None:
    """It has no file, from which the kernel could read it again."""
    size = 50_000_000
    before = resident(os.getpid())
    with mmap.mmap(-1, size) as shared:
        shared.write(b"\1" * size)
        assert resident(os.getpid()) - before > size / 2
