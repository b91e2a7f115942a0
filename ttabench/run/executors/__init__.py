"""Where jobs run.

An :data:`Executor` is one function, ``run(jobs, workers)``: an iterator over whatever the jobs emit while
they run and return when they end, as it comes, and over :class:`Died` for those that took their worker
down. A job is any picklable callable that takes ``emit`` and the :class:`WorkerState` of its worker. It may
also have

    split(finished)   (what it was at, what is left after that) when its worker died, see :func:`split`;
    cells             what it computes and stores, see :class:`ttabench.run.cell_group.CellGroup`;
    command           arguments of ``ttabench`` that do the same on another machine, for an engine with
                      `by_command`. For the jobs of a sweep it is one: processes with it share the cells.

An event may have an attribute ``cell``, the name of the cell it is about; :class:`Limits` hold per cell. It
may have an attribute ``finished``, the ids of cells whose results are stored.

Engines are found by name through the entry points :data:`EXECUTORS`: each is a function that takes a
:class:`Setup` and returns an :class:`Engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from ttabench.errors import UserError
from ttabench.registry import load
from ttabench.run.kept_objects import WorkerState

EXECUTORS = "ttabench.executors"


class Job(Protocol):
    def __call__(self, emit: Callable[[Any], None], state: WorkerState) -> Any: ...


Executor = Callable[[Sequence[Any], int], Generator[Any]]


@dataclass(frozen=True)
class Died:
    """A job that took its worker down, and the reason as a sentence without a full stop.

    too_long   whether its worker was stopped because a cell used up its time.
    """

    job: Any
    reason: str
    too_long: bool = False


@dataclass(frozen=True)
class Limits:
    """What a cell may use before its worker is killed.

    seconds   wall-clock time, preparation of the method included; 0 = unlimited.
    memory    resident memory of the worker process in bytes, without pages of files; 0 = unlimited.
    """

    seconds: float = 0.0
    memory: int = 0


NO_LIMITS = Limits()


@dataclass(frozen=True)
class Setup:
    """How the user wants an engine to run.

    workers   a number, or ``auto``: what the engine finds.
    device    of the workers: cpu, cuda, cuda:1, or ``auto``.
    per_gpu   workers on each GPU.
    folder    a folder that all machines share, an absolute path; the results folder of a sweep.
    options   of this engine alone, by name; see `take_options`.
    name      of this run, unique: for what a cluster is asked for.
    """

    workers: str = "auto"
    device: str = "auto"
    per_gpu: int = 1
    limits: Limits = NO_LIMITS
    folder: Path = field(default_factory=Path.cwd)
    options: Mapping[str, str] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f"ttabench-{uuid4().hex[:8]}")


@dataclass(frozen=True)
class Engine:
    """An executor, how many workers it has, and the device that its jobs are to use.

    by_command   it runs the `command` of jobs, not the jobs themselves.
    per_gpu      how many workers share a GPU, as far as this process knows; 0 without a GPU.
    """

    run: Executor
    workers: int
    device: str
    by_command: bool = False
    per_gpu: int = 0


def open_engine(name: str, setup: Setup) -> Engine:
    """The engine registered as `name`, ready to run. Raises UserError."""
    engine: Engine = load(EXECUTORS, name, "executor")(setup)
    return engine


def take_options(setup: Setup, executor: str, defaults: Mapping[str, str]) -> dict[str, str]:
    """The options of an engine with their `defaults`. Raises UserError for others."""
    if wrong := sorted(setup.options.keys() - defaults.keys()):
        valid = f"Valid: {', '.join(defaults)}." if defaults else "It takes none."
        raise UserError(f"--executor-options {wrong[0]}: the executor {executor} has no such option. {valid}")
    return {**defaults, **setup.options}


def split(job: Any, finished: Collection[str]) -> tuple[Any, Any]:
    """(what a job was at when its worker died, what is left after that); None where there is nothing."""
    divide = getattr(job, "split", None)
    return (job, None) if divide is None else divide(finished)
