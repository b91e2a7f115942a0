"""Measure the tasks of ``ttabench paper``, one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ttabench.errors import UserError, counted
from ttabench.paper.asked import ALONE, Asked
from ttabench.paper.experiments import Task, network_of, stands_for, title
from ttabench.paper.page_facts import PageFacts
from ttabench.paper.ready import prepared
from ttabench.sweep.conduct import console_of_errors, run_cells
from ttabench.sweep.grid import Grid
from ttabench.sweep.option_table import DEFAULTS


def measure(tasks: Sequence[Task], asked: Asked, facts: PageFacts) -> int:
    """Measure each task, with facts kept after each; the number of cells that failed."""
    failed, measured = 0, list[tuple[bool, Grid]]()
    for number, task in enumerate(tasks, 1):
        what = f"{title(task.experiment)} {task.arch} on {task.dataset}"
        console_of_errors().print(f"\n[{number} of {len(tasks)}] {what}")
        failed += _one(task, asked, facts, measured, alone=len(tasks) == 1)
        facts.keep(asked.out)
    return failed


def _one(
    task: Task, asked: Asked, facts: PageFacts, measured: list[tuple[bool, Grid]], *, alone: bool
) -> int:
    """Measure a task, unless the same is `measured`; how many cells failed, or 1 if it is left out.

    Raises UserError where it cannot be measured and is `alone`; else the others go on, and facts say why.
    """
    published = stands_for(task.dataset) or task.dataset
    place, failed = f"{task.experiment}, {network_of(task.arch)} on {published}", 0
    try:
        ready = prepared(task, asked, facts)
        facts.keep(asked.out)  # the page of what is stored needs them, wherever the task is stopped
        same = (ready.experiment == ALONE, ready.grid)
        known = same in measured  # in a rehearsal, several tasks become one
        if asked.small:
            what = f"{ready.arch} on {ready.dataset}"
            console_of_errors().print(f"A small form of it: {what}{', as above' if known else ''}.")
        if not known:
            failed = _measure(ready, asked)
            measured.append(same)
    except UserError as problem:
        if alone:
            raise
        facts.left_out[place] = f"{task.experiment}, {task.arch} on {task.dataset}: {problem}"
        console_of_errors().print(f"Left out: {problem}")
        return 1
    facts.left_out.pop(place, None)
    return failed


def _measure(task: Task, asked: Asked) -> int:
    folder = asked.folder_of(task)
    workers = "1" if task.experiment == ALONE and asked.workers != "0" else asked.workers
    options: dict[str, Any] = {
        **DEFAULTS, "out": str(folder), "workers": workers, "device": asked.device,
        "per_gpu": 1 if task.experiment == ALONE else asked.per_gpu,
    }  # fmt: skip
    finished = run_cells(task.grid, options, extend=True)
    counts = f"{counted(len(finished.cells), 'cell')}, {len(finished.failed)} failed."
    console_of_errors().print(" ".join(filter(None, (counts, finished.warning))))
    return finished.unfinished
