"""Jobs on a Slurm cluster, through submitit: tasks of a job array, each with worker processes of its own.

A task runs its jobs as ``--executor local`` does, so limits, deaths and numbers are the same. What it has
done is read from the results folder, and whether it is still there from squeue: sacct, from which submitit
learns of cancelled jobs, does not exist on every cluster.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ttabench.errors import UserError
from ttabench.run.executors import Died, Engine, Job, Limits, Setup, local, split, take_options
from ttabench.run.executors.cluster import asked_workers
from ttabench.run.executors.retry import TRIES, Attempt, Losses, Stored, after_loss, cells_of

OPTIONS = {
    "time": "", "mem": "", "partition": "", "account": "", "qos": "", "constraint": "", "exclude": "",
    "nodelist": "", "gres": "", "setup": "",
}  # fmt: skip
LOGS = "slurm"  # folder in the results folder
AUTO = 32  # tasks at once, unless --workers says more or fewer
TASKS = 4  # tasks for each one that runs at a time, so that all places have work until the end
HOURS = 4.0  # the time limit of a task whose cells have none
MARGIN = 600.0  # seconds in a time limit for what is not a cell: starting, loading
POLL = 2.0  # seconds between two looks
RETRY = 60.0  # seconds after which tasks that Slurm has refused are submitted again
APART = 3600.0  # seconds for which a node where a task could not run gets no more of them
GONE = 15.0  # seconds after which a task that is not in the queue and has left no result is lost
WAY = 1.0  # seconds that what an interrupted sbatch has sent may need to come into the queue
LATE = 120.0  # seconds that a network folder may need to show the result of a task that has ended well


def engine(setup: Setup) -> Engine:
    """``--executor slurm``: a job array, of which each task has one GPU, or one core per worker."""
    options, asked = take_options(setup, "slurm", OPTIONS), asked_workers(setup, "slurm")
    check_available()
    device = setup.device
    if device == "auto":
        device = "cuda" if "gpu" in options["gres"] or "gpu" in _resources(options["partition"]) else "cpu"
    each = setup.per_gpu if device == "cuda" else 1
    parameters = sbatch_parameters(options, device, each)
    runs = partial(
        run, each=each, parameters=parameters, limits=setup.limits, folder=setup.folder, losses=Losses()
    )
    return Engine(runs, asked or AUTO * each, device)


def check_available() -> None:
    """Raises UserError where submitit or Slurm is missing."""
    try:
        import submitit  # noqa: F401
    except ImportError as problem:
        raise UserError(
            f"--executor slurm needs the package submitit ({problem}); "
            "install it with pip install 'ttabench[slurm]'."
        ) from None
    if missing := [name for name in ("sbatch", "srun", "squeue", "scancel") if shutil.which(name) is None]:
        raise UserError(f"--executor slurm needs the commands of Slurm here; {missing[0]} is missing.")
    if _call("sinfo", "--noheader") is None:
        raise UserError("--executor slurm: Slurm does not answer here; see what sinfo says.")


def sbatch_parameters(options: Mapping[str, str], device: str, each: int) -> dict[str, Any]:
    """The parameters for submitit; name and time limit are added when they are known. Raises UserError."""
    parameters: dict[str, Any] = {"cpus_per_task": each, "setup": []}
    for name in ("partition", "account", "qos", "constraint", "exclude", "nodelist", "gres"):
        if options[name]:
            parameters[name] = options[name]
    if device == "cuda" and not options["gres"]:
        parameters["gpus_per_node"] = 1
    for name, unit in (("time", "minutes"), ("mem", "GB")):
        if options[name]:
            try:
                number = float(options[name])
            except ValueError:
                number = math.nan
            if not 0 < number < math.inf:
                raise UserError(f"--executor-options {name}={options[name]}: expected {unit}, a number.")
            parameters[name] = math.ceil(number) if name == "time" else f"{math.ceil(1024 * number)}MB"
    path = [entry for entry in map(os.path.abspath, sys.path) if os.path.isdir(entry)]
    ours = (sys.prefix, sys.base_prefix)  # the Python of a task has these by itself
    user_path = os.pathsep.join(
        entry for entry in path if not any(Path(entry).is_relative_to(place) for place in ours)
    )
    more = f'export PYTHONPATH={shlex.quote(user_path)}"${{PYTHONPATH:+:$PYTHONPATH}}"' if user_path else ""
    parameters["setup"] = [line for line in (more, options["setup"]) if line]
    return parameters


class CannotRun(UserError):
    """A task that ended before its jobs could run: as a rule its node is at fault, and no cell.

    node   the name of its node; "" if unknown.
    then   what becomes of the node, as the end of a sentence.
    """

    def __init__(self, task: Submitted, error: str) -> None:
        self.node = node_of(task.name)
        self.then = f"; {self.node} gets no tasks for an hour" if self.node else ""
        where = f" on {self.node}" if self.node else ""
        super().__init__(f"a Slurm task could not run{where} ({error}); its log is {task.task.paths.stderr}.")


class Task:
    """What one task of the array runs: jobs, as ``--executor local`` runs them.

    minutes   its time limit.

    A task that is preempted, or is at its time limit, is put back into the queue by submitit. Jobs leave out
    what is stored. If no cell was done by the time limit, once more would not help; the sweep decides then.
    SIGTERM, which Slurm sends before it kills, ends the task at once: what is done is stored already.
    """

    def __init__(self, jobs: Sequence[Job], workers: int, limits: Limits, minutes: int) -> None:
        self.jobs, self.workers, self.limits, self.minutes = tuple(jobs), workers, limits, minutes
        self._done, self._began = 0, math.inf

    def __call__(self) -> tuple[list[Any], Exception | None]:
        """Events but for progress, and what a job raised."""
        events: list[Any] = []
        self._done, self._began = 0, time.monotonic()
        signal.signal(signal.SIGTERM, _leave)  # submitit would go on
        try:
            for event in local.run(self.jobs, self.workers, limits=self.limits):
                if hasattr(event, "cell"):
                    continue
                events.append(event)
                for result in getattr(event, "results", ()):
                    self._done += 1
                    print(f"{result.cell}: {result.reason or f'{result.accuracy:.2f} %'}", flush=True)
        except UserError as problem:
            return events, problem
        return events, None

    def checkpoint(self) -> Any:
        """For submitit: what runs when the task begins again; None if it is not to."""
        from submitit.helpers import DelayedSubmission

        # submitit, too, takes what is later than this for the time limit, and what is earlier for preemption.
        late = min(0.8 * 60 * self.minutes, 60 * (self.minutes - 10))
        if not self._done and time.monotonic() - self._began >= late:
            return None
        return DelayedSubmission(Task(self.jobs, self.workers, self.limits, self.minutes))


def _leave(*_: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


@dataclass
class Submitted:
    """A task in Slurm's queue.

    array         the name of its array there.
    missed_since  when it was first missed in the queue.
    """

    task: Any  # submitit's job
    attempts: list[Attempt]
    array: str = ""
    missed_since: float | None = None

    @property
    def name(self) -> str:
        return str(self.task.job_id)

    @property
    def has_result(self) -> bool:
        return bool(self.task.paths.result_pickle.exists())


@dataclass
class Tasks:
    """The tasks of one sweep that have not ended.

    unsure     names of arrays that may be in the queue although sbatch failed or was interrupted.
    unable     why a task could not run, if no other has got on since.
    left_out   node where a task could not run → when: for `APART` seconds, new arrays do without it.
    """

    folder: Path
    each: int
    limits: Limits
    parameters: Mapping[str, Any]
    at_once: int
    open: list[Submitted] = field(default_factory=list)
    unsure: set[str] = field(default_factory=set)
    unable: CannotRun | None = None
    left_out: dict[str, float] = field(default_factory=dict)
    _ran: bool = False  # whether any task has got on
    _again: bool = False  # whether jobs that could not run were submitted again, and none has got on since
    _accepted: bool = False
    _refused: int = 0  # times in a row while nothing was open
    _next_try: float = 0.0

    def offer(self, attempts: list[Attempt]) -> list[Attempt]:
        """Submit jobs; returns what is still to be submitted: all of them if this is not the time.

        Raises UserError where Slurm has never taken any, or refuses several times while nothing is open, and
        where no task can run.
        """
        if self.unable is not None:
            if self.open:
                return attempts
            if self._again or not self._ran:
                raise self.unable
            warnings.warn(f"{self.unable} Its cells are submitted again{self.unable.then}.", stacklevel=3)
            self._again, self.unable = True, None
        if time.monotonic() < self._next_try:
            return attempts
        try:
            self.submit(attempts)
        except UserError as problem:
            if not self.open:
                self._refused += 1
                self.left_out.clear()  # without these, there may be no node for the tasks
            if not self._accepted or self._refused >= TRIES:
                raise
            self._next_try = time.monotonic() + RETRY
            warnings.warn(f"{problem} The next try is in {RETRY:g} s.", stacklevel=3)
            return attempts
        self._accepted, self._refused = True, 0
        return []

    def submit(self, attempts: Sequence[Attempt]) -> None:
        """Put jobs into Slurm's queue, as one array below MaxArraySize. Raises UserError."""
        import submitit
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        self.unsure = {name for name in self.unsure if not withdraw(name)}
        packs = pack(attempts, min(TASKS * self.at_once, max_array_size()))
        minutes = max(map(time_limit, packs))
        wanted = {"time": minutes, "array_parallelism": self.at_once, **self.parameters}
        wanted["job_name"] = name = f"ttabench-{uuid.uuid4().hex[:8]}"
        now = time.monotonic()
        if apart := sorted(node for node, since in self.left_out.items() if now - since < APART):
            wanted["exclude"] = ",".join(filter(None, [wanted.get("exclude", ""), *apart]))
        wanted["signal_delay_s"] = min(90, 15 * wanted["time"])  # when Slurm warns a task of its time limit
        folder = self.folder / name
        try:
            folder.mkdir(parents=True)
            executor = submitit.SlurmExecutor(folder, max_num_timeout=10_000)
            executor.update_parameters(**wanted)
            self.unsure.add(name)
            with executor.batch():
                tasks = [
                    executor.submit(
                        Task([attempt.job for attempt in pack], self.each, self.limits, wanted["time"])
                    )
                    for pack in packs
                ]
        except (FailedJobError, FailedSubmissionError, subprocess.CalledProcessError, OSError) as problem:
            shutil.rmtree(folder, ignore_errors=True)
            lines = str(getattr(problem, "stderr", "") or problem).strip().splitlines()
            raise UserError(
                f"Slurm refuses the job: {lines[-1] if lines else type(problem).__name__}."
            ) from None
        self.open += [Submitted(task, pack, name) for task, pack in zip(tasks, packs, strict=True)]
        self.unsure.discard(name)

    def got_on(self) -> None:
        """Note that a task has stored a result, or has ended well."""
        self._ran, self._again, self.unable = True, False, None

    def could_not_run(self, problem: CannotRun) -> None:
        """Note that a task could not run. Its jobs may be submitted again, to other nodes or later."""
        self.unable = problem
        if problem.node:
            self.left_out[problem.node] = time.monotonic()
        else:
            self._next_try = time.monotonic() + RETRY

    def look(self) -> Iterator[tuple[Submitted, str]]:
        """The tasks that have ended, which are then not open: with "" if they left a result, else why not."""
        if not self.open:
            return
        names = in_queue()
        now = time.monotonic()
        for task in list(self.open):
            if task.has_result:
                reason = ""
            elif names is None or task.name in names:
                task.missed_since = None
                continue
            else:
                task.missed_since = now if task.missed_since is None else task.missed_since
                if now - task.missed_since < GONE:
                    continue
                state = accounted(task.name)
                if state.startswith("COMPLETED") and now - task.missed_since < LATE:
                    continue
                reason = f"its Slurm task {task.name} left the queue{f' as {state}' if state else ''}"
            self.open.remove(task)
            yield task, reason

    def cancel(self) -> None:
        """Take all open tasks out of the queue, and what may be there besides."""
        numbers = {task.array: task.name.partition("_")[0] for task in self.open}
        on_the_way = bool(self.unsure)
        if numbers and _call("scancel", *numbers.values()) is None:
            self.unsure.update(numbers)  # scancel also fails where one has ended, but not by name
        if on_the_way:
            time.sleep(WAY)
        names = sorted(self.unsure)
        while names and withdraw(names[0]):
            del names[0]
        if names:
            later = "; ".join(f"scancel --name={name}" for name in names)
            warnings.warn(f"Slurm tasks may go on, since scancel fails here. Later: {later}", stacklevel=2)
        self.open.clear()
        self.unsure.clear()


def run(
    jobs: Sequence[Job],
    workers: int,
    *,
    each: int,
    parameters: Mapping[str, Any],
    limits: Limits,
    folder: Path,
    losses: Losses,
) -> Generator[Any]:
    """Run `jobs` as tasks of job arrays, of which tasks for `workers` run at once.

    each        workers in a task.
    parameters  of submitit, see `sbatch_parameters`.
    folder      the results folder; the logs of tasks are in :data:`LOGS` there.

    What tasks store is yielded as it comes. A task that was cancelled, killed, lost with its node, or was at
    its time limit without a result is submitted again without the cells that are stored. So is a task that
    could not run, once another one has got on, and not to the same node: that is no loss of a cell. Raises
    UserError where Slurm takes no jobs or no task can run, and what a job raises. Closed early, it cancels
    its tasks.
    """
    stored, wanted = Stored(folder), cells_of(jobs)
    tasks = Tasks(folder / LOGS, each, limits, parameters, math.ceil(workers / each))
    again = [Attempt(job) for job in jobs]
    try:
        while again or tasks.open:
            if again:
                again = tasks.offer(again)
            time.sleep(POLL)
            ended = list(tasks.look())
            for stores in stored.new(wanted):  # after the look: all that an ended task has stored is there
                tasks.got_on()
                yield stores
            for task, reason in ended:
                try:
                    if not reason:
                        reason = yield from _result(task)
                        if not reason:
                            tasks.got_on()
                except CannotRun as problem:
                    tasks.could_not_run(problem)
                    again += [left for attempt in task.attempts for left in _left(attempt, stored)]
                    if tasks.open:
                        warnings.warn(
                            f"{problem} Its cells wait until another task stores a result{problem.then}.",
                            stacklevel=2,
                        )
                if reason:
                    for event in _after_loss(task, stored, reason, losses):
                        if isinstance(event, Died):
                            yield event
                        else:
                            again.append(event)
                _remove_pickles(task)
    finally:
        tasks.cancel()


def _result(task: Submitted) -> Generator[Any, None, str]:
    """The events of a task that left a result; returns why it ended early, "" if it did not.

    Raises CannotRun, and what a job raised.
    """
    from submitit.core.utils import FailedJobError, UncompletedJobError

    try:
        events, problem = task.task.result()
    except (FailedJobError, UncompletedJobError) as failure:
        lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
        if "Job not requeued because" in str(failure):
            return f"its Slurm task {task.name} was at its time limit before any cell was done"
        error = next((line for line in reversed(lines) if "Error" in line), lines[-1] if lines else "")
        raise CannotRun(task, error) from None
    yield from events
    if isinstance(problem, local.CannotStart):
        raise CannotRun(task, str(problem).rstrip("."))
    if problem is not None:
        raise problem
    return ""


def _left(attempt: Attempt, stored: Stored) -> list[Attempt]:
    """What of a job is not stored yet: whole, or in parts where some of it is."""
    if cells_of([attempt.job]).isdisjoint(stored.cells):
        return [attempt]
    parts = split(attempt.job, stored.cells)
    return [replace(attempt, job=job) for job in parts if job is not None]


def _after_loss(task: Submitted, stored: Stored, reason: str, losses: Losses) -> Iterator[Attempt | Died]:
    """What to run again of a task; only the first of its jobs that is not done is blamed."""
    blamed = False
    for attempt in task.attempts:
        if blamed:
            yield attempt
            continue
        again, died = after_loss(attempt, stored.cells, f"{reason}; log: {task.task.paths.stderr}", losses)
        yield from again
        blamed = died is not None or bool(again)
        if died is not None:
            yield died


def _remove_pickles(task: Submitted) -> None:
    for path in (task.task.paths.submitted_pickle, task.task.paths.result_pickle):
        path.unlink(missing_ok=True)


def pack(attempts: Sequence[Attempt], most: int) -> list[list[Attempt]]:
    """Attempts in order, in at most `most` packs of about as many cells each."""
    sizes = [max(1, len(getattr(attempt.job, "cells", ()))) for attempt in attempts]
    share = sum(sizes) / max(1, min(most, len(sizes)))
    packs: list[list[Attempt]] = []
    total = 0
    for attempt, size in zip(attempts, sizes, strict=True):
        if not packs or total >= share * len(packs):
            packs.append([])
        packs[-1].append(attempt)
        total += size
    return packs


def time_limit(attempts: Sequence[Attempt]) -> int:
    """Minutes for a task, from the limits of its jobs."""
    seconds = [float(getattr(attempt.job, "seconds", 0.0)) for attempt in attempts]
    if not all(seconds):
        return round(60 * HOURS)
    return math.ceil((sum(seconds) + MARGIN) / 60)


def max_array_size() -> int:
    """How many tasks a job array may have here."""
    for line in (_call("scontrol", "show", "config") or "").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "MaxArraySize" and value.strip().isdecimal():
            return max(1, int(value) - 1)
    return 1000


def in_queue() -> set[str] | None:
    """The names of this user's tasks that wait or run; None if Slurm does not answer."""
    output = _call("squeue", "--noheader", "--array", "--user", str(os.getuid()), "--format", "%i")
    return None if output is None else set(output.split())


def withdraw(name: str) -> bool:
    """Cancel what this user has in the queue under a name, if anything; False if that fails."""
    return _call("scancel", "--user", str(os.getuid()), "--name", name) is not None


def accounted(name: str) -> str:
    """How Slurm's accounting says a task ended, e.g. ``FAILED (exit code 0, signal 9)``; "" if unknown."""
    output = _call("sacct", "-X", "--noheader", "--parsable2", "-j", name, "-o", "State,ExitCode")
    for line in (output or "").splitlines():
        state, _, codes = line.partition("|")
        code, _, number = codes.partition(":")
        if state not in ("", "RUNNING", "PENDING", "REQUEUED"):
            return f"{state} (exit code {code}{f', signal {number}' if number not in ('', '0') else ''})"
    return ""


def node_of(name: str) -> str:
    """The name of the node of a task that has begun; "" if Slurm does not say."""
    output = _call("scontrol", "show", "job", name, "--oneliner") or ""
    nodes = [value for word in output.split() for key, _, value in [word.partition("=")] if key == "NodeList"]
    return nodes[0] if nodes and nodes[0] != "(null)" else ""


def _resources(partition: str) -> str:
    """What Slurm's nodes have besides cores, e.g. ``gpu:a100:4``."""
    chosen = ["--partition", partition] if partition else []
    return _call("sinfo", "--noheader", "--format", "%G", *chosen) or ""


def _call(*command: str) -> str | None:
    """What a command of Slurm prints; None if it is missing, fails, or does not answer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
