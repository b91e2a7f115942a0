"""Jobs on this machine, in processes that may die without taking the sweep with them."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any

from ttabench.errors import UserError
from ttabench.run.executors import NO_LIMITS, Died, Job, Limits, split
from ttabench.run.executors.watched_worker import WorkerProcess

STARTS = 3  # a worker that fails to start so often in a row does not start here at all
POLL = 0.1  # seconds between two looks at the limits
STILL = 1.0  # seconds more than that, after which all processes were stopped meanwhile, as by Ctrl-Z


class CannotStart(UserError):
    """No worker process starts on this machine."""


def run(
    jobs: Sequence[Job],
    workers: int,
    *,
    environments: Sequence[Mapping[str, str]] = ({},),
    limits: Limits = NO_LIMITS,
) -> Generator[Any]:
    """Run `jobs` on `workers` processes of one thread each; yields their events as they come.

    One thread per process keeps a number the same bit for bit with any number of workers. A worker
    that dies is replaced. What is left of its job is done next. What it was at is repeated once, at the end
    and alone in a fresh process; if that dies too, it is given up (:class:`Died`). A cell that runs too long
    is given up at once.

    environments   variables for worker 0, 1, …, from the start again where there are more workers.

    Raises UserError if no worker can start, and what a job raises.
    """
    count = min(workers, len(jobs))
    crew = [WorkerProcess(environments[i % len(environments)]) for i in range(count)]
    again: list[Job] = []
    try:
        for event in _work(deque(jobs), crew, limits):
            if isinstance(event, Died) and not event.too_long:  # it may go better in a process of its own
                again.append(event.job)
            else:
                yield event
        for job in again:
            _stop(crew)
            able = [worker for worker in crew if worker.failed_starts < STARTS][:1]
            for event in _work(deque([job]), able, limits):
                if isinstance(event, Died) and not event.too_long:
                    event = replace(event, reason=f"{event.reason}, twice, the second time alone")
                yield event
    finally:
        _stop(crew)


def _stop(crew: Sequence[WorkerProcess]) -> None:
    """End the processes, at once; they start again when there is work."""
    for worker in crew:
        worker.kill()
    for worker in crew:
        worker.stop()


def _work(queue: deque[Job], crew: Sequence[WorkerProcess], limits: Limits) -> Generator[Any]:
    """Work through `queue`; yields events, what jobs return, and what was lost."""
    while queue or any(worker.job for worker in crew):
        for worker in crew:
            if queue and not worker.started and worker.failed_starts < STARTS:
                try:
                    worker.start()
                except OSError as problem:
                    _note_failed_start(worker, problem.strerror or str(problem))
            if queue and worker.ready and worker.job is None and worker.give(queue[0]):
                queue.popleft()
        before = time.monotonic()
        wait([one for worker in crew for one in worker.waitables()], POLL)
        if (still := time.monotonic() - before - POLL) > STILL:
            for worker in crew:
                worker.stood_still(still)
        for worker in crew:
            if worker.started:
                yield from _attend(worker, queue, limits)
        if queue and all(worker.failed_starts >= STARTS for worker in crew):
            raise CannotStart("no worker process can start here; the reason is in the warning above.")


def _attend(worker: WorkerProcess, queue: deque[Job], limits: Limits) -> Generator[Any]:
    """Pass on what a worker has sent, and clear it away where it has died or uses too much.

    What is left of its job then goes to the front of `queue`.
    """
    end = worker.end_of_process()  # looked up first: what it sent before its end is then all there
    for kind, payload in worker.messages():
        if kind == "ready":
            worker.ready, worker.failed_starts = True, 0
        elif kind == "broken":
            worker.broken = f": {payload}"
        elif kind == "warning":
            warnings.warn(payload, stacklevel=2)
        elif kind == "raised":
            raise payload
        else:
            if kind == "done":
                worker.job = None
            yield payload
    reason, too_long = f"the worker process {end}", False
    if not end and worker.runs_too_long(limits):
        reason, too_long = f"it ran longer than {limits.seconds:g} s and was stopped", True
    elif not end and worker.is_too_large(limits):
        reason = f"the worker process grew beyond {limits.memory / 1e9:g} GB of memory"
    elif not end:
        return
    job, finished, was_ready = worker.job, worker.finished, worker.ready
    worker.stop()
    if job is not None:
        running, rest = split(job, finished)
        if rest is not None:
            queue.appendleft(rest)
        if running is not None:
            yield Died(running, reason, too_long)
    elif not was_ready:
        _note_failed_start(worker, f"it {end}{worker.broken}")


def _note_failed_start(worker: WorkerProcess, why: str) -> None:
    worker.failed_starts += 1
    if worker.failed_starts == STARTS:
        warnings.warn(f"a worker process cannot start: {why}", stacklevel=2)
