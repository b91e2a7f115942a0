"""Jobs in this process: their events come while they run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ttabench.run.executors import inline
from ttabench.run.kept_objects import WorkerState


class Waits:
    """Emits 1, then goes on only when told to."""

    def __init__(self) -> None:
        self.go_on, self.stopped = threading.Event(), False

    def __call__(self, emit: Callable[[Any], None], state: WorkerState) -> str:
        emit(torch.get_num_threads())
        assert self.go_on.wait(20)
        try:
            emit("later")
        except BaseException:
            self.stopped = True
            raise
        return "done"


def test_events_are_there_before_the_job_ends() -> None:
    job = Waits()
    events = inline.run([job])
    assert next(events) == 1  # the number of threads
    job.go_on.set()
    assert list(events) == ["later", "done"]
    assert not job.stopped


def test_a_closed_generator_stops_the_job_at_its_next_event() -> None:
    job = Waits()
    events = inline.run([job, job])
    next(events)
    threading.Timer(0.1, job.go_on.set).start()
    events.close()
    assert job.stopped


def test_what_a_job_raises_comes_through() -> None:
    def broken(emit: Callable[[Any], None], state: WorkerState) -> None:
        emit("first")
        raise ZeroDivisionError

    events = inline.run([broken])
    assert next(events) == "first"
    with pytest.raises(ZeroDivisionError):
        next(events)
