"""What the engines of clusters have in common: a command in many places, and a process that follows them.

Each place runs the `command` of a job, which is ``ttabench sweep`` on the same results folder. Claims there
divide the cells among the places. The process that the user started computes nothing: it reads the folder.
What runs where, and again after a loss, is up to the cluster.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Collection, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from ttabench.errors import UserError, counted
from ttabench.run.executors import Setup
from ttabench.run.progress_events import CellProgress, Done
from ttabench.store.new_records import NewRecords, result_in, sizes
from ttabench.system.work_claims import FolderProcesses

FOLDER = "tasks"  # of a results folder: what places read, and their logs
POLL = 2.0  # seconds between two looks
PATIENCE = 60.0  # seconds without any place at work after which the user is told, once for each wait

Command = tuple[str, ...]
"""Arguments of ``ttabench``."""


class Places(Protocol):
    """Where commands run.

    rounds   how many tasks each place has, one after the other.
    """

    rounds: int

    @property
    def hint(self) -> str:
        """What they wait for, or where the user sees it."""

    def start(self, commands: Sequence[Command], at_once: int) -> None:
        """Begin to run each command, some at once. Raises UserError where the cluster takes none."""

    def is_open(self) -> bool:
        """Whether any of them runs, or is still to run."""

    def trouble(self) -> str:
        """Why one of them failed, as far as that is known; or ""."""

    def cancel(self) -> None:
        """End all of them."""


def asked_workers(setup: Setup, executor: str) -> int:
    """How many workers are asked for, 0 = auto. Raises UserError for what no cluster takes."""
    if setup.device not in ("auto", "cpu", "cuda"):
        raise UserError(
            f"--device {setup.device}: with --executor {executor}, {executor.capitalize()} chooses the GPU; "
            "use cuda, cpu or auto."
        )
    if setup.workers == "auto":
        return 0
    if not setup.workers.isdecimal() or not int(setup.workers):
        raise UserError(f"--workers {setup.workers}: with --executor {executor} expected auto or 1 or more.")
    return int(setup.workers)


def logs_of(setup: Setup) -> Path:
    """The folder for the logs of the places of one sweep."""
    return setup.folder / FOLDER / setup.name


def run(
    jobs: Sequence[Any], workers: int, *, places: Places, each: int, arguments: Command, setup: Setup
) -> Generator[Any]:
    """Run the commands of `jobs` with further `arguments` in `places` of `each` workers.

    Yields what is stored and how far running cells are, as it comes. Ends when all cells are stored, or no
    place is left and no other process computes any. Raises UserError for cells that are missing then.
    """
    commands = [(*job.command, *arguments) for job in jobs]
    cells = {cell.cell_id for job in jobs for cell in getattr(job, "cells", ())}
    chains = sum(len(getattr(job, "chains", (job,))) for job in jobs)
    wanted = cells - {key for job in jobs for key in getattr(job, "done", ())}
    at_once = min(math.ceil(workers / each), math.ceil(chains / each))
    if cells:  # of one sweep: all commands are the same
        commands = commands[:1] * (at_once * places.rounds)
    start = getattr(jobs[0], "start", None)
    new_records = NewRecords(setup.folder, sizes(setup.folder) if start is None else dict(start))
    left, told = set(wanted), False
    watch, heard = FolderProcesses(setup.folder), time.monotonic()
    try:
        places.start(commands, at_once)
        while True:
            is_open = places.is_open()  # asked first: what an ended place has stored is then there
            before = len(left)
            for key, line in new_records.look():
                if key in cells:
                    left.discard(key)
                    yield Done((result_in(line),))
            claims = [one for one in watch.claims() if one.key in cells and watch.alive(one.lease.name)]
            yield from _progress([one.lease.progress for one in claims], cells)
            if (cells and not left) or not (is_open or claims):
                break
            if claims or len(left) < before:
                heard, told = time.monotonic(), False
            elif cells and not told and time.monotonic() - heard > PATIENCE:
                warnings.warn(f"No cell runs; {places.hint}.", stacklevel=2)
                told = True
            time.sleep(POLL)
    finally:
        places.cancel()
    if left:
        why = f" ({trouble.rstrip('.')})" if (trouble := places.trouble()) else ""
        raise UserError(
            f"{len(left)} of {counted(len(wanted), 'cell')} are missing, and nothing runs any more{why}. "
            f"What is stored is kept; run the same command again to go on. Logs: {logs_of(setup)}"
        )


def _progress(reports: Sequence[Any], cells: Collection[str]) -> Iterator[CellProgress]:
    """How far cells are, from what the leases of their processes say."""
    for report in reports:
        total, seen, scored, right = (report.get(name, 0) for name in ("total", "seen", "scored", "right"))
        cell, doing, key = (report.get(name, "") for name in ("cell", "doing", "key"))
        if key in cells and (total or doing):
            yield CellProgress(cell, total, seen, scored, right, doing, key)


def last_words(log: Path) -> str:
    """The last line of a log that is not empty; "" where there is none."""
    try:
        lines = log.read_text(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
