"""Which slice of a sweep a machine takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cases import each
from ttabench.cell import Cell
from ttabench.cell.protocol import Protocol
from ttabench.errors import UserError
from ttabench.sweep.plan import Planned
from ttabench.sweep.shard import pick_shard, take_shard


def slurm(task: int, low: int, high: int, count: int, step: int = 1) -> dict[str, str]:
    values = {"ID": task, "MIN": low, "MAX": high, "COUNT": count, "STEP": step}
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in values.items()}


def test_slices_are_counted_from_1() -> None:
    assert [pick_shard(f"{i}/3") for i in (1, 2, 3)] == [(0, 3), (1, 3), (2, 3)]
    assert pick_shard("") == (0, 1)


def test_a_slurm_array_may_begin_anywhere_and_have_steps() -> None:
    assert [pick_shard("auto", slurm(i, 7, 9, 3)) for i in (7, 8, 9)] == [(0, 3), (1, 3), (2, 3)]
    assert [pick_shard("auto", slurm(i, 0, 8, 3, 4)) for i in (0, 4, 8)] == [(0, 3), (1, 3), (2, 3)]


def test_ranks_within_an_array_divide_its_tasks() -> None:
    ranks = [{"RANK": str(rank), "WORLD_SIZE": "2"} for rank in (0, 1)]
    assert [pick_shard("auto", rank) for rank in ranks] == [(0, 2), (1, 2)]
    both = [pick_shard("auto", {**slurm(task, 1, 3, 3), **rank}) for task in (1, 2, 3) for rank in ranks]
    assert both == [(i, 6) for i in range(6)]


def step(rank: int, ranks: int) -> dict[str, str]:
    return {"SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(ranks)}


def test_ranks_of_srun_divide_the_cells_and_those_of_torchrun_count_first() -> None:
    assert [pick_shard("auto", step(rank, 3)) for rank in range(3)] == [(0, 3), (1, 3), (2, 3)]
    both = [
        pick_shard("auto", {**slurm(task, 0, 1, 2), **step(rank, 2)}) for task in (0, 1) for rank in (0, 1)
    ]
    assert both == [(i, 4) for i in range(4)]
    nodes = {
        **step(1, 2),
        "RANK": "5",
        "WORLD_SIZE": "8",
    }  # torchrun, started on each of two machines by srun
    assert pick_shard("auto", nodes) == (5, 8)


def test_a_batch_script_is_one_process_however_many_tasks_it_has() -> None:
    script = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}
    assert pick_shard("auto", {**script, **slurm(1, 0, 1, 2)}) == (1, 2)
    with pytest.raises(UserError, match="a step of srun"):
        pick_shard("auto", script)


@each(
    ("variables", "message"),
    [
        ({}, "--shard i/n"),
        ({"RANK": "0"}, "--shard i/n"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "expected"),
        ({"RANK": "a", "WORLD_SIZE": "2"}, "incomplete"),
        ({"SLURM_ARRAY_TASK_ID": "0"}, "incomplete"),
        (slurm(5, 1, 5, 3), "gaps"),
        (slurm(2, 1, 5, 3, 2), "gaps"),
    ],
)
def test_variables_that_do_not_say_which_slice(variables: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        pick_shard("auto", variables)


@each("text", ["1", "1/", "/2", "0/2", "3/2", "-1/2", "a/b", "1/2/3"])
def test_texts_that_are_no_slice(text: str) -> None:
    with pytest.raises(UserError, match="expected i/n"):
        pick_shard(text)


def test_every_cell_is_in_one_slice_and_a_continual_run_stays_whole(cell: Cell) -> None:
    runs = [replace(cell, seed=seed, protocol=Protocol(reset="continual")) for seed in range(3)]
    planned = [
        Planned(replace(one, corruption=name), "")
        for one in (*runs, replace(cell, seed=9))
        for name in ("fog", "snow")
    ]
    slices = [take_shard(planned, (index, 3)) for index in range(3)]
    assert sorted(planned.index(one) for part in slices for one in part) == list(range(len(planned)))
    for seed in range(3):
        (whole,) = [part for part in slices if any(one.cell.seed == seed for one in part)]
        assert sum(one.cell.seed == seed for one in whole) == 2


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_slices_of_a_large_sweep_hold_equally_many_cells_and_leave_none_out(cell: Cell, count: int) -> None:
    planned = [Planned(replace(cell, seed=seed), "") for seed in range(100)]
    slices = [take_shard(planned, (index, count)) for index in range(count)]
    assert sorted(one.cell.seed for part in slices for one in part) == [*range(100)]
    assert max(map(len, slices)) - min(map(len, slices)) <= 1
