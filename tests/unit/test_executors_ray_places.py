"""Which places of a Ray cluster are given up, and which cells: without Ray, whose outside is made up here."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ttabench.cell import Cell
from ttabench.errors import UserError
from ttabench.run.events import Done, Elsewhere
from ttabench.run.executors import Died, Engine, Setup, open_engine
from ttabench.run.executors.local import CannotStart
from ttabench.run.unit import Unit

Works = Callable[[int, Any], list[Any]]


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause


@dataclass(eq=False)
class Reference:
    """What `ray.get` gives or raises."""

    value: Any


@dataclass(eq=False)
class Stream:
    """What an actor sends while it works."""

    batches: Iterator[Any]

    def __next__(self) -> Reference:
        return Reference(next(self.batches))


@dataclass
class Cluster:
    """Actors by number, in the order in which they are asked for.

    bad     those that end before they start.
    works   (number, job) → the events of the job; it may raise what ends the work.
    fails_after_events   what ends each job after its events, if anything.
    """

    bad: Collection[int]
    works: Works
    fails_after_events: Exception | None = None
    asked: int = 0
    killed: list[int] = field(default_factory=list)

    def remote(self, _actor: type) -> Any:
        return SimpleNamespace(options=lambda **_needs: SimpleNamespace(remote=self._actor))

    def _actor(self, *_arguments: object) -> Any:
        number, self.asked = self.asked, self.asked + 1
        ready = RayError("The actor died: no module named ttabench.") if number in self.bad else "a node"

        def work(job: Any) -> Stream:
            def batches() -> Iterator[Any]:
                try:
                    yield self.works(number, job)
                    if self.fails_after_events is not None:
                        raise self.fails_after_events
                except Exception as problem:
                    yield problem if isinstance(problem, RayError) else RayTaskError(problem)

            return Stream(batches())

        streaming = SimpleNamespace(remote=work)
        return SimpleNamespace(
            number=number,
            ready=SimpleNamespace(remote=lambda: Reference(ready)),
            work=SimpleNamespace(options=lambda **_returns: streaming),
        )

    def wait(self, waiting: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return waiting[::-1], []

    def get(self, reference: Reference) -> Any:
        if isinstance(reference.value, Exception):
            raise reference.value
        return reference.value

    def kill(self, actor: Any) -> None:
        self.killed.append(actor.number)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[Engine, Cluster]]:
    def made(bad: Collection[int], works: Works, workers: int = 2) -> tuple[Engine, Cluster]:
        cluster = Cluster(bad, works)
        ray, exceptions = ModuleType("ray"), ModuleType("ray.exceptions")
        for name in ("remote", "wait", "get", "kill"):
            setattr(ray, name, getattr(cluster, name))
        setattr(ray, "is_initialized", lambda: True)  # noqa: B010
        setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": {"CPU": workers}}])  # noqa: B010
        setattr(exceptions, "RayError", RayError)  # noqa: B010
        setattr(exceptions, "RayTaskError", RayTaskError)  # noqa: B010
        monkeypatch.setitem(sys.modules, "ray", ray)
        monkeypatch.setitem(sys.modules, "ray.exceptions", exceptions)
        return open_engine("ray", Setup(folder=tmp_path)), cluster

    return made


@dataclass(frozen=True)
class Job:
    name: str


JOBS = [Job(name) for name in "abcdef"]


def says(number: int, job: Any) -> list[Any]:
    return [(number, job.name)]


ALL_BY_THE_FIRST = [(0, job.name) for job in JOBS]


def test_a_node_where_nothing_starts_is_left_to_itself(engine: Callable[..., Any]) -> None:
    made, cluster = engine(range(1, 100), says)
    with pytest.warns(UserWarning, match=r"a worker cannot start .*no module named ttabench; the others go"):
        events = list(made.run(JOBS, 2))
    assert sorted(events) == ALL_BY_THE_FIRST
    assert cluster.asked == 1 + 3
    assert sorted(cluster.killed) == [0, 1, 2, 3]


def test_starts_that_fail_count_in_a_row_and_for_one_place(engine: Callable[..., Any]) -> None:
    """Both places fail twice and then start. One of them is lost later, and fails twice again."""

    def works(number: int, job: Any) -> list[Any]:
        if number == 5:
            raise RayError("The node died.")
        return says(number, job)

    made, cluster = engine((0, 1, 2, 3, 6, 7), works)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        events = list(made.run(JOBS, 2))
    assert sorted(name for _, name in events) == [job.name for job in JOBS]
    assert cluster.asked == 9


def test_where_nothing_starts_at_all_the_sweep_ends(engine: Callable[..., Any]) -> None:
    made, cluster = engine(range(100), says)
    with (
        pytest.warns(UserWarning, match="the others go on"),
        pytest.raises(UserError, match=r"^no worker can start on this Ray cluster: The actor died"),
    ):
        list(made.run(JOBS, 2))
    assert cluster.asked == 6


def test_a_node_where_actors_start_and_worker_processes_do_not_is_left_to_itself(
    engine: Callable[..., Any],
) -> None:
    def works(number: int, job: Any) -> list[Any]:
        if number:
            raise CannotStart("no worker process can start here.")
        return says(number, job)

    made, cluster = engine((), works)
    with pytest.warns(UserWarning, match="no worker process can start here; the others go on"):
        assert sorted(made.run(JOBS, 2)) == ALL_BY_THE_FIRST
    assert cluster.asked == 1 + 3


def test_a_single_place_is_tried_on_other_nodes_and_no_cell_is_blamed(
    engine: Callable[..., Any], cell: Cell, tmp_path: Path
) -> None:
    """The actor starts each time; its worker process only on the third node."""

    def works(number: int, job: Any) -> list[Any]:
        if number in (0, 1):
            raise CannotStart("no worker process can start here.")
        return [job]

    first, second = (Unit(((replace(cell, seed=seed),),), tmp_path) for seed in (0, 1))
    made, cluster = engine((), works, workers=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        events = list(made.run([first, second], 1))
    assert [event for event in events if isinstance(event, Unit)] == [first, second]
    assert not [event for event in events if isinstance(event, Died)]
    assert cluster.asked == 3


def test_a_cell_after_which_no_worker_starts_is_given_up(
    engine: Callable[..., Any], cell: Cell, tmp_path: Path
) -> None:
    """As one that fills the node's shared memory: it gets on each time, and then no process can start."""
    unit = Unit(((cell,),), tmp_path)
    made, cluster = engine((), lambda number, job: ["progress"], workers=1)
    cluster.fails_after_events = CannotStart("no worker process can start here.")
    events = list(made.run([unit], 1))
    assert events[-1] == Died(unit, "its Ray worker is lost: no worker process can start here, 3 times")
    assert sorted(cluster.killed) == list(range(cluster.asked))


def test_a_warning_of_an_actor_is_no_sign_of_life(engine: Callable[..., Any]) -> None:
    made, cluster = engine((), lambda number, job: [UserWarning("a worker process cannot start")], workers=1)
    cluster.fails_after_events = CannotStart("no worker process can start here.")
    with (
        pytest.warns(UserWarning, match="a worker process cannot start"),
        pytest.raises(UserError, match=r"^no worker can start on this Ray cluster: no worker process can"),
    ):
        list(made.run(JOBS, 1))
    assert cluster.asked == 3


def test_losses_of_a_cell_count_over_the_runs_of_an_engine(
    engine: Callable[..., Any], cell: Cell, tmp_path: Path
) -> None:
    """The claim of a lost worker holds for a while: the next one leaves the cell out, and it comes again."""
    unit = Unit(((cell,),), tmp_path)
    turns: list[str] = []

    def works(number: int, job: Any) -> list[Any]:
        turns.append("lost" if len(turns) % 2 == 0 else "elsewhere")
        if turns[-1] == "lost":
            raise RayError("The node died.")
        return [Elsewhere((cell.cell_id,)), Done()]

    made, _ = engine((), works, workers=1)
    for _ in range(2):
        assert not [event for event in made.run([unit], 1) if isinstance(event, Died)]
    (died,) = made.run([unit], 1)
    assert died == Died(unit, "its Ray worker is lost: The node died, 3 times")
    assert turns == ["lost", "elsewhere"] * 2 + ["lost"]
