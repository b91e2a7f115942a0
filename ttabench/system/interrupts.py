"""Ctrl-C while processes are started, and once more while a command ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


def leave_at_once(*_: object) -> None:
    """A handler of Ctrl-C that waits for nothing."""
    os._exit(128 + signal.SIGINT)


@contextmanager
def ctrl_c_waits() -> Iterator[None]:
    """Ctrl-C reaches this process after the block, and never those that it starts inside it."""
    if not hasattr(signal, "pthread_sigmask"):  # as on Windows
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # Python starts it before the first process, and unblocks SIGINT then
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
