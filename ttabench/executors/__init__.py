"""Where jobs run.

An executor is one function, ``run(jobs, workers)``: an iterator over whatever the jobs emit while they
run and return when they end, as it comes, and over :class:`Died` for those that took their worker
down. A job is any picklable callable that takes ``emit`` and the :class:`WorkerState` of its worker.
An event may have an attribute ``cell``, the name of the cell it is about; :class:`Limits` hold per cell.
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
    """A job that took its worker down, and the reason as a sentence without a full stop."""

    job: Any
    reason: str


@dataclass(frozen=True)
class Limits:
    """What a cell may use before its worker is killed.

    seconds   wall-clock time, preparation of the method included; 0 = unlimited.
    memory    resident memory of the worker process in bytes; 0 = unlimited.
    """

    seconds: float = 0.0
    memory: int = 0


NO_LIMITS = Limits()
