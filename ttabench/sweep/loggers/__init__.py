"""Results of a running sweep, handed on to TensorBoard, MLflow or Weights & Biases. Thin and optional.

A logger is found by name through the entry points :data:`LOGGERS`. Each is a function that takes the results
folder and returns a :class:`Logger`. The store stays the only place that results are read from.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from ttabench.cell import Result
from ttabench.errors import UserError
from ttabench.registry import load

LOGGERS = "ttabench.loggers"


class Logger(Protocol):
    def log(self, values: dict[str, float], step: int) -> None:
        """Values by name; names are made of letters, digits, and ``_ - . /``."""

    def close(self) -> None: ...


class Loggers:
    """Several loggers as one; each gets every result of a sweep as it comes.

    A logger that raises, such as one whose server is gone, gets no more results: a warning says so, and the
    sweep goes on.
    """

    def __init__(self, loggers: Mapping[str, Logger]) -> None:
        self._loggers, self._done, self._failed = dict(loggers), 0, 0

    def add(self, result: Result) -> None:
        """Log a result: its accuracy and seconds with the seed as the step, and how many cells are done."""
        self._done += 1
        self._failed += result.status == "failed"
        values = {}
        if result.accuracy is not None:
            name = name_of(result)
            values = {f"accuracy/{name}": result.accuracy, f"seconds/{name}": result.seconds}
        for name, logger in list(self._loggers.items()):
            try:
                if values:
                    logger.log(values, result.cell.seed)
                logger.log({"sweep/done": float(self._done), "sweep/failed": float(self._failed)}, self._done)
            except Exception as problem:
                del self._loggers[name]
                _warn(name, problem)


def _warn(name: str, problem: Exception) -> None:
    more = "It gets no more of this sweep; the results folder has all results."
    warnings.warn(f"--log {name}: {_reason(problem)}. {more}", stacklevel=3)


def _reason(problem: Exception) -> str:
    """``ConnectionError: no route``; the first line alone."""
    lines = str(problem).strip().splitlines()
    return ": ".join([type(problem).__name__, *lines[:1]]).rstrip(". ")


def check_loggers(names: Iterable[str]) -> None:
    """Raises UserError for an unknown logger. Nothing is opened."""
    for name in names:
        load(LOGGERS, name, "logger")


@contextmanager
def open_loggers(names: Iterable[str], folder: Path) -> Iterator[Loggers]:
    """The loggers registered under these names.

    Raises UserError for one that is unknown, not installed, or cannot be started.
    """
    with ExitStack() as stack:
        loggers: dict[str, Logger] = {}
        for name in names:
            start = load(LOGGERS, name, "logger")
            try:
                loggers[name] = start(folder)
            except UserError:
                raise
            except Exception as problem:
                raise UserError(f"--log {name} cannot be started: {_reason(problem)}.") from problem
            stack.callback(_close, name, loggers[name])
        yield Loggers(loggers)


def _close(name: str, logger: Logger) -> None:
    try:
        logger.close()
    except Exception as problem:
        _warn(name, problem)


def name_of(result: Result) -> str:
    """``tent/resnet18/digits-c/fog-5``, with ``_`` for what names may not have."""
    cell = result.cell
    shift = f"{cell.corruption}-{cell.severity}" if cell.severity else cell.corruption
    parts = (cell.label, cell.arch, cell.dataset, shift)
    return "/".join("".join(c if c.isalnum() or c in "-." else "_" for c in part) for part in parts)
