"""What runs inside a worker process: jobs come through a pipe, events and results go back through it."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, Literal

from ttabench.errors import forward_warnings
from ttabench.measure.torch_defaults import default_kernels, default_modes
from ttabench.run.kept_objects import WorkerState
from ttabench.system.garbage_collection import paused
from ttabench.system.malloc import keep_freed_memory
from ttabench.system.nonblocking import NonBlocking

Kind = Literal["ready", "broken", "warning", "event", "done", "raised"]
"""What a message is: (kind, payload). ``broken`` has the reason why the worker cannot start."""


class Link:
    """The worker's end of the pipe. Any thread may send; a message is never mixed with another."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._lock = pipe, threading.Lock()

    def send(self, kind: Kind, payload: Any = None) -> None:
        with self._lock:
            try:
                self._pipe.send((kind, payload))
            except BrokenPipeError:  # the parent was killed
                os._exit(1)

    def receive(self) -> Any:
        return self._pipe.recv()


def main(pipe: Connection, environment: Mapping[str, str]) -> None:
    """Work until the parent closes the pipe.

    environment   variables of this worker alone, such as CUDA_VISIBLE_DEVICES. The process was started with
                  them; here, those that it cannot have are an error.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    if hasattr(signal, "pthread_sigmask"):  # the parent has blocked it until now
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    link = Link(pipe)
    # What a method prints is not worth a result: it neither waits for a reader nor needs one.
    sys.stdout, sys.stderr = (NonBlocking.over(stream, needed=False) for stream in (sys.stdout, sys.stderr))
    try:
        os.environ.update(environment)
        forward_warnings(lambda warning: link.send("warning", warning))
        keep_freed_memory()
        with paused():  # all that an import makes stays
            import torch

        torch.set_num_threads(1)
    except Exception as problem:
        link.send("broken", f"{type(problem).__name__}: {problem}")
        return
    with default_modes(), default_kernels():  # the main script of the user has run in this process
        link.send("ready")
        _work(link)


def _work(link: Link) -> None:
    """Do jobs until the parent closes the pipe."""
    state = WorkerState()
    while True:
        try:
            job = link.receive()
        except EOFError:
            break
        except Exception as problem:  # the job's code cannot be imported here
            link.send("raised", _picklable(problem))
            continue
        try:
            result = job(lambda event: link.send("event", event), state)
            link.send("done", result)
        except Exception as problem:
            link.send("raised", _picklable(problem))
    state.close()


def _picklable(problem: Exception) -> Exception:
    """The exception with its traceback as a note; a RuntimeError where its class cannot be sent."""
    import pickle

    problem.add_note("".join(traceback.format_exception(problem)))
    try:
        pickle.loads(pickle.dumps(problem))
    except Exception:
        return RuntimeError(f"{type(problem).__name__}: {problem}")
    return problem


def _leave_with_parent() -> None:
    """A parent that is killed outright cannot end its workers; they notice."""
    if (parent := mp.parent_process()) is not None:
        parent.join()
        os._exit(1)
