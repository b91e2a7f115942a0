"""Run the jobs of a sweep, and yield progress and results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from ttabench.cell import Result
from ttabench.executors import Died, Executor
from ttabench.store import Store
from ttabench.worker import CellProgress, Done, Job


def run(
    todo: Sequence[Job], store: Store, executor: Executor, workers: int, *, fail_fast: bool = False
) -> Iterator[Result | CellProgress]:
    """Run jobs, and yield progress and stored results. With `fail_fast`, stop at the first failure."""
    with closing(executor(todo, workers)) as events:
        for event in events:
            if isinstance(event, CellProgress):
                yield event
                continue
            results = event.results if isinstance(event, Done) else _died(event, store)
            yield from results
            if fail_fast and any(r.status == "failed" for r in results):
                return


def _died(event: Died, store: Store) -> tuple[Result, ...]:
    reason = "the worker process was killed twice while running this cell (out of memory?)"
    results = tuple(Result(cell=cell, status="failed", reason=reason) for cell in event.job.cells)
    writer = store.writer()
    for result in results:
        writer.append(result)
    writer.close()
    return results
