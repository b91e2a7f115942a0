"""What ``ttabench sweep`` does once its options are read."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ttabench.cell.told_apart import names_of_cells
from ttabench.cli._table import REPORT, screen
from ttabench.errors import counted, printable
from ttabench.registry import load, view
from ttabench.run.executors import EXECUTORS, open_engine
from ttabench.run.executors.workers import own_gpu, pick_workers
from ttabench.store import Store
from ttabench.sweep.agenda import make_agenda
from ttabench.sweep.conduct import console_of_errors, run_cells
from ttabench.sweep.draft import make_draft
from ttabench.sweep.grid import Grid
from ttabench.sweep.options_to_grid import device_memory, executor_setup, out_folder, warn_of_gpu_options
from ttabench.sweep.progress.display import clock
from ttabench.sweep.progress.outlook import counts, notes_on_domains
from ttabench.sweep.shard import WHOLE, take_shard
from ttabench.system.environment import pick_device

if TYPE_CHECKING:
    import pandas as pd


def show_plan(grid: Grid, options: Mapping[str, Any], *, extend: bool) -> None:
    """``--dry-run``: every cell of this slice and what would happen to it.

    Raises UserError for what the sweep would refuse, such as a results folder of another sweep. An executor
    other than local is not opened: what only its cluster or its package knows comes out when the sweep runs.
    """
    draft = make_draft(grid, options, extend=extend)
    device, cluster = _check_executor(options)
    here = own_gpu(device)
    ratios = draft.ratios(here, console_of_errors().print, dry_run=True)
    planned = take_shard(draft.cells(draft.sources(here, measure=False), ratios), draft.shard)
    store = Store.at(draft.out) if Store(draft.out).manifest.exists() else None
    agenda = make_agenda(planned, store, draft.overwrite, draft.scores)
    done = {cell.cell_id for cell in agenda.done}
    failed = {cell.cell_id for cell in agenda.failed}
    console = Console(emoji=False, highlight=False, soft_wrap=True, markup=False)
    for model in draft.untrained:
        console.print(f"train  {model}")
    names = names_of_cells(item.cell for item in planned)
    for item in planned:
        key = item.cell.cell_id
        what = "skip " if item.unmet else "done " if key in done else "failed" if key in failed else "run  "
        console.print(f"{what}  {names[key]}{f'  (n/a: {item.unmet})' if item.unmet else ''}")
    if cluster:
        console.print(cluster)
    console.print(counts(agenda))
    for note in notes_on_domains(draft.sweep):
        console.print(f"Note: {note}")


def _check_executor(options: Mapping[str, Any]) -> tuple[str, str]:
    """Raise UserError for an executor or options of it that the sweep would refuse.

    Returns the device of this process, and a line on the cluster, "" for none. Another executor than local is
    not opened: it may start a cluster, and have GPUs that are not here. Of slurm and ray, what needs no
    cluster is checked.
    """
    name, setup = str(options["executor"]), executor_setup(options)
    device_memory(options)
    if name == "local":
        device = open_engine(name, setup).device
        warn_of_gpu_options(options, device)
        return device, ""
    load(EXECUTORS, name, "executor")
    pick_workers(setup.workers, "cpu", 1)
    if name not in ("slurm", "ray"):
        return pick_device("auto"), ""
    from ttabench.cli._cluster import outlook

    return pick_device("auto"), outlook(name, setup)


def run_sweep(grid: Grid, options: Mapping[str, Any], *, extend: bool, fail_fast: bool) -> int:
    """Run a sweep and print its table. Returns 0 where all is done, see :class:`Finished`."""
    started = time.monotonic()
    finished = run_cells(grid, options, extend=extend, fail_fast=fail_fast)
    if finished.cells:  # a slice of a small sweep may be empty
        frame = finished.store.frame()
        _summary(frame[frame["cell_id"].isin(finished.cells)], finished.store)
    took = clock(time.monotonic() - started)
    out, console = printable(shlex.quote(str(out_folder(options)))), console_of_errors()
    console.print(f"{counted(len(finished.cells), 'cell')}, {len(finished.failed)} failed; {took} in total.")
    if finished.warning:
        console.print(finished.warning)
    if finished.shard != WHOLE:
        index, count = finished.shard
        console.print(
            f"The table above shows only slice {index + 1} of {count}. The state of all "
            f"{counted(finished.whole, 'cell')}: ttabench status {out}"
        )
    console.print(f"Tables and plots of all cells in {out}: ttabench report {out}")
    return finished.unfinished


def _summary(frame: pd.DataFrame, store: Store) -> None:
    """Print the table of a sweep's cells, made by the report that is registered as `terminal`."""
    console = screen(REPORT)
    texts = {name: frame[name].map(printable) for name in ("reason", "alarm")}  # of a method's own code
    console.print(view("terminal")(frame.assign(**texts), store))
    learns = ~frame["adapted"].isin(["", "nothing"])
    adapted = frame.loc[learns, ["method", "arch", "adapted"]].drop_duplicates()
    for _, row in adapted.iterrows():
        console.print(f"{row['method']} on {row['arch']} adapts {row['adapted']}.", markup=False)
