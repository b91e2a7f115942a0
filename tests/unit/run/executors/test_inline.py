"""Jobs in this process: their events come while they run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ttabench.run.executors import inline
from ttabench.run.kept_objects import WorkerState


def test_events_are_there_before_the_job_ends() -> None:
    read = threading.Event()

    def waits(emit: Callable[[Any], None], state: WorkerState) -> str:
        emit(torch.get_num_threads())
        assert read.wait(300)
        emit("later")
        return "done"

    events = inline.run([waits])
    assert next(events) == 1  # the number of threads
    read.set()
    assert list(events) == ["later", "done"]


def test_a_closed_generator_stops_the_job_at_its_next_event() -> None:
    begun: list[int] = []
    ended: list[int] = []

    def goes_on(emit: Callable[[Any], None], state: WorkerState) -> None:
        begun.append(1)
        for number in range(100_000):
            emit(number)
            time.sleep(0.001)
        ended.append(1)

    events = inline.run([goes_on, goes_on])
    next(events)
    events.close()
    assert (begun, ended) == ([1], [])


def test_what_a_job_raises_comes_through() -> None:
    def broken(emit: Callable[[Any], None], state: WorkerState) -> None:
        emit("first")
        raise ZeroDivisionError

    events = inline.run([broken])
    assert next(events) == "first"
    with pytest.raises(ZeroDivisionError):
        next(events)
