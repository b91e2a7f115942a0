"""Results of a running sweep, handed on to TensorBoard, MLflow or Weights & Biases. Thin and optional.

A logger is found by name through the entry points :data:`LOGGERS`. Each is a function that takes the results
folder and returns a :class:`Logger`. The store stays the only place that results are read from.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from ttabench.cell import Cell, Result, shift_name
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
        self._names: Mapping[str, str] = {}

    def expect(self, cells: Iterable[Cell]) -> None:
        """All cells of the sweep, before the first result: they decide what their names have to say."""
        if self._loggers:
            self._names = names_of(cells)

    def add(self, result: Result) -> None:
        """Log a result: its accuracy and seconds with the seed as the step, and how many cells are done."""
        self._done += 1
        self._failed += result.status == "failed"
        values = {}
        if result.accuracy is not None:
            name = self._names.get(result.cell.cell_id) or name_of(result.cell)
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
    more = "No more results of this sweep are sent to it; the results folder has all results."
    warnings.warn(f"--log {name}: {_reason(problem)}. {more}", stacklevel=3)


def _reason(problem: Exception) -> str:
    """``ConnectionError: no route``; the first line alone."""
    lines = str(problem).strip().splitlines()
    return ": ".join([type(problem).__name__, *lines[:1]]).rstrip(". ")


def imported(name: str, module: str) -> Any:
    """The module that a logger needs. Raises UserError where it is missing."""
    try:
        return import_module(module)
    except ImportError as problem:
        raise UserError(f"--log {name} needs a package ({problem}); pip install {name}.") from None


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


def name_of(cell: Cell, apart: Iterable[str] = ()) -> str:
    """``tent/resnet18/digits-c/fog-5``, then what tells it `apart`; ``_`` for what names may not have."""
    parts = (cell.label, cell.arch, cell.dataset, shift_name(cell.corruption, cell.severity), *apart)
    return "/".join("".join(c if c.isalnum() or c in "-." else "_" for c in part) for part in parts)


def names_of(cells: Iterable[Cell]) -> dict[str, str]:
    """The name of each cell by its id; cells that differ in more than their seed have different names.

    ``tent/resnet18/digits-c/fog-5/mode-offline``: the parts of the protocol in which cells differ that would
    have one name, and their weights.
    """
    alike: dict[str, list[tuple[Cell, dict[str, str]]]] = {}
    for cell in cells:
        protocol = {key: str(value) for key, value in asdict(cell.protocol).items()}
        facts = {**protocol, "weights": cell.checkpoint[:8]}
        alike.setdefault(name_of(cell), []).append((cell, facts))
    names = {}
    for group in alike.values():
        differing = [key for key in group[0][1] if len({facts[key] for _, facts in group}) > 1]
        for cell, facts in group:
            names[cell.cell_id] = name_of(cell, [f"{key}-{facts[key]}" for key in differing])
    return names
