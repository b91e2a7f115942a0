"""Jobs on this machine, in processes that may die without taking the sweep with them."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import threading
import warnings
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any

from ttabench.errors import tell_warnings
from ttabench.executors import Died, Job
from ttabench.malloc import keep_freed_memory
from ttabench.worker_state import WorkerState


def run(jobs: Sequence[Job], workers: int) -> Generator[Any]:
    """Run `jobs` on `workers` processes of one thread each.

    One thread per process keeps a number the same bit for bit whatever the number of workers. When a
    worker is killed, the pool is started again, and the jobs it may have been running are repeated
    one at a time, so that blame is certain.
    """
    queue, suspects = list(reversed(jobs)), list[Job]()
    while queue or suspects:
        alone = bool(suspects)
        todo = suspects if alone else queue
        lost: list[Job] = []
        yield from _pool(todo, 1 if alone else workers, lost)
        if alone and lost:
            yield Died(lost[0])
        else:
            suspects += lost


def _pool(todo: list[Job], workers: int, lost: list[Job]) -> Generator[Any]:
    """Work through `todo` (from its end) until it is empty or a worker dies; `lost` gets what was running."""
    context = mp.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, context, _start, (send,))
    running: dict[Future[Any], Job] = {}
    try:
        while (todo or running) and not lost:
            while todo and len(running) < workers:
                try:
                    future = pool.submit(_work, todo[-1])
                except BrokenProcessPool:  # a worker died just now; the job stays in `todo`
                    lost += running.values()
                    return
                running[future] = todo.pop()
            finished, _ = wait(running, timeout=0.1, return_when=FIRST_COMPLETED)
            while receive.poll():
                event = receive.recv()
                if isinstance(event, Warning):
                    warnings.warn(event, stacklevel=2)
                else:
                    yield event
            for future in finished:
                job = running.pop(future)
                try:
                    yield future.result()
                except BrokenProcessPool:
                    lost.append(job)
        lost += running.values() if lost else ()
    finally:
        _stop(pool)


def _stop(pool: ProcessPoolExecutor) -> None:
    """End now: whatever is running is lost, whatever is stored stays."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(5)


_send: Connection | None = None
_state = WorkerState()  # of this worker process; empty in the process that starts workers
LONGEST = 900  # characters of a warning: less than the 4096 bytes that a pipe takes in one piece


def _start(send: Connection) -> None:
    global _send
    _send = send
    tell_warnings(lambda warning: send.send(type(warning)(str(warning)[:LONGEST])))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    keep_freed_memory()
    import torch

    torch.set_num_threads(1)


def _leave_with_parent() -> None:
    """A parent that is killed outright cannot end its workers; they notice."""
    if (parent := mp.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _work(job: Job) -> Any:
    # One message is one short write to the pipe, so no lock is held that a kill could leave behind.
    assert _send is not None
    return job(_send.send, _state)
