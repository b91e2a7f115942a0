"""Run a sweep from its options to its last cell: plan, train what is missing, share out, measure, store."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from ttabench.cell import Cell
from ttabench.data.catalog import opened_folders
from ttabench.errors import UserError, counted, printable
from ttabench.measure.torch_defaults import matrix_products
from ttabench.method.spelling import split_list
from ttabench.models.trained_model import note_on_mirrors
from ttabench.run.cell_group import CellGroup
from ttabench.run.executors import NO_LIMITS, Engine, open_engine
from ttabench.run.executors.cluster import logs_of
from ttabench.run.executors.workers import own_gpu
from ttabench.store import Store
from ttabench.store.folder_readme import write_readme
from ttabench.store.new_records import sizes
from ttabench.sweep.agenda import make_agenda, make_groups, plan_rows, record_not_applicable
from ttabench.sweep.draft import Draft, make_draft
from ttabench.sweep.grid import Grid
from ttabench.sweep.hand_over import hand_over
from ttabench.sweep.loggers import open_loggers
from ttabench.sweep.options_to_grid import device_memory, executor_setup, warn_of_gpu_options
from ttabench.sweep.other_sweeps import with_other_code
from ttabench.sweep.plan import Planned
from ttabench.sweep.progress.follow import follow
from ttabench.sweep.progress.outlook import outlook
from ttabench.sweep.progress.training import train_all
from ttabench.sweep.run import run
from ttabench.sweep.shard import WHOLE, Shard, take_shard
from ttabench.sweep.sweep_file import keep
from ttabench.sweep.train_sources import TrainJob
from ttabench.system.environment import pick_device
from ttabench.system.work_claims import SILENT, WorkClaims


@dataclass(frozen=True)
class Finished:
    """A sweep that ran to its end: where its results are, its cells, and those that failed.

    shard        which slice of the sweep it was.
    whole        cells of all slices.
    other_code   how many of its cells were measured with other code meanwhile.
    """

    store: Store
    cells: frozenset[str]
    failed: list[Cell]
    shard: Shard
    whole: int
    other_code: int

    @property
    def unfinished(self) -> int:
        """How many cells failed or were measured with other code."""
        return len(self.failed) + self.other_code

    @property
    def warning(self) -> str:
        """One sentence on cells that were measured with other code; "" without any."""
        if not self.other_code:
            return ""
        return (
            f"{self.other_code} of these cells {'was' if self.other_code == 1 else 'were'} measured with "
            "other code, by another sweep or before files changed; run the same command again."
        )


def run_cells(
    grid: Grid,
    options: Mapping[str, Any],
    *,
    extend: bool,
    fail_fast: bool = False,
    begun: Mapping[str, int] | None = None,
) -> Finished:
    """Train what is missing and run what remains, with progress on stderr.

    options   as `sweep.option_table.DEFAULTS` has them; those that say how the sweep runs are read here.
    begun     of a sweep of another process, which has planned it and in which this one takes part: what
              :func:`ttabench.sweep.hand_over.hand_over` gives as its start.
    """
    console, draft = console_of_errors(), make_draft(grid, options, extend=extend)
    setup, memory, first = executor_setup(options), device_memory(options), begun is None
    engine, logs = open_engine(str(options["executor"]), setup), logs_of(setup)
    warn_of_gpu_options(options, engine.device)
    here = own_gpu(engine.device if options["executor"] == "local" else pick_device("auto"))
    known, sources = draft.ratios(here, lambda text: None, dry_run=True), draft.sources(here)
    whole = draft.cells(sources, known)
    if options["executor"] == "local":
        for precision in {item.cell.protocol.precision for item in whole}:
            check_precision(precision, here)
    store = Store(draft.out)
    store.make_folder(draft.fields, extend=draft.extend)
    with ExitStack() as stack:
        claims = _claim(store, stack)
        asked = _join(draft, store, claims, stack, console) if first else None
        loggers = stack.enter_context(open_loggers(split_list(str(options["log"])), store.root))
        trains = bool(draft.untrained) and not all(item.unmet for item in whole)
        if trains:
            with claims.alone("training", _waiting(console, "it trains source classifiers")):
                trainer = open_engine(str(options["executor"]), replace(setup, limits=NO_LIMITS))
                _train(draft, trainer, console, logs)
            sources = draft.sources(here)
        if trains or known.unknown:
            with claims.alone("pace", _waiting(console, "it measures compute ratios")):
                whole = draft.cells(sources, draft.ratios(here, console.print))
        loggers.expect(item.cell for item in whole)
        planned = take_shard(whole, draft.shard)
        start = sizes(store.root) if begun is None else begun
        agenda = make_agenda(planned, store, draft.overwrite, draft.scores)
        if draft.recompute and first:
            from ttabench.run.recomputing import check_networks

            check_networks(agenda.todo)
        command: tuple[str, ...] = ()
        if asked and engine.by_command and agenda.todo:
            command = hand_over(asked, options, draft.shard, start, logs, setup.folder)
        like = CellGroup(
            (), store.root.absolute(), engine.device, memory, draft.scores, tuple(start.items()), command,
            per_gpu=engine.per_gpu, recompute=draft.recompute, folders=tuple(opened_folders.items()),
        )  # fmt: skip
        groups = make_groups(agenda.todo, planned, like, engine.workers)
        if first:
            with claims.alone("plan"):
                store.write_plan(plan_rows(whole), extend=draft.extend)
                record_not_applicable(agenda.not_applicable, store, draft.overwrite)
        for line in (*_slice(draft.shard, planned, whole), *outlook(draft.sweep, agenda, store)):
            console.print(line)
        running = run(
            groups, store, engine.run, engine.workers, claims=claims, start=start, fail_fast=fail_fast,
            patience=math.inf if first else SILENT + 10,
        )  # fmt: skip
        try:
            with closing(running) as events:
                failed = agenda.failed + follow(events, groups, engine.workers, loggers)
        except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
            console.print(_interrupted(draft))
            raise
        finally:
            if first:
                write_readme(store)
    again = agenda.todo if first and draft.overwrite in ("stale", "always") else ()
    return Finished(
        store, frozenset(item.cell.cell_id for item in planned), failed, draft.shard, len(whole),
        with_other_code(again, store, start),
    )  # fmt: skip


def _claim(store: Store, stack: ExitStack) -> WorkClaims:
    """The claims of this sweep, also in the folder that has its shards, so that no merge replaces them."""
    claims = stack.enter_context(WorkClaims(store.root, "sweep"))
    for folder in store.linked_to():
        with stack.enter_context(WorkClaims(folder, "sweep")).alone("plan"):
            pass  # a merge there has ended
    claims.sweep_up()  # what killed processes left
    return claims


def _join(draft: Draft, store: Store, claims: WorkClaims, stack: ExitStack, console: Console) -> Path:
    """Make a sweep one of its folder, and name the others that run there. Returns the sweep file it keeps."""
    with claims.alone("plan"):  # of two sweeps that start together, one joins the other
        store.join(draft.fields, extend=draft.extend)
        kept = keep(draft.file, draft.out)
    claims.forget_losses()
    stack.callback(claims.forget_losses)
    if others := claims.others("sweep"):
        where = ", ".join(lease.where for lease in others)
        # Whether a process of another machine lives is known only after a while.
        verb = "runs" if any(lease.here for lease in others) else "may run"
        console.print(f"Another sweep {verb} in this folder ({where}). This one takes cells that are free.")
    return kept


def _slice(shard: Shard, planned: Sequence[Planned], whole: Sequence[Planned]) -> Iterator[str]:
    """One line on the slice that this process measures, if it is one."""
    if shard != WHOLE:
        yield f"Slice {shard[0] + 1} of {shard[1]}: {len(planned)} of the {counted(len(whole), 'cell')}."


def _interrupted(draft: Draft) -> str:
    anew = "begins again, because of --overwrite always"
    then = anew if draft.overwrite == "always" else "goes on from there"
    kept = f"What is finished is stored in {printable(str(draft.out))}"
    return f"\nInterrupted. {kept}; the same command {then}."


def check_precision(precision: str, device: str) -> None:
    """Raises UserError for a precision that the device does not have: each of its cells would fail."""
    with matrix_products(precision, device):
        pass


def _train(draft: Draft, trainer: Engine, console: Console, logs: Path) -> None:
    """Train what is not trained. Raises UserError where that fails."""
    missing = draft.untrained
    if not missing:  # another sweep has just done it
        return
    console.print(f"No source classifier yet for {', '.join(map(str, missing))}: training.")
    if note := note_on_mirrors(missing):
        console.print(note)
    jobs = [TrainJob(model.name, model.dataset.name, trainer.device) for model in missing]
    try:
        train_all(jobs, trainer.run, trainer.workers)
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
        console.print(
            "\nInterrupted while training; no cell was run yet. Trained classifiers are kept; "
            "the same command trains the others and goes on."
        )
        raise
    if still := draft.untrained:  # an engine that runs commands does not see why
        raise UserError(f"no classifier was trained for {', '.join(map(str, still))}; see {logs}.")


def _waiting(console: Console, why: str) -> Callable[[list[str]], None]:
    """What says that this sweep waits for another process, and why."""
    return lambda where: console.print(f"Waiting for {', '.join(where)}: {why}.")


def console_of_errors() -> Console:
    return Console(file=sys.stderr, emoji=False, highlight=False, soft_wrap=True, markup=False)
