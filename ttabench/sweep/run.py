"""Run the units of a sweep, and yield progress and results."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from contextlib import closing

from ttabench.cell import Result
from ttabench.events import CellProgress, Done
from ttabench.executors import Died, Executor
from ttabench.store import Store
from ttabench.unit import Unit


def run(
    todo: Sequence[Unit], store: Store, executor: Executor, workers: int, *, fail_fast: bool = False
) -> Generator[Result | CellProgress]:
    """Run units, and yield progress and stored results. With `fail_fast`, stop at the first failure."""
    stored: set[str] = set()  # a sequence that was begun twice reports some cells twice
    with closing(executor(todo, workers)) as events:
        for event in events:
            if isinstance(event, CellProgress):
                yield event
                continue
            results = event.results if isinstance(event, Done) else _died(event, store, stored)
            new = [result for result in results if result.cell.cell_id not in stored]
            stored.update(result.cell.cell_id for result in new)
            yield from new
            if fail_fast and any(r.status == "failed" for r in new):
                return


def _died(event: Died, store: Store, stored: Collection[str]) -> tuple[Result, ...]:
    """Record the cells that a unit lost with its worker: the one that ran, and those that go on from it."""
    results: list[Result] = []
    for cell in event.job.cells:
        if cell.cell_id in stored:
            continue
        reason = event.reason
        if results:
            at = results[0].cell
            reason = f"{at.corruption}-{at.severity}, earlier in this continual run, failed"
        results.append(Result(cell=cell, status="failed", reason=reason))
    writer = store.writer()
    for result in results:
        writer.append(result)
    writer.close()
    return tuple(results)
