"""Run the groups of a sweep, and yield progress and results."""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import closing

from ttabench.cell import Result
from ttabench.run.cell_group import CellGroup
from ttabench.run.continual_failures import failed_before, results_to_store
from ttabench.run.executors import Died, Executor
from ttabench.run.progress_events import CellProgress, Done, Elsewhere, Waiting
from ttabench.store import Store
from ttabench.sweep.other_sweeps import Others
from ttabench.system.work_claims import WorkClaims


def run(
    todo: Sequence[CellGroup],
    store: Store,
    executor: Executor,
    workers: int,
    *,
    claims: WorkClaims,
    start: Mapping[str, int],
    fail_fast: bool = False,
    patience: float = math.inf,
) -> Generator[Result | CellProgress | Waiting]:
    """Run groups, and yield progress and stored results, also those that other processes store meanwhile.

    claims, start, patience   see :class:`Others`.
    fail_fast   stop at the first failure.
    """
    stored: set[str] = set()  # a sequence that was begun twice reports some cells twice
    others = Others(todo, store, claims, start, patience)
    for event in _events(todo, executor, workers, others):
        if isinstance(event, CellProgress | Waiting):
            yield event
            continue
        results = _died(event, store, stored, others) if isinstance(event, Died) else event
        new = [result for result in results if result.cell.cell_id not in stored]
        stored.update(result.cell.cell_id for result in new)
        yield from new
        if fail_fast and any(r.status == "failed" for r in new):
            return


def _events(
    todo: Sequence[CellGroup], executor: Executor, workers: int, others: Others
) -> Generator[CellProgress | Waiting | Died | Sequence[Result]]:
    """What the executor yields, with results in place of `Done`; then those of other processes."""
    while todo:
        with closing(executor(todo, workers)) as events:
            for event in events:
                if isinstance(event, Elsewhere):
                    yield others.note(event)
                else:
                    yield event.results if isinstance(event, Done) else event
        todo = yield from others.wait()


def _died(event: Died, store: Store, stored: Collection[str], others: Others) -> list[Result]:
    """Record the cells that a group lost with its worker: the one that ran, and those that go on from it."""
    left = [cell for cell in event.job.cells if cell.cell_id not in stored]
    results = others.stored([cell.cell_id for cell in left])  # the worker died before it could say so
    known = {result.cell.cell_id for result in results}
    left = [cell for cell in left if cell.cell_id not in known]
    failed = [
        Result(cell=cell, status="failed", reason=failed_before(left[0]) if later else event.reason)
        for later, cell in enumerate(left)
    ]
    lost = list(results_to_store(failed, event.job.done))
    if lost:  # otherwise another process has stored what was to do
        with closing(store.writer(event.job.device, threads=1)) as writer:  # as its worker had
            writer.extend(lost)
    return [*results, *lost]
