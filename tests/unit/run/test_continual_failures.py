"""A continual run that begins again: a failure replaces no result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from ttabench.cell import Cell, Result
from ttabench.cell.protocol import Protocol
from ttabench.run.cell_group import CellGroup
from ttabench.run.continual_failures import failed_before, results_to_store
from ttabench.run.executors import Died
from ttabench.store import Store
from ttabench.sweep.run import run
from ttabench.system.work_claims import WorkClaims

FOG = Cell(
    method="tent", config=(), label="tent", arch="resnet18", checkpoint="c" * 64, dataset="digits-c",
    fingerprint="f" * 64, corruption="fog", severity=5, seed=0, protocol=Protocol(reset="continual"),
)  # fmt: skip
SNOW, FROST = replace(FOG, corruption="snow"), replace(FOG, corruption="frost")
AFTER = "fog-5, earlier in this continual run, failed"


def failed(cell: Cell, reason: str) -> Result:
    return Result(cell=cell, status="failed", reason=reason)


def kept(*results: Result, done: set[Cell]) -> dict[str, str]:
    stored = results_to_store(results, {cell.cell_id for cell in done})
    return {result.cell.corruption: result.reason for result in stored}


def test_a_failure_of_a_cell_that_has_a_result_is_named_by_those_after_it() -> None:
    results = failed(FOG, "killed"), failed(SNOW, AFTER), failed(FROST, AFTER)
    assert kept(*results, done={FOG, SNOW}) == {"frost": f"{AFTER}: killed"}
    assert kept(*results, done={SNOW}) == {"fog": "killed", "frost": AFTER}
    assert kept(*results, done=set()) == {"fog": "killed", "snow": AFTER, "frost": AFTER}
    assert kept(*results, done={FOG, SNOW, FROST}) == {}


def test_a_part_without_a_severity_is_named_without_one() -> None:
    part = replace(FOG, corruption="00003-1", severity=0)
    assert failed_before(part) == "00003-1, earlier in this continual run, failed"


def test_a_number_is_stored_again() -> None:
    again = Result(cell=FOG, status="ok")
    assert list(results_to_store([again, failed(SNOW, "killed")], {FOG.cell_id})) == [
        again, failed(SNOW, "killed")
    ]  # fmt: skip


def test_a_worker_that_dies_leaves_the_results_that_are_there(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "r", {})
    with closing(store.writer()) as writer:
        writer.append(failed(FOG, "as it was"))
    group = CellGroup(((FOG, SNOW),), store.root, done=frozenset({FOG.cell_id}))
    start = {shard.name: shard.stat().st_size for shard in store.cells.iterdir()}

    def dies(*_: object) -> Iterator[Died]:
        yield Died(group, "killed")

    with WorkClaims(store.root, "test") as claims:
        events = list(run([group], store, dies, 1, claims=claims, start=start))
    assert events == [failed(SNOW, f"{AFTER}: killed")]
    reasons = {record.result.cell.corruption: record.result.reason for record in store.latest().values()}
    assert reasons == {"fog": "as it was", "snow": f"{AFTER}: killed"}
