"""What ``ttabench sweep`` does once its options are read."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from ttabench import runner
from ttabench.cell import Result
from ttabench.cli._display import Display, Meter, clock
from ttabench.cli._training import TrainJob, train_all
from ttabench.data.dataset import Dataset
from ttabench.env import pick_device
from ttabench.executors import Executor, inline, local
from ttabench.grid import Grid, Planned, make_config, plan, variants
from ttabench.registry import view
from ttabench.store import Store
from ttabench.worker import Progress


def show_plan(grid: Grid, out: Path, device: str, overwrite: str) -> None:
    """``--dry-run``: every cell and what would happen to it."""
    planned, datasets = _plan(grid, pick_device(device))
    store = Store.at(out) if (out / "sweep.json").exists() else None
    agenda = runner.agenda(planned, store, runner.pick_overwrite(overwrite))
    done = {cell.cell_id for cell in agenda.done}
    failed = {cell.cell_id for cell in agenda.failed}
    console = Console(highlight=False, soft_wrap=True, markup=False)
    for arch, dataset in runner.untrained(grid, datasets):
        console.print(f"train  {arch} on {dataset}")
    for item in planned:
        key = item.cell.cell_id
        what = "skip " if item.unmet else "done " if key in done else "failed" if key in failed else "run  "
        console.print(f"{what}  {item.cell}{f'  (n/a: {item.unmet})' if item.unmet else ''}")
    console.print(_counts(agenda))


def run_sweep(grid: Grid, options: dict[str, Any], *, extend: bool, fail_fast: bool) -> int:
    """Train what is missing, run what remains, print the table. Returns the number of failed cells."""
    started = time.monotonic()
    device = pick_device(options["device"])
    out = Path(options["out"])
    console = Console(file=sys.stderr, highlight=False, soft_wrap=True, markup=False)
    executor: Executor
    planned, datasets = _plan(grid, device)  # mistakes in the command come out before anything is written
    workers = runner.pick_workers(str(options["workers"]), device, len(planned))
    overwrite = runner.pick_overwrite(options["overwrite"])
    store = Store.create(out, grid.to_json(), extend=extend)
    agenda = runner.agenda(planned, store, overwrite)
    executor = local.run if workers else inline.run
    if agenda.todo and (missing := runner.untrained(grid, datasets)):
        console.print(
            f"No source classifier yet for {', '.join(f'{a} on {d}' for a, d in missing)}: training."
        )
        train_all([TrainJob(arch, dataset, device) for arch, dataset in missing], executor, workers)
        planned = plan(grid, runner.targets(grid, datasets, device))
        agenda = runner.agenda(planned, store, overwrite)
    runner.record_not_applicable(agenda.not_applicable, store)
    console.print(_counts(agenda))
    jobs = runner.jobs(agenda.todo, planned, store, device)
    failed = list(agenda.failed)
    try:
        with Display(sum(len(job.cells) for job in jobs), "cells") as display:
            for event in runner.run(jobs, store, executor, workers, fail_fast=fail_fast):
                if isinstance(event, Progress):
                    _show(display, event)
                else:
                    _tell(display, event)
                    failed += [event.cell] if event.status == "failed" else []
    except KeyboardInterrupt:
        console.print(
            f"\nInterrupted. What is finished is stored in {out}; the same command goes on from there."
        )
        raise
    _summary(store, {item.cell.cell_id for item in planned})
    took = clock(time.monotonic() - started)
    console.print(f"{len(planned)} cells in {out}, {len(failed)} failed; {took} in total.")
    console.print(f"Tables and plots: ttabench report {out}")
    return len(failed)


def _plan(grid: Grid, device: str) -> tuple[list[Planned], dict[str, Dataset]]:
    for cls, settings in variants(grid):
        make_config(cls, settings, {})  # a wrong setting is told before any data or weights are fetched
    datasets = runner.open_datasets(grid)
    with Meter("bytes") as meter:
        targets = runner.targets(grid, datasets, device, meter)
    return plan(grid, targets), datasets


def _counts(agenda: runner.Agenda) -> str:
    parts = [f"{agenda.total} cells: {len(agenda.todo)} to run", f"{len(agenda.done)} done"]
    if agenda.failed:
        parts.append(f"{len(agenda.failed)} failed")
    if agenda.not_applicable:
        rows = {(p.cell.label, p.cell.arch, p.unmet) for p in agenda.not_applicable}
        why = "; ".join(f"{label} on {arch}: {unmet}" for label, arch, unmet in sorted(rows))
        parts.append(f"{len(agenda.not_applicable)} n/a ({why})")
    return ", ".join(parts) + "."


def _show(display: Display, event: Progress) -> None:
    if event.scored:
        display.running(
            event.cell, event.seen, event.total, f"{100 * event.right / event.scored:.1f} % so far"
        )
    else:
        passes, at = divmod(event.seen, event.total)
        display.running(event.cell, at, event.total, f"adapting, pass {passes + 1}")


def _tell(display: Display, result: Result) -> None:
    if result.status == "ok":
        note = f"{result.accuracy:.1f} % ({result.seconds:.1f} s)"
        alarm = str(result.details.get("alarm", ""))
        display.finished(str(result.cell), f"{note}, {alarm}" if alarm else note)
    else:
        display.finished(str(result.cell), f"failed: {result.reason}", keep=True)


def _summary(store: Store, cells: set[str]) -> None:
    """The table of this sweep's cells, made by whatever is registered as the terminal view."""
    frame = store.frame()
    frame = frame[frame["cell_id"].isin(cells)]
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120)
    console.print(view("terminal")(frame))
    adapted = frame.loc[frame["adapted"] != "", ["method", "arch", "adapted"]].drop_duplicates()
    for _, row in adapted.iterrows():
        console.print(f"{row['method']} on {row['arch']} adapts {row['adapted']}.", markup=False)
