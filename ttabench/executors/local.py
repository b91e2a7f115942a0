"""Run jobs on this machine in worker processes. The sweep continues if a worker is killed."""

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

from ttabench.errors import forward_warnings
from ttabench.executors import Died, Job
from ttabench.malloc import keep_freed_memory
from ttabench.worker_state import WorkerState


def run(jobs: Sequence[Job], workers: int) -> Generator[Any]:
    """Run `jobs` on `workers` processes of one thread each.

    With one thread per process, numbers are bitwise equal for any number of workers. If a worker is killed,
    the pool is started again, and the jobs that were running are repeated one at a time. So the job that
    kills its worker is identified.
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
    """Run `todo`, from its end, until it is empty or a worker dies; then `lost` gets the running jobs."""
    context = mp.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, context, _start, (send,))
    running: dict[Future[Any], Job] = {}
    try:
        while (todo or running) and not lost:
            while todo and len(running) < workers:
                try:
                    future = pool.submit(_work, todo[-1])
                except BrokenProcessPool:  # a worker just died; the job stays in `todo`
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
    """Stop at once: running jobs are lost, stored results remain."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(5)


_send: Connection | None = None
_state = WorkerState()  # of this worker process; empty in the process that starts workers
MAX_WARNING = 900  # characters: a pipe takes at most 4096 bytes in one write


def _start(send: Connection) -> None:
    global _send
    _send = send
    forward_warnings(lambda warning: send.send(type(warning)(str(warning)[:MAX_WARNING])))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    keep_freed_memory()
    import torch

    torch.set_num_threads(1)


def _leave_with_parent() -> None:
    """End this worker when its parent process ends, also if the parent was killed."""
    if (parent := mp.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _work(job: Job) -> Any:
    # One message is one short write to the pipe, so a killed worker leaves no lock behind.
    assert _send is not None
    return job(_send.send, _state)
