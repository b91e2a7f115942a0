"""Units of work: cells of one classifier and dataset, sized so that all workers have work until the end."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.stored_results import fill
from ttabench.cell import Cell, Result
from ttabench.cell.protocol import Protocol
from ttabench.errors import UnusableModel
from ttabench.run.cell_group import CellGroup
from ttabench.run.executors import Died
from ttabench.run.kept_objects import WorkerState
from ttabench.run.progress_events import Done
from ttabench.run.worker import Worker
from ttabench.store import Store
from ttabench.sweep.agenda import LARGEST, make_groups
from ttabench.sweep.plan import Planned
from ttabench.sweep.run import run
from ttabench.system.work_claims import WorkClaims


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "results", {})


def cells(base: Cell, seeds: int, archs: tuple[str, ...] = ("cct", "resnet18")) -> list[Cell]:
    return [replace(base, arch=arch, seed=seed) for arch in archs for seed in range(seeds)]


def units(todo: list[Cell], store: Store, workers: int, **needs: Any) -> list[CellGroup]:
    like = CellGroup((), store.root.absolute(), **needs)
    return make_groups(todo, [Planned(cell, "") for cell in todo], like, workers)


@pytest.mark.parametrize("workers", [0, 1, 2, 7])
@pytest.mark.parametrize("seeds", [1, 50, 1000])
def test_every_cell_is_in_one_unit_and_a_unit_has_one_classifier(
    cell: Cell, store: Store, workers: int, seeds: int
) -> None:
    todo = cells(cell, seeds)
    made = units(todo, store, workers)
    assert [one for unit in made for one in unit.cells] == todo
    assert all(len({one.arch for one in unit.cells}) == 1 for unit in made)
    assert max(len(unit.cells) for unit in made) <= LARGEST


@pytest.mark.parametrize("workers", [2, 7, 30])
def test_no_worker_waits_long_for_the_last_whatever_a_cell_takes(
    cell: Cell, store: Store, workers: int
) -> None:
    def span(costs: list[float], sizes: list[int]) -> float:
        """When the last worker ends, if each takes the next unit as soon as it is free."""
        free, at = [0.0] * workers, iter(costs)
        for size in sizes:
            first = free.index(min(free))
            free[first] += sum(itertools.islice(at, size))
        return max(free)

    todo = cells(cell, 500)
    sizes = [len(unit.cells) for unit in units(todo, store, workers)]
    for slow in (range(500), range(500, 1000), range(0, 1000, 7)):  # which cells take ten times as long
        costs = [10.0 if i in slow else 1.0 for i in range(1000)]
        assert span(costs, sizes) <= 1.15 * sum(costs) / workers + 10
    assert len(sizes) < len(todo) / 2


def test_an_absolute_path_and_the_command_travel_with_a_unit(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.create(tmp_path / "results", {})
    monkeypatch.chdir(tmp_path)
    (unit,) = units([cell, replace(cell, seed=1)], Store.at(Path("results")), 0, command=("sweep",))[:1]
    assert (unit.results, unit.command) == (tmp_path / "results", ("sweep",))


def test_a_unit_splits_at_the_cell_that_ran(cell: Cell, tmp_path: Path) -> None:
    a, b, c = (replace(cell, seed=seed) for seed in range(3))
    unit = CellGroup(((a,), (b,), (c,)), tmp_path)
    running, rest = unit.split({a.cell_id})
    assert running is not None
    assert rest is not None
    assert (running.cells, rest.cells) == ((b,), (c,))
    running, rest = unit.split({b.cell_id, a.cell_id})
    assert (running and running.cells, rest) == ((c,), None)
    assert unit.split({a.cell_id, b.cell_id, c.cell_id}) == (None, None)


def test_a_continual_run_stays_whole_and_begins_again(cell: Cell, store: Store) -> None:
    base = replace(cell, protocol=Protocol(reset="continual"))
    todo = [
        replace(base, seed=seed, corruption=name, history=("fog-5",) * at)
        for seed in range(4)
        for at, name in enumerate(("fog", "snow"))
    ]
    planned = [Planned(one, "") for one in todo]
    made = make_groups(todo[1:], planned, CellGroup((), store.root))
    assert [one for unit in made for one in unit.cells] == todo  # what comes before a cell runs too
    assert [unit.to_do(chain) for unit in made for chain in unit.chains] == [
        (todo[1],), *((todo[at], todo[at + 1]) for at in (2, 4, 6))
    ]  # fmt: skip
    running, rest = CellGroup((tuple(todo[:2]), tuple(todo[2:4])), store.root).split({todo[0].cell_id})
    assert running is not None
    assert rest is not None
    assert (running.cells, rest.cells) == (tuple(todo[:2]), tuple(todo[2:4]))
    done = replace(running, chains=(*running.chains, *rest.chains), done=frozenset({todo[0].cell_id}))
    assert done.split({todo[1].cell_id})[0] == replace(done, chains=rest.chains)  # its first cell may fail


def test_units_and_events_are_light_to_load(cell: Cell, tmp_path: Path) -> None:
    file = tmp_path / "unit"
    file.write_bytes(pickle.dumps(CellGroup(((cell,),), tmp_path)))
    script = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb')); import ttabench.run.progress_events; "
    script += "import ttabench.run.executors.local; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, file], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_long_streams_are_runs_of_their_own(cell: Cell, store: Store) -> None:
    """Each begins with a method that has seen nothing, although none is reset on the way."""
    todo = [
        replace(cell, corruption="recurring", protocol=Protocol(reset="continual", stream=f"recurring({n})"))
        for n in (1, 2)
    ]
    assert {len(chain) for made in units(todo, store, 0) for chain in made.chains} == {1}
    planned = [Planned(one, "") for one in todo]
    (unit,) = make_groups(todo[1:], planned, CellGroup((), store.root))
    assert unit.chains == ((todo[1],),)  # the other one is stored: it need not run again


@pytest.mark.parametrize(
    "changed",
    [
        {"method": "eata"}, {"config": (("lr", 0.5),)}, {"arch": "cct"}, {"dataset": "cifar10-c"},
        {"severity": 1}, {"seed": 1}, {"protocol": Protocol(reset="continual", batch_size=7)},
    ],
    ids=str,
)  # fmt: skip
def test_continual_runs_of_two_kinds_share_no_state(
    cell: Cell, store: Store, changed: dict[str, Any]
) -> None:
    first = replace(cell, protocol=Protocol(reset="continual"))
    second = replace(first, **changed)
    chains = {chain for unit in units([first, second], store, 0) for chain in unit.chains}
    assert chains == {(first,), (second,)}


def test_no_method_of_a_unit_imports_what_knows_the_labels(
    cell: Cell, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = compile("__import__('ttab' + 'ench.measure.scoring')", "setup", "exec")
    monkeypatch.setattr(Worker, "run", lambda *_: exec(setup, {"__name__": "ttabench_methods.tent"}))
    with pytest.raises(UnusableModel, match=r"tent imports ttabench\.measure\.scoring"):
        CellGroup(((cell,),), store.root)(lambda event: None, WorkerState())


def test_the_workers_of_a_group_know_how_they_run(
    cell: Cell, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[tuple[int, bool]] = []
    monkeypatch.setattr(Worker, "run", lambda worker, *_: known.append((worker.per_gpu, worker.recompute)))
    for group in (*units([cell], store, 0), *units([cell], store, 0, per_gpu=7, recompute=True)):
        group(lambda event: None, WorkerState())
    assert known == [(0, False), (7, True)]


def test_a_result_that_is_reported_twice_counts_once(result: Result, store: Store) -> None:
    """A continual run that starts again after its worker died reports its first cells again."""
    other = replace(result, cell=replace(result.cell, seed=1), status="failed", reason="too hard")

    def executor(jobs: Any, workers: int) -> Iterator[Done]:
        yield Done((result,))
        yield Done((result, other))
        yield Done((other,))

    todo = [CellGroup(((result.cell, other.cell),), store.root)]
    with WorkClaims(store.root) as claims:
        events = [*run(todo, store, executor, 1, claims=claims, start={})]  # type: ignore[arg-type]
    assert events == [result, other]


def test_a_result_that_was_stored_before_its_worker_died_stays_and_what_goes_on_from_it_fails(
    result: Result, store: Store
) -> None:
    """Of a continual run: stored, running when the worker died, and after that."""
    later = [replace(result.cell, corruption=name, history=("fog-5",)) for name in ("snow", "frost")]

    def executor(jobs: list[CellGroup], workers: int) -> Iterator[Died]:
        fill(store, result)
        yield Died(jobs[0], "the worker was killed")

    todo = [CellGroup(((result.cell, *later),), store.root)]
    with WorkClaims(store.root) as claims:
        events = [*run(todo, store, executor, 1, claims=claims, start={})]  # type: ignore[arg-type]
    expected = [
        result,
        Result(cell=later[0], status="failed", reason="the worker was killed"),
        Result(cell=later[1], status="failed", reason="snow-5, earlier in this continual run, failed"),
    ]
    assert events == expected
    assert {key: record.result for key, record in store.latest().items()} == {
        each.cell.cell_id: each for each in expected
    }


def test_a_cell_whose_worker_died_has_the_device_and_the_thread_of_the_worker(
    result: Result, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def executor(jobs: list[CellGroup], workers: int) -> Iterator[Died]:
        yield Died(jobs[0], "the worker was killed")

    def broken(device: str) -> str:
        raise RuntimeError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", broken)  # of this GPU the worker died
    todo = [CellGroup(((result.cell,),), store.root, "cuda")]
    with WorkClaims(store.root) as claims:
        assert [*run(todo, store, executor, 1, claims=claims, start={})]  # type: ignore[arg-type]
    (record,) = store.records()
    assert (record.environment["device"], record.environment["threads"]) == ("cuda", 1)


def test_what_was_done_before_does_not_fail_where_another_process_has_stored_the_rest(
    result: Result, other: Result, store: Store
) -> None:
    """A worker died at a continual run before it could say that another process has done it."""

    def executor(jobs: list[CellGroup], workers: int) -> Iterator[Died]:
        fill(store, other)
        yield Died(jobs[0], "the worker was killed")

    first = result.cell
    todo = [CellGroup(((first, other.cell),), store.root, done=frozenset({first.cell_id}))]
    with WorkClaims(store.root) as claims:
        events = [*run(todo, store, executor, 1, claims=claims, start={})]  # type: ignore[arg-type]
    assert events == [other]
    assert store.latest().keys() == {other.cell.cell_id}


def test_a_worker_keeps_what_it_used_last_and_no_more_than_it_may() -> None:
    made: list[str] = []

    def use(state: WorkerState, key: str) -> str:
        return state.keep("classifier", key, lambda: (made.append(key), key)[1], limit=2)

    state = WorkerState()
    for key in ("a", "b", "a", "c", "a", "b"):
        assert use(state, key) == key
    assert made == ["a", "b", "c", "b"]  # b was used before a when c took its place
