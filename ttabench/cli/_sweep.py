"""What ``ttabench sweep`` does once its options are read."""

from __future__ import annotations

import math
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ttabench.cell import Cell, Result
from ttabench.cli._display import Display, Meter, clock
from ttabench.cli._training import train_all
from ttabench.cli._where import reason_and_place
from ttabench.data.own.own_dataset import OwnDataset
from ttabench.errors import UserError, counted, printable
from ttabench.method.spelling import split_list
from ttabench.models.model import Model
from ttabench.provenance.staleness import by_importance
from ttabench.registry import load, method, view
from ttabench.run.events import CellProgress, Waiting
from ttabench.run.executors import EXECUTORS, NO_LIMITS, Engine, open_engine
from ttabench.run.executors.cluster import logs_of
from ttabench.run.executors.workers import own_gpu, pick_workers
from ttabench.run.unit import Unit
from ttabench.store import Store
from ttabench.store.folder_readme import write_readme
from ttabench.store.tail import sizes
from ttabench.sweep.agenda import (
    Agenda,
    make_agenda,
    make_units,
    pick_overwrite,
    pick_scores,
    plan_rows,
    record_not_applicable,
)
from ttabench.sweep.compute_ratio import Ratios
from ttabench.sweep.few_batches import notes_on_few_batches
from ttabench.sweep.few_classes import labels_in_order, notes_on_few_classes
from ttabench.sweep.grid import Grid
from ttabench.sweep.hand_over import hand_over, read_begun
from ttabench.sweep.loggers import Loggers, check_loggers, open_loggers
from ttabench.sweep.options import device_memory, executor_setup, out_folder
from ttabench.sweep.other_weights import notes_on_other_weights
from ttabench.sweep.plan import Source, find_sources, plan
from ttabench.sweep.resolve import Sweep, resolve
from ttabench.sweep.run import run
from ttabench.sweep.shard import WHOLE, Shard, pick_shard, take_shard
from ttabench.sweep.sweep_file import is_one_of_several, keep
from ttabench.sweep.train_sources import TrainJob
from ttabench.sweep.typical_costs import note_on_costs, passes, typical_ratio
from ttabench.system.claims import SILENT, Claims
from ttabench.system.env import pick_device

if TYPE_CHECKING:
    import pandas as pd


def show_plan(grid: Grid, options: Mapping[str, Any], *, extend: bool) -> None:
    """``--dry-run``: every cell of this slice and what would happen to it.

    Raises UserError for what the sweep would refuse, such as a results folder of another sweep. An executor
    other than local is not opened: what only its cluster or its package knows comes out when the sweep runs.
    """
    sweep, shard = resolve(grid), pick_shard(str(options["shard"]))
    missing = _untrained(sweep, shard)
    check_loggers(split_list(str(options["log"])))
    overwrite, out = str(options["overwrite"]), out_folder(options)
    extend = extend or is_one_of_several(grid, out)
    device, cluster = _check_executor(options)
    here = own_gpu(device)
    elsewhere = _measures_elsewhere(shard, str(options["executor"]))
    ratios = Ratios(grid, out, here, _console().print, elsewhere=elsewhere, dry_run=True)
    planned = take_shard(plan(sweep, _sources(sweep, here), ratios), shard)
    exists = Store(out).sweep_before(grid.to_json(), extend=extend) is not None
    store = Store.at(out) if exists else None
    agenda = make_agenda(planned, store, pick_overwrite(overwrite), pick_scores(str(options["scores"])))
    done = {cell.cell_id for cell in agenda.done}
    failed = {cell.cell_id for cell in agenda.failed}
    console = Console(highlight=False, soft_wrap=True, markup=False)
    for model in missing:
        console.print(f"train  {model}")
    for item in planned:
        key = item.cell.cell_id
        what = "skip " if item.unmet else "done " if key in done else "failed" if key in failed else "run  "
        console.print(f"{what}  {item.cell}{f'  (n/a: {item.unmet})' if item.unmet else ''}")
    if cluster:
        console.print(cluster)
    console.print(_counts(agenda))


def _untrained(sweep: Sweep, shard: Shard) -> list[Model]:
    """The classifiers to train. Raises UserError for a slice, whose machines would train different ones."""
    missing = untrained(sweep)
    if missing and shard != WHOLE:
        raise UserError(
            f"--shard needs trained classifiers, and {', '.join(map(str, missing))} is not trained yet; "
            "run ttabench train first, once."
        )
    return missing


def _check_executor(options: Mapping[str, Any]) -> tuple[str, str]:
    """Raise UserError for an executor or options of it that the sweep would refuse.

    Returns the device of this process, and a line on the cluster, "" for none. Another executor than local is
    not opened: it may start a cluster, and have GPUs that are not here. Of slurm and ray, what needs no
    cluster is checked.
    """
    name, setup = str(options["executor"]), executor_setup(options)
    device_memory(options)
    if name == "local":
        return open_engine(name, setup).device, ""
    load(EXECUTORS, name, "executor")
    pick_workers(setup.workers, "cpu", 1)
    if name not in ("slurm", "ray"):
        return pick_device("auto"), ""
    from ttabench.cli._cluster import outlook

    return pick_device("auto"), outlook(name, setup)


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


def run_sweep(grid: Grid, options: Mapping[str, Any], *, extend: bool, fail_fast: bool) -> int:
    """Run a sweep and print its table. Returns the number of failed cells."""
    started = time.monotonic()
    finished = run_cells(grid, options, extend=extend, fail_fast=fail_fast)
    if finished.cells:  # a slice of a small sweep may be empty
        frame = finished.store.frame()
        _summary(frame[frame["cell_id"].isin(finished.cells)])
    took = clock(time.monotonic() - started)
    out, console = printable(shlex.quote(str(out_folder(options)))), _console()
    console.print(f"{counted(len(finished.cells), 'cell')}, {len(finished.failed)} failed; {took} in total.")
    if finished.shard != WHOLE:
        index, count = finished.shard
        console.print(
            f"These are slice {index + 1} of {count}, and the table above shows only them. How far all "
            f"{counted(finished.whole, 'cell')} are: ttabench status {out}"
        )
    console.print(f"Tables and plots of all cells in {out}: ttabench report {out}")
    return len(finished.failed)


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
    console = _console()
    sweep = resolve(grid)  # mistakes in the command come out before anything is fetched or written
    log = split_list(str(options["log"]))
    check_loggers(log)
    shard = pick_shard(str(options["shard"]))
    missing = _untrained(sweep, shard)
    setup, memory = executor_setup(options), device_memory(options)
    engine, logs = open_engine(str(options["executor"]), setup), logs_of(setup)
    here = own_gpu(engine.device if options["executor"] == "local" else pick_device("auto"))
    elsewhere = _measures_elsewhere(shard, str(options["executor"]))
    known = Ratios(grid, out, here, lambda text: None, elsewhere=elsewhere, dry_run=True)
    sources = _sources(sweep, here)
    whole = plan(sweep, sources, known)
    overwrite, scores = pick_overwrite(str(options["overwrite"])), pick_scores(str(options["scores"]))
    store, extend = Store(out), extend or is_one_of_several(grid, out)
    store.make_folder(grid.to_json(), extend=extend)
    with ExitStack() as stack:
        claims = stack.enter_context(Claims(store.root, "sweep"))
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
                _train(untrained(sweep), trainer, console)  # another sweep may just have done it
            if still := untrained(sweep):  # an engine that runs commands does not see why
                raise UserError(f"no classifier was trained for {', '.join(map(str, still))}; see {logs}.")
            sources = _sources(sweep, here)
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
        units = make_units(
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
        console.print(_counts(agenda))
        if costs := note_on_costs(agenda.todo):
            console.print(f"Costs: {costs}")
        for note in (*_notes(sweep, agenda), *notes_on_other_weights(agenda.todo, sweep.models, store)):
            console.print(f"Note: {note}")
        try:
            with closing(
                run(
                    units,
                    store,
                    engine.run,
                    engine.workers,
                    claims=claims,
                    start=start,
                    fail_fast=fail_fast,
                    patience=math.inf if begun is None else SILENT + 10,
                )
            ) as events:
                failed = agenda.failed + _follow(events, units, engine.workers, loggers)
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


def _measures_elsewhere(shard: tuple[int, int], executor: str) -> str:
    """The option for which cells run on other machines, where compute ratios are others; or ""."""
    return "--shard" if shard != WHOLE else "" if executor == "local" else f"--executor {executor}"


def take_part(grid: Grid, options: Mapping[str, Any], begun: Path) -> None:
    """``--begun``: compute cells of a sweep that another process has handed over, until none is free."""
    run_cells(grid, options, extend=True, begun=read_begun(begun))


def _greet(claims: Claims, console: Console) -> None:
    """Name other sweeps that run in the folder."""
    if others := claims.others("sweep"):
        where = ", ".join(lease.where for lease in others)
        # Whether a process of another machine lives is known only after a while.
        verb = "runs" if any(lease.here for lease in others) else "may run"
        console.print(f"Another sweep {verb} in this folder ({where}). This one takes cells that are free.")


def _train(missing: Sequence[Model], trainer: Engine, console: Console) -> None:
    if not missing:
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


def _waiting(console: Console, why: str) -> Callable[[list[str]], None]:
    """What says that this sweep waits for another process, and why."""
    return lambda where: console.print(f"Waiting for {', '.join(where)}: {why}.")


def _follow(
    events: Iterable[Result | CellProgress | Waiting], units: Sequence[Unit], workers: int, loggers: Loggers
) -> list[Cell]:
    """Show what happens in a sweep; returns the cells that fail."""
    failed: list[Cell] = []
    kinds = [(str(cell), kind(cell)) for unit in units for cell in unit.cells]
    relative = {kind(cell): _beside_source(cell) for unit in units for cell in unit.cells}
    known = {of: beside for of, beside in relative.items() if beside}
    epochs = {str(cell): passes(cell) for unit in units for cell in unit.cells}
    with Display(len(kinds), "cells", kinds=kinds, workers=workers, relative=known) as display:
        for event in events:
            if isinstance(event, CellProgress):
                _show(display, event, epochs.get(event.cell, 0))
            elif isinstance(event, Waiting):
                where = ", ".join(event.where)
                display.say(
                    f"Waiting for {counted(event.cells, 'cell')} that other processes compute: {where}."
                )
            else:
                _print_result(display, event)
                loggers.add(event)
                failed += [event.cell] if event.status == "failed" else []
    return failed


def _console() -> Console:
    return Console(file=sys.stderr, highlight=False, soft_wrap=True, markup=False)


def untrained(sweep: Sweep) -> list[Model]:
    """The models that have to be trained first."""
    return [model for model in sweep.models if not model.ready]


def _notes(sweep: Sweep, agenda: Agenda) -> list[str]:
    """What a reader should know of the cells before they run."""
    datasets = {model.dataset.name: model.dataset for model in sweep.models}

    def images_of(cell: Cell) -> int:
        dataset = datasets[cell.dataset]
        return cell.protocol.limit or (dataset.shifted_count() if isinstance(dataset, OwnDataset) else 0)

    return [
        *notes_on_few_batches(agenda.todo, images_of, lambda name: method(name).needs.gradient),
        *notes_on_few_classes(agenda.todo, lambda name: labels_in_order(datasets[name])),
    ]


def _sources(sweep: Sweep, device: str) -> list[Source]:
    with Meter("bytes") as meter:
        return find_sources(sweep.models, device, meter)


def _counts(agenda: Agenda) -> str:
    parts = [f"{counted(agenda.total, 'cell')}: {len(agenda.todo)} to run", f"{len(agenda.done)} done"]
    if agenda.failed:
        parts.append(f"{len(agenda.failed)} failed")
    if agenda.not_applicable:
        rows = {(p.cell.label, p.cell.arch, p.unmet) for p in agenda.not_applicable}
        why = "; ".join(f"{label} on {arch}: {unmet}" for label, arch, unmet in sorted(rows))
        parts.append(f"{len(agenda.not_applicable)} n/a ({why})")
    text = ", ".join(parts) + "."
    for name, changes in sorted(agenda.stale.items()):
        text += f"\nStale, computed again: {name}: {_first(by_importance(changes), 3)}."
    return text


def _first(texts: list[str], count: int) -> str:
    """The first texts, and how many more there are."""
    more = len(texts) - count
    return ", ".join(texts[:count]) + (f" and {more} more" if more > 0 else "")


def kind(cell: Cell) -> str:
    """What cells that take about as long share: method with settings, network, dataset."""
    return f"{cell.label} {cell.arch} {cell.dataset}"


def _beside_source(cell: Cell) -> tuple[str, float] | None:
    """The kind of the Source cells beside a cell, and how many times as long it usually takes."""
    ratio = typical_ratio(cell)
    return None if ratio is None or cell.method == "source" else (f"source {cell.arch} {cell.dataset}", ratio)


def _show(display: Display, event: CellProgress, epochs: int) -> None:
    """`epochs`: the passes that an offline method makes, as far as its settings say it; 0 = not known."""
    if event.doing:
        display.running(event.cell, 0, 0, event.doing)
    elif event.scored:
        note = f"{100 * event.right / event.scored:.1f} % so far"
        display.running(event.cell, event.seen, event.total, note)
    else:
        # An epoch of a method may be several passes: its part of the work is not known.
        done, at = divmod(event.seen, event.total)
        of = f", pass {done + 1} of {epochs}" if done < epochs else ""
        display.running(event.cell, at, event.total, f"adapting{of}", part=0.0)


def _print_result(display: Display, result: Result) -> None:
    name = str(result.cell)
    if result.status == "ok":
        note = f"{result.accuracy:.1f} % ({result.seconds:.1f} s)"
        alarm = str(result.details.get("alarm", ""))
        display.finished(name, f"{note}, {alarm}" if alarm else note, seconds=result.seconds)
    else:
        reason = reason_and_place(result.reason, result.details).rstrip(".")
        display.finished(name, f"failed: {reason}", keep=True)


def _summary(frame: pd.DataFrame) -> None:
    """Print the table of a sweep's cells, made by the report that is registered as `terminal`."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120)
    texts = {name: frame[name].map(printable) for name in ("reason", "alarm")}  # of a method's own code
    console.print(view("terminal")(frame.assign(**texts)))
    learns = ~frame["adapted"].isin(["", "nothing"])
    adapted = frame.loc[learns, ["method", "arch", "adapted"]].drop_duplicates()
    for _, row in adapted.iterrows():
        console.print(f"{row['method']} on {row['arch']} adapts {row['adapted']}.", markup=False)
