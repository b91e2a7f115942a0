"""Where jobs run.

An executor is a function ``run(jobs, workers)``. It yields the events that jobs emit, their return values,
and :class:`Died` for a job whose worker process was killed. A job is any picklable callable that takes
``emit`` and the :class:`WorkerState` of its worker.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ttabench.worker_state import WorkerState


class Job(Protocol):
    def __call__(self, emit: Callable[[Any], None], state: WorkerState) -> Any: ...


Executor = Callable[[Sequence[Any], int], Generator[Any]]


@dataclass(frozen=True)
class Died:
    """A job whose worker was killed twice, the second time while it ran alone."""

    job: Any
