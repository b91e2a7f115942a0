"""Tasks that are lost, refused, interrupted or cannot run: without Slurm, whose outside is made up here."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ttabench.cell import Cell, Result
from ttabench.errors import UserError
from ttabench.run.events import Done, Elsewhere
from ttabench.run.executors import Died, Engine, Limits, Setup, local, open_engine, slurm
from ttabench.run.shared_folder import Share
from ttabench.run.unit import Unit
from ttabench.store import Store
from ttabench.store.tail import sizes
from ttabench.sweep import other_sweeps
from ttabench.sweep.run import run
from ttabench.system import claims
from ttabench.system.claims import Claims

LOST = object()  # how a task ended that was killed with its node
Runs = Callable[[Sequence[Any]], Any]


class FailedJobError(Exception):
    pass


class FailedSubmissionError(Exception):
    pass


IMPORT = FailedJobError("Job failed with trace:\nTraceback\nImportError: no module named torch\n---")


@dataclass
class Cluster:
    """Slurm and submitit: at each look at the queue, each place runs the task that waits longest.

    runs       jobs → how their task ended: what it returns, what submitit says of it, or LOST.
    refuses    what sbatch says, each time that it is called; "" if it takes the jobs.
    arrays     the names of all arrays that it was asked to take, in order.
    places     the node of each place; "" = Slurm does not say which.
    broken     nodes where no task can run.
    excluded   the nodes that each array does without.
    """

    folder: Path
    runs: Runs
    refuses: Iterator[str | BaseException]
    arrays: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    answers: bool = True
    places: Sequence[str] = ("",)
    broken: Sequence[str] = ()
    excluded: list[str] = field(default_factory=list)
    queue: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    ran_on: dict[str, str] = field(default_factory=dict)
    _number: int = 0

    def submit(self, name: str, tasks: Sequence[tuple[Any, Any]], folder: Path, excluded: str) -> None:
        self.arrays.append(name)
        self.excluded.append(excluded)
        for number, _ in enumerate(tasks):
            (folder / f"{number}.pkl").touch()
        refusal = next(self.refuses, "")
        if isinstance(refusal, BaseException):
            raise refusal
        if refusal:
            raise FailedJobError(refusal)
        for job, task in tasks:
            self._number += 1
            job.job_id = f"{self._number}_0"
            job.paths = SimpleNamespace(
                result_pickle=folder / f"{job.job_id}.result", stderr=folder / f"{job.job_id}.err",
                submitted_pickle=folder / f"{job.job_id}.submitted",
            )  # fmt: skip
            job.excluded = excluded.split(",") if excluded else []
            self.queue[job.job_id] = job, task

    def call(self, *command: str) -> str | None:
        """What a command of Slurm prints."""
        if command[0] == "squeue":
            for node in self.places:
                self._run(node)
        if command[:3] == ("scontrol", "show", "job"):
            node = self.ran_on[command[3]] or "(null)"
            return f"JobId=7 ArrayTaskId=0 ReqNodeList=(null) ExcNodeList=(null)\nNodeList={node}\n"
        if command[0] == "scancel":
            self.cancelled.append(command[-1])
            return "" if self.answers else None
        return "\n".join(self.queue)

    def _run(self, node: str) -> None:
        name = next((name for name, (job, _) in self.queue.items() if node not in job.excluded), None)
        if name is None:
            return
        job, task = self.queue.pop(name)
        self.ran_on[name] = node
        outcome = IMPORT if node in self.broken else self.runs(task.jobs)
        if outcome is not LOST:
            job.outcome = outcome
            job.paths.result_pickle.touch()


def submitit(cluster: Cluster) -> dict[str, ModuleType]:
    """The part of submitit that the executor uses."""

    class SubmittedJob:
        job_id: str
        paths: Any
        excluded: list[str]
        outcome: Any

        def result(self) -> Any:
            if isinstance(self.outcome, Exception):
                raise self.outcome
            return self.outcome

    class SlurmExecutor:
        def __init__(self, folder: Path, max_num_timeout: int) -> None:
            self._tasks: list[tuple[SubmittedJob, Any]] = []
            self._folder = folder

        def update_parameters(self, **parameters: Any) -> None:
            self._name, self._excluded = parameters["job_name"], parameters.get("exclude", "")

        @contextmanager
        def batch(self) -> Iterator[None]:
            yield
            cluster.submit(self._name, self._tasks, self._folder, self._excluded)

        def submit(self, task: Any) -> SubmittedJob:
            self._tasks.append((SubmittedJob(), task))
            return self._tasks[-1][0]

    modules = {name: ModuleType(name) for name in ("submitit", "submitit.core", "submitit.core.utils")}
    vars(modules["submitit"])["SlurmExecutor"] = SlurmExecutor
    vars(modules["submitit.core.utils"]).update(
        FailedJobError=FailedJobError, FailedSubmissionError=FailedSubmissionError,
        UncompletedJobError=FailedJobError,
    )  # fmt: skip
    return modules


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "results", {})


@pytest.fixture
def slurm_with(monkeypatch: pytest.MonkeyPatch, store: Store) -> Callable[..., tuple[Engine, Cluster]]:
    def made(
        runs: Runs, refuses: Iterable[str | BaseException] = (), **options: str
    ) -> tuple[Engine, Cluster]:
        cluster = Cluster(store.root, runs, iter(refuses))
        for name, module in submitit(cluster).items():
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(slurm, "_call", cluster.call)
        monkeypatch.setattr(slurm, "check_available", lambda: None)
        for name in ("POLL", "GONE", "RETRY", "WAY"):
            monkeypatch.setattr(slurm, name, 0.0)
        setup = Setup(workers="1", device="cpu", folder=store.root, options=options)
        return open_engine("slurm", setup), cluster

    return made


def units(cell: Cell, store: Store, count: int) -> list[Unit]:
    start = tuple(sizes(store.root).items())
    return [Unit(((replace(cell, seed=seed),),), store.root, start=start) for seed in range(count)]


def stores(jobs: Sequence[Unit]) -> Any:
    """All goes well."""
    done = []
    for unit in jobs:
        writer = Store.at(unit.results).writer()
        for one in unit.cells:
            result = Result(cell=one, status="ok", accuracy=100.0, n_images=1, correct=b"\x80")
            writer.append(result)
            done.append(Done((result,)))
        writer.close()
    return done, None


def fails_once(outcome: Any, tries: list[int]) -> Runs:
    """The first task, of seed 0, ends with `outcome`, and all others go well; `tries` gets all seeds."""

    def runs(jobs: Sequence[Unit]) -> Any:
        tries.extend(one.seed for unit in jobs for one in unit.cells)
        return outcome if tries == [0] else stores(jobs)

    return runs


def seeds(events: Sequence[Any]) -> set[int]:
    return {result.cell.seed for event in events if isinstance(event, Done) for result in event.results}


def test_a_cell_that_loses_its_node_each_time_is_recorded_though_its_claim_outlives_it(
    slurm_with: Callable[..., Any], cell: Cell, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task runs on a machine of its own, which knows nothing of the others but what is in the folder."""
    begun: list[str] = []
    monkeypatch.setattr(claims, "SILENT", 0.2)
    monkeypatch.setattr(other_sweeps, "POLL", 0.02)

    def runs(jobs: Sequence[Unit]) -> Any:
        (unit,) = jobs
        (chain,) = unit.chains
        share = Share(unit.results, dict(unit.start))
        taken = share.take(chain)
        share.close()
        if not taken:
            return [Elsewhere((chain[0].cell_id,)), Done()], None
        begun.append(f"machine{len(begun)}")
        assert len(begun) <= 5, "it would go on without end"
        lease = {
            "host": begun[-1],
            "pid": 7,
            "machine": begun[-1],
            "started": 5,
            "since": 0.0,
            "progress": {},
        }
        (store.root / "running" / f"{begun[-1]}.json").write_text(json.dumps(lease))
        (store.root / "running" / f"{chain[0].cell_id}@{begun[-1]}").touch()
        return LOST

    made, _ = slurm_with(runs)
    start = sizes(store.root)
    with Claims(store.root, "sweep") as mine:
        events = list(run(units(cell, store, 1), store, made.run, 1, claims=mine, start=start))
    (result,) = [event for event in events if isinstance(event, Result)]
    assert result.status == "failed"
    assert result.reason.startswith("its Slurm task ")
    assert result.reason.endswith(", 3 times")
    assert len(begun) == 3


def test_jobs_that_slurm_refuses_for_once_are_submitted_later(
    slurm_with: Callable[..., Any], cell: Cell, store: Store
) -> None:
    tries: list[int] = []
    made, cluster = slurm_with(fails_once(LOST, tries), ["", "sbatch: error: Socket timed out"])
    with pytest.warns(UserWarning, match=r"Slurm refuses the job: .*Socket timed out\. The next try is in"):
        events = list(made.run(units(cell, store, 3), 1))
    assert seeds(events) == {0, 1, 2}
    assert sorted(tries) == [0, 0, 1, 2]
    assert len(set(cluster.arrays)) == 3
    assert cluster.cancelled == [cluster.arrays[1]]  # Slurm may have taken it all the same


@pytest.mark.filterwarnings("ignore:Slurm refuses the job")
@pytest.mark.parametrize("accepted", [False, True])
def test_the_sweep_ends_where_slurm_takes_no_jobs(
    slurm_with: Callable[..., Any], cell: Cell, store: Store, accepted: bool
) -> None:
    made, cluster = slurm_with(lambda jobs: LOST, [""] * accepted + ["no such partition"] * 9)
    with pytest.raises(UserError, match="refuses the job: no such partition"):
        list(made.run(units(cell, store, 1), 1))
    assert len(cluster.arrays) == (1 + 3 if accepted else 1)
    assert cluster.cancelled[-1] == cluster.arrays[-1]


@pytest.mark.parametrize("outcome", [IMPORT, ([], local.CannotStart("no worker process can start here."))])
def test_a_node_where_tasks_cannot_run_does_not_end_the_others(
    slurm_with: Callable[..., Any], cell: Cell, store: Store, outcome: Any
) -> None:
    tries: list[int] = []
    made, cluster = slurm_with(fails_once(outcome, tries))
    with pytest.warns(
        UserWarning, match=r"a Slurm task could not run \(.*log is .*1_0\.err\. Its cells wait"
    ):
        events = list(made.run(units(cell, store, 3), 1))
    assert seeds(events) == {0, 1, 2}
    assert sorted(tries) == [0, 0, 1, 2]
    assert len(cluster.arrays) == 2


@pytest.mark.filterwarnings("ignore:a Slurm task could not run")
def test_a_cell_whose_tasks_cannot_run_is_not_blamed_and_the_others_get_on(
    slurm_with: Callable[..., Any], cell: Cell, store: Store
) -> None:
    def runs(jobs: Sequence[Unit]) -> Any:
        return IMPORT if jobs[0].cells[0].seed == 0 else stores(jobs)

    made, _ = slurm_with(runs)
    events: list[Any] = []
    with pytest.raises(UserError, match=r"^a Slurm task could not run \(ImportError: no module named torch"):
        events.extend(made.run(units(cell, store, 4), 1))
    assert seeds(events) == {1, 2, 3}
    assert not [event for event in events if isinstance(event, Died)]


def test_a_bad_node_that_keeps_taking_tasks_is_left_out_and_no_cell_is_blamed(
    slurm_with: Callable[..., Any], cell: Cell, store: Store
) -> None:
    """A broken node is free at once, so it takes most of an array before anything is known of it."""
    made, cluster = slurm_with(stores, exclude="old[1-3]")
    cluster.places, cluster.broken = ("good", "bad", "bad", "bad"), ("bad",)
    says = r"a Slurm task could not run on bad \(ImportError.*; bad gets no tasks for an hour\."
    with pytest.warns(UserWarning, match=says):
        events = list(made.run(units(cell, store, 40), 1))
    assert seeds(events) == set(range(40))
    assert not [event for event in events if isinstance(event, Died)]
    assert cluster.excluded == ["old[1-3]", "old[1-3],bad"]


@pytest.mark.filterwarnings("ignore:a Slurm task could not run", "ignore:Slurm refuses the job")
def test_a_node_that_was_left_out_is_used_again_where_there_is_no_other(
    slurm_with: Callable[..., Any], cell: Cell, store: Store
) -> None:
    def breaks(jobs: Sequence[Unit]) -> Any:
        cluster.broken = ("only",)
        return stores(jobs)

    def refuses() -> Iterator[str]:
        yield ""
        cluster.broken, cluster.runs = (), stores
        yield "Requested node configuration is not available"

    made, cluster = slurm_with(breaks, refuses())
    cluster.places = ("only",)
    events = list(made.run(units(cell, store, 3), 1))
    assert seeds(events) == {0, 1, 2}
    assert cluster.excluded == ["", "only", ""]


@pytest.mark.filterwarnings("ignore:a Slurm task could not run")
def test_a_node_that_was_left_out_is_used_again_after_a_while(
    slurm_with: Callable[..., Any], cell: Cell, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another cause than the node may have been at work, such as a folder that did not answer."""
    monkeypatch.setattr(slurm, "APART", 0.0)

    def mends(jobs: Sequence[Unit]) -> Any:
        cluster.broken = ()
        return stores(jobs)

    made, cluster = slurm_with(mends)
    cluster.places, cluster.broken = ("good", "bad"), ("bad",)
    assert seeds(list(made.run(units(cell, store, 8), 1))) == set(range(8))
    assert set(cluster.excluded) == {""}


def test_refusals_count_only_while_nothing_is_open(
    slurm_with: Callable[..., Any], cell: Cell, store: Store
) -> None:
    tries: list[int] = []
    made, cluster = slurm_with(fails_once(LOST, tries), ["", *["try later"] * 9])
    with pytest.warns(UserWarning, match="Slurm refuses the job: try later"), pytest.raises(UserError):
        list(made.run(units(cell, store, 4), 1))
    open_tasks = 3  # with each of them open, one refusal; then three with none
    assert len(cluster.arrays) == 1 + open_tasks + 3


def test_a_refused_submission_leaves_no_files(
    slurm_with: Callable[..., Any], cell: Cell, store: Store
) -> None:
    made, _ = slurm_with(stores, ["no such partition"])
    with pytest.raises(UserError, match="no such partition"):
        list(made.run(units(cell, store, 3), 1))
    assert not list((store.root / slurm.LOGS).iterdir())


@pytest.mark.filterwarnings("ignore:a Slurm task could not run")
def test_where_no_task_can_run_the_sweep_ends_and_no_cell_is_blamed(
    slurm_with: Callable[..., Any], cell: Cell, store: Store
) -> None:
    made, cluster = slurm_with(lambda jobs: IMPORT)
    events: list[Any] = []
    with pytest.raises(
        UserError, match=r"^a Slurm task could not run \(ImportError: no module named torch\)"
    ):
        events.extend(made.run(units(cell, store, 3), 1))
    assert not events
    assert len(cluster.arrays) == 1


@pytest.mark.filterwarnings("ignore:a Slurm task could not run")
def test_where_tasks_can_no_longer_run_the_sweep_ends_and_no_cell_is_blamed(
    slurm_with: Callable[..., Any], cell: Cell, store: Store
) -> None:
    def runs(jobs: Sequence[Unit]) -> Any:
        return IMPORT if any(one.seed for unit in jobs for one in unit.cells) else stores(jobs)

    made, cluster = slurm_with(runs)
    events: list[Any] = []
    with pytest.raises(UserError, match=r"^a Slurm task could not run"):
        events.extend(made.run(units(cell, store, 4), 1))
    assert seeds(events) == {0}
    assert not [event for event in events if isinstance(event, Died)]
    assert len(cluster.arrays) == 2


@pytest.mark.filterwarnings("ignore:a Slurm task could not run")
def test_a_task_that_gets_on_before_it_can_run_no_more_begins_again(
    slurm_with: Callable[..., Any], cell: Cell, store: Store
) -> None:
    def runs(jobs: Sequence[Unit]) -> Any:
        first, _ = jobs[0].split(())
        assert first is not None
        stores([first])
        return [], local.CannotStart("no worker process can start here.")

    (whole,) = units(cell, store, 1)
    unit = replace(whole, chains=tuple((replace(cell, seed=seed),) for seed in range(5)))
    made, _ = slurm_with(runs)
    assert seeds(list(made.run([unit], 1))) == set(range(5))


def test_what_a_job_raises_ends_the_sweep(slurm_with: Callable[..., Any], cell: Cell, store: Store) -> None:
    def runs(jobs: Sequence[Unit]) -> Any:
        return ([], UserError("the disk is full.")) if jobs[0].cells[0].seed else stores(jobs)

    made, cluster = slurm_with(runs)
    with pytest.raises(UserError, match=r"^the disk is full\."):
        list(made.run(units(cell, store, 4), 1))
    assert cluster.cancelled  # what still waits


@pytest.mark.parametrize("ends", [KeyboardInterrupt(), SystemExit(143)])
def test_a_sweep_that_is_interrupted_while_sbatch_runs_leaves_nothing_in_the_queue(
    slurm_with: Callable[..., Any], cell: Cell, store: Store, ends: BaseException
) -> None:
    made, cluster = slurm_with(stores, [ends])
    with pytest.raises(type(ends)):
        list(made.run(units(cell, store, 3), 1))
    assert cluster.cancelled == cluster.arrays  # by its name: nobody knows its number


def test_an_interrupted_sweep_says_what_it_cannot_cancel(
    slurm_with: Callable[..., Any], cell: Cell, store: Store
) -> None:
    made, cluster = slurm_with(stores)
    events = made.run(units(cell, store, 3), 1)
    next(events)
    cluster.answers = False
    with pytest.warns(UserWarning, match=r"Slurm tasks may go on, since scancel fails here") as told:
        events.close()
    assert str(told[0].message).endswith(f"Later: scancel --name={cluster.arrays[0]}")


def test_a_task_that_is_preempted_begins_again_and_one_at_its_time_limit_if_it_got_on(
    monkeypatch: pytest.MonkeyPatch, result: Result
) -> None:
    helpers = ModuleType("submitit.helpers")
    vars(helpers)["DelayedSubmission"] = lambda task: task
    monkeypatch.setitem(sys.modules, "submitit", ModuleType("submitit"))
    monkeypatch.setitem(sys.modules, "submitit.helpers", helpers)
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    again: list[Any] = []

    def works(*_arguments: Any, **_limits: Any) -> Iterator[Any]:
        for minute in (5, 238):
            now[0] = 1000.0 + 60 * minute
            again.append(task.checkpoint())
        yield Done((result,))
        again.append(task.checkpoint())

    monkeypatch.setattr(local, "run", works)
    task: Any = slurm.Task(["job"], 2, Limits(seconds=9), 240)
    task()
    preempted, at_limit, got_on = again
    assert at_limit is None
    for made in (preempted, got_on):
        assert (made.jobs, made.workers, made.limits, made.minutes) == (("job",), 2, Limits(seconds=9), 240)
