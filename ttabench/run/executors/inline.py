"""Run jobs in this process, one after the other: for debugging and for tests."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from ttabench.run.executors import Job
from ttabench.run.kept_objects import WorkerState


class Stopped(BaseException):
    """Raised in a job whose events are no longer read."""


def run(jobs: Sequence[Job], workers: int = 0) -> Generator[Any]:
    """Run `jobs` with one CPU thread, as every worker does, so that the numbers are the same.

    The jobs run in a separate thread, so events arrive immediately. After the generator is closed or
    interrupted, the job ends at its next event.
    """
    state = WorkerState()
    try:
        for job in jobs:
            yield from _run(job, state)
    finally:
        state.close()


def _run(job: Job, state: WorkerState) -> Generator[Any]:
    import torch

    events: SimpleQueue[Any] = SimpleQueue()
    end, stopped = object(), threading.Event()

    def emit(event: Any) -> None:
        if stopped.is_set():
            raise Stopped
        events.put(event)

    with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        future = pool.submit(job, emit, state)
        future.add_done_callback(lambda _: events.put(end))
        try:
            while (event := events.get()) is not end:
                yield event
        finally:
            stopped.set()
    yield future.result()
