"""A sweep that other machines carry out: what they store is followed, and what they leave is said."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.stored_results import fill
from ttabench.cell import Cell, Result
from ttabench.errors import UserError
from ttabench.run import shared_folder
from ttabench.run.cell_group import CellGroup
from ttabench.run.executors import Setup, cluster
from ttabench.run.kept_objects import WorkerState
from ttabench.run.progress_events import CellProgress, Done, Elsewhere
from ttabench.store import Store
from ttabench.sweep.other_sweeps import Others
from ttabench.sweep.train_sources import TrainJob
from ttabench.system import work_claims


@dataclass
class Made:
    """Places that do the next of `steps` at each look; they are open until none is left."""

    steps: list[Callable[[], Any]]
    rounds: int = 3
    hint: str = "`queue` says more"
    commands: list[Any] = field(default_factory=list)
    at_once: int = 0
    cancelled: int = 0

    def start(self, commands: Sequence[Any], at_once: int) -> None:
        self.commands, self.at_once = list(commands), at_once

    def is_open(self) -> bool:
        if self.steps:
            self.steps.pop(0)()
            return True
        return False

    def trouble(self) -> str:
        return "ImportError: no torch."

    def cancel(self) -> None:
        self.cancelled += 1


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "POLL", 0.0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "results", {})


@pytest.fixture
def cells(cell: Cell) -> list[Cell]:
    return [replace(cell, seed=seed) for seed in range(4)]


def units(store: Store, cells: Sequence[Cell]) -> list[CellGroup]:
    return [CellGroup(((cell,),), store.root, command=("sweep", "--begun", "it")) for cell in cells]


def follow(made: Made, store: Store, jobs: Sequence[Any], workers: int = 2, each: int = 1) -> Iterator[Any]:
    setup = Setup(folder=store.root, name="ttabench-1a2b")
    arguments = ("--device", "cpu")
    return cluster.run(jobs, workers, places=made, each=each, arguments=arguments, setup=setup)


def storing(store: Store, *cells: Cell) -> Callable[[], None]:
    def step() -> None:
        right = Result(cell=cells[0], status="ok", accuracy=100.0, n_images=1, correct=b"\x80")
        fill(store, *(replace(right, cell=cell) for cell in cells))

    return step


def lease(store: Store, of: Cell, **progress: Any) -> Callable[[], None]:
    """A process of another machine computes a cell."""
    about = {"host": "far", "pid": 7, "machine": "far/boot/1", "started": 5, "since": 0.0}

    def step() -> None:
        folder = store.root / work_claims.FOLDER
        folder.mkdir(exist_ok=True)
        (folder / "far.json").write_text(json.dumps({**about, "progress": progress}))
        (folder / f"{of.cell_id}@far").touch()

    return step


def test_what_any_place_stores_is_told_as_it_comes_with_what_runs(store: Store, cells: list[Cell]) -> None:
    first, *others = cells
    at = {"total": 8, "seen": 4, "scored": 2, "right": 1}
    made = Made(
        [
            lease(store, first, cell=str(first), key=first.cell_id, **at),
            lease(store, first, cell="\x1b]0;another", **at),
            lease(store, first, cell=str(first), key=first.cell_id),
            storing(store, first),
            storing(store, *others, replace(first, corruption="of another sweep")),
        ]
    )
    events = list(follow(made, store, units(store, cells)))
    assert events[0] == CellProgress(str(first), 8, 4, 2, 1, key=first.cell_id)
    assert [result.cell for event in events[1:] for result in event.results] == cells
    assert made.commands == [("sweep", "--begun", "it", "--device", "cpu")] * 6  # three rounds of two
    assert (made.at_once, made.cancelled) == (2, 1)


def test_what_was_done_before_is_not_waited_for_and_shows_how_far_its_run_is(
    store: Store, cells: list[Cell]
) -> None:
    """Of a continual run whose first cell was stored when the others were planned."""
    at = {"total": 8, "seen": 4, "scored": 2, "right": 1}
    told = lease(store, cells[0], cell=str(cells[0]), key=cells[0].cell_id, **at)
    made = Made([told, storing(store, *cells[1:3])])
    todo = CellGroup((tuple(cells),), store.root, command=("sweep",), done=frozenset({cells[0].cell_id}))
    events = follow(made, store, [todo])
    assert next(events) == CellProgress(str(cells[0]), 8, 4, 2, 1, key=cells[0].cell_id)
    assert [next(events).results[0].cell for _ in range(2)] == cells[1:3]
    storing(store, cells[3])()
    assert [event.results[0].cell for event in events if isinstance(event, Done)] == cells[3:]


@pytest.mark.parametrize(("workers", "each", "places"), [(64, 1, 4), (64, 2, 2), (3, 2, 2), (1, 1, 1)])
def test_no_more_places_begin_than_there_is_work_for(
    store: Store, cells: list[Cell], workers: int, each: int, places: int
) -> None:
    made = Made([storing(store, *cells)])
    list(follow(made, store, units(store, cells), workers, each))
    assert (made.at_once, len(made.commands)) == (places, 3 * places)


def test_what_is_missing_at_the_end_is_one_sentence_and_what_is_stored_is_told(
    store: Store, cells: list[Cell]
) -> None:
    made, told = Made([storing(store, cells[0])]), list[Any]()
    with pytest.raises(UserError) as problem:
        told.extend(follow(made, store, units(store, cells)))
    assert str(problem.value) == (
        "3 of 4 cells are missing, and nothing runs any more (ImportError: no torch). What is stored is "
        f"kept; run the same command again to go on. Logs: {store.root}/tasks/ttabench-1a2b"
    )
    assert made.cancelled == 1


def test_a_cell_that_another_process_computes_is_waited_for_and_a_silent_one_is_not(
    store: Store, cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of the tasks of a sweep that was killed."""
    looks: list[float] = []
    lease(store, cells[0])()

    def sleeps(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            storing(store, cells[0])()

    monkeypatch.setattr(cluster.time, "sleep", sleeps)
    (event,) = follow(Made([]), store, units(store, cells[:1]))
    assert (event.results[0].cell, len(looks)) == (cells[0], 3)
    lease(store, cells[1])()
    monkeypatch.setattr(work_claims, "SILENT", 0.0)
    with pytest.raises(UserError, match="1 of 1 cell are missing"):
        list(follow(Made([]), store, units(store, cells[1:2])))


def test_a_sweep_that_is_interrupted_takes_its_places_back(store: Store, cells: list[Cell]) -> None:
    made = Made([storing(store, cells[0]), lambda: None])
    events = follow(made, store, units(store, cells))
    assert isinstance(next(events), Done)
    events.close()  # type: ignore[attr-defined]
    assert made.cancelled == 1


def test_a_task_ends_where_others_compute_all_that_is_left(store: Store, cells: list[Cell]) -> None:
    key = cells[0].cell_id
    with work_claims.WorkClaims(store.root) as other, work_claims.WorkClaims(store.root) as mine:
        assert other.take(key)
        others = Others(units(store, cells[:1]), store, mine, {}, patience=0.0)
        assert list(others.note(Elsewhere((key,)))) == []
        with pytest.raises(StopIteration) as end:
            next(others.wait())
        assert end.value.value == []


def test_who_waits_long_hears_once_where_to_look(
    store: Store, cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "PATIENCE", -1.0)
    with warnings.catch_warnings(record=True) as caught:
        list(follow(Made([lambda: None, lambda: None, storing(store, *cells)]), store, units(store, cells)))
    assert [str(one.message) for one in caught] == ["No cell runs; `queue` says more."]


def test_each_long_wait_is_told_once_also_after_some_cells(
    store: Store, cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where all nodes go away in the middle of a sweep."""
    monkeypatch.setattr(cluster, "PATIENCE", -1.0)

    def nothing() -> None:
        pass

    steps = [nothing, nothing, storing(store, *cells[:2]), nothing, nothing, storing(store, *cells[2:])]
    with warnings.catch_warnings(record=True, action="always") as caught:  # as the command line does
        list(follow(Made(steps), store, units(store, cells)))
    assert len(caught) == 2


def test_each_classifier_to_train_has_a_task_of_its_own(store: Store) -> None:
    made = Made([lambda: None])
    jobs = [TrainJob(name, "digits-c", "cpu") for name in ("cct", "vit")]
    assert list(follow(made, store, jobs)) == []
    usual = ("--datasets", "digits-c", "--threads", "1", "--device", "cpu")
    assert made.commands == [("train", "--archs", name, *usual) for name in ("cct", "vit")]


@pytest.mark.parametrize("deaths", [2, 3])
def test_a_cell_that_takes_its_process_down_again_and_again_is_recorded(
    store: Store, cell: Cell, deaths: int
) -> None:
    folder = store.root / work_claims.FOLDER
    folder.mkdir()
    for death in range(deaths):
        (folder / f"{cell.cell_id}@dead{death}").touch()
    state, events = WorkerState(), list[Any]()
    CellGroup(((cell,),), store.root)(events.append, state)
    state.close()
    (record,) = store.records()
    assert record.result.status == "failed"
    lost = "its process was lost 3 times" in record.result.reason
    assert lost is (deaths >= shared_folder.LOSSES)
    assert Done((record.result,)) in events
