"""Run a sweep from its options to its last cell: plan, train what is missing, share out, measure, store."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from ttabench.cell import Cell
from ttabench.errors import UserError, counted, printable
from ttabench.method.spelling import split_list
from ttabench.models.model import Model
from ttabench.run.executors import NO_LIMITS, Engine, open_engine
from ttabench.run.executors.cluster import logs_of
from ttabench.run.executors.workers import own_gpu
from ttabench.store import Store
from ttabench.store.folder_readme import write_readme
from ttabench.store.new_records import sizes
from ttabench.sweep.agenda import (
    make_agenda,
    make_groups,
    pick_overwrite,
    pick_scores,
    plan_rows,
    record_not_applicable,
)
from ttabench.sweep.compute_ratio import Ratios
from ttabench.sweep.grid import Grid
from ttabench.sweep.hand_over import hand_over, read_begun
from ttabench.sweep.loggers import check_loggers, open_loggers
from ttabench.sweep.options import device_memory, executor_setup, out_folder
from ttabench.sweep.plan import Source, find_sources, plan
from ttabench.sweep.progress.display import Meter
from ttabench.sweep.progress.follow import follow
from ttabench.sweep.progress.outlook import outlook
from ttabench.sweep.progress.training import train_all
from ttabench.sweep.resolve import Sweep, resolve
from ttabench.sweep.run import run
from ttabench.sweep.shard import WHOLE, Shard, pick_shard, take_shard
from ttabench.sweep.sweep_file import is_one_of_several, keep
from ttabench.sweep.train_sources import TrainJob
from ttabench.system.environment import pick_device
from ttabench.system.work_claims import SILENT, WorkClaims


def to_train(sweep: Sweep, shard: Shard) -> list[Model]:
    """The classifiers to train. Raises UserError for a slice, whose machines would train different ones."""
    missing = untrained(sweep)
    if missing and shard != WHOLE:
        raise UserError(
            f"--shard needs trained classifiers, and {', '.join(map(str, missing))} is not trained yet; "
            "run ttabench train first, once."
        )
    return missing


@dataclass(frozen=True)
class Finished:
    """A sweep that ran to its end: where its results are, its cells, and those that failed.

    shard   which slice of the sweep it was.
    whole   cells of all slices.
    """

    store: Store
    cells: frozenset[str]
    failed: list[Cell]
    shard: Shard
    whole: int


def run_cells(
    grid: Grid,
    options: Mapping[str, Any],
    *,
    extend: bool,
    fail_fast: bool = False,
    begun: Mapping[str, int] | None = None,
) -> Finished:
    """Train what is missing and run what remains, with progress on stderr.

    options   as `sweep.options.DEFAULTS` has them; those that say how the sweep runs are read here.
    begun     of a sweep of another process, which has planned it and in which this one takes part: what
              :func:`ttabench.sweep.hand_over.hand_over` gives as its start.
    """
    out = out_folder(options)
    console = console_of_errors()
    sweep = resolve(grid)  # mistakes in the command come out before anything is fetched or written
    log = split_list(str(options["log"]))
    check_loggers(log)
    shard = pick_shard(str(options["shard"]))
    missing = to_train(sweep, shard)
    setup, memory = executor_setup(options), device_memory(options)
    engine, logs = open_engine(str(options["executor"]), setup), logs_of(setup)
    here = own_gpu(engine.device if options["executor"] == "local" else pick_device("auto"))
    elsewhere = measures_elsewhere(shard, str(options["executor"]))
    known = Ratios(grid, out, here, lambda text: None, elsewhere=elsewhere, dry_run=True)
    sources = sources_of(sweep, here)
    whole = plan(sweep, sources, known)
    overwrite, scores = pick_overwrite(str(options["overwrite"])), pick_scores(str(options["scores"]))
    store, extend = Store(out), extend or is_one_of_several(grid, out)
    store.make_folder(grid.to_json(), extend=extend)
    with ExitStack() as stack:
        claims = stack.enter_context(WorkClaims(store.root, "sweep"))
        claims.sweep_up()  # what killed processes left
        if begun is None:
            with claims.alone("plan"):  # of two sweeps that start together, one joins the other
                store.join(grid.to_json(), extend=extend)
                keep(grid, out)
            claims.forget_losses()
            stack.callback(claims.forget_losses)
            _greet(claims, console)
        loggers = stack.enter_context(open_loggers(log, store.root))
        trains = bool(missing) and not all(item.unmet for item in whole)
        if trains:
            with claims.alone("training", _waiting(console, "it trains source classifiers")):
                trainer = open_engine(str(options["executor"]), replace(setup, limits=NO_LIMITS))
                _train(sweep, trainer, console, logs)
            sources = sources_of(sweep, here)
        if trains or known.unknown:
            with claims.alone("pace", _waiting(console, "it measures compute ratios")):
                ratios = Ratios(grid, out, here, console.print, elsewhere=elsewhere)
                whole = plan(sweep, sources, ratios)
        planned = take_shard(whole, shard)
        start = sizes(store.root) if begun is None else begun
        agenda = make_agenda(planned, store, overwrite, scores)
        command: tuple[str, ...] = ()
        if engine.by_command and agenda.todo:
            command = hand_over(grid, options, shard, start, logs, setup.folder)
        groups = make_groups(
            agenda.todo, planned, store, engine.device, engine.workers, device_memory=memory, scores=scores,
            begun=start, command=command,
        )  # fmt: skip
        if begun is None:
            with claims.alone("plan"):
                store.write_plan(plan_rows(whole), extend=extend)
                record_not_applicable(agenda.not_applicable, store, overwrite)
        if shard != WHOLE:
            console.print(
                f"Slice {shard[0] + 1} of {shard[1]}: {len(planned)} of the {counted(len(whole), 'cell')}."
            )
        for line in outlook(sweep, agenda, store):
            console.print(line)
        running = run(
            groups, store, engine.run, engine.workers, claims=claims, start=start, fail_fast=fail_fast,
            patience=math.inf if begun is None else SILENT + 10,
        )  # fmt: skip
        try:
            with closing(running) as events:
                failed = agenda.failed + follow(events, groups, engine.workers, loggers)
        except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
            console.print(
                f"\nInterrupted. What is finished is stored in {printable(str(out))}; "
                "the same command goes on from there."
            )
            raise
        finally:
            if begun is None:
                write_readme(store)
    return Finished(store, frozenset(item.cell.cell_id for item in planned), failed, shard, len(whole))


def take_part(grid: Grid, options: Mapping[str, Any], begun: Path) -> None:
    """``--begun``: compute cells of a sweep that another process has handed over, until none is free."""
    run_cells(grid, options, extend=True, begun=read_begun(begun))


def measures_elsewhere(shard: tuple[int, int], executor: str) -> str:
    """The option for which cells run on other machines, where compute ratios are others; or ""."""
    return "--shard" if shard != WHOLE else "" if executor == "local" else f"--executor {executor}"


def _greet(claims: WorkClaims, console: Console) -> None:
    """Name other sweeps that run in the folder."""
    if others := claims.others("sweep"):
        where = ", ".join(lease.where for lease in others)
        # Whether a process of another machine lives is known only after a while.
        verb = "runs" if any(lease.here for lease in others) else "may run"
        console.print(f"Another sweep {verb} in this folder ({where}). This one takes cells that are free.")


def _train(sweep: Sweep, trainer: Engine, console: Console, logs: Path) -> None:
    """Train what is not trained. Raises UserError where that fails."""
    missing = untrained(sweep)
    if not missing:  # another sweep has just done it
        return
    console.print(f"No source classifier yet for {', '.join(map(str, missing))}: training.")
    jobs = [TrainJob(model.name, model.dataset.name, trainer.device) for model in missing]
    try:
        train_all(jobs, trainer.run, trainer.workers)
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
        console.print(
            "\nInterrupted while training; no cell was run yet. Trained classifiers are kept; "
            "the same command trains the others and goes on."
        )
        raise
    if still := untrained(sweep):  # an engine that runs commands does not see why
        raise UserError(f"no classifier was trained for {', '.join(map(str, still))}; see {logs}.")


def _waiting(console: Console, why: str) -> Callable[[list[str]], None]:
    """What says that this sweep waits for another process, and why."""
    return lambda where: console.print(f"Waiting for {', '.join(where)}: {why}.")


def console_of_errors() -> Console:
    return Console(file=sys.stderr, highlight=False, soft_wrap=True, markup=False)


def untrained(sweep: Sweep) -> list[Model]:
    """The models that have to be trained first."""
    return [model for model in sweep.models if not model.ready]


def sources_of(sweep: Sweep, device: str) -> list[Source]:
    with Meter("bytes") as meter:
        return find_sources(sweep.models, device, meter)
