"""What ``ttabench paper`` does once its options are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ttabench.cli import _figure
from ttabench.cli._bench import BENCH
from ttabench.cli._folders import check_folder
from ttabench.data.catalog import dataset, listing
from ttabench.errors import UserError, counted, printable
from ttabench.figure import KINDS, options, takes_bench
from ttabench.models.architectures.names import resolve
from ttabench.models.resolve import resolve_model
from ttabench.models.trained_model import note_on_mirrors
from ttabench.paper.experiments import (
    DATASETS,
    Task,
    check_dataset,
    datasets_of,
    network_of,
    stands_for,
    tasks,
    title,
)
from ttabench.paper.facts import FACTS, Facts
from ttabench.paper.rehearsal import Rehearsal
from ttabench.paper.sources import Weights, check_recipe, trained, weights_of
from ttabench.registry import figure, view
from ttabench.run.executors.workers import pick_executor, pick_workers
from ttabench.sweep.conduct import console_of_errors, run_cells
from ttabench.sweep.grid import Grid
from ttabench.sweep.option_table import DEFAULTS, OPTIONS
from ttabench.sweep.progress.display import Meter
from ttabench.sweep.progress.training import train_all
from ttabench.sweep.train_sources import TrainJob
from ttabench.system.environment import pick_device

ALONE = "runtime"  # its own folder: its cells run one at a time
SMALL_FIGURES: Mapping[str, Sequence[str]] = {
    "tsne": ("severities=5", "images=40", "epochs=1"),
    "loss-vs-mse": ("epochs=1",),
    "bad-start": ("epochs=1",),
    "quantile-field": ("epochs=40",),
    "six-blobs": ("epochs=40",),
    "two-moons": ("epochs=20",),
}
"""Options of figures in a rehearsal."""
OF_PAPER = ("method=quantile_paper", "quantile_paper.minibatch=512")
"""The paper's method in a figure, in the setting of the tables."""


@dataclass(frozen=True)
class Asked:
    """The command: experiments and figures, and the options of the same names."""

    experiments: Sequence[str]
    figures: Sequence[str]
    datasets: Sequence[str]
    archs: Sequence[str]
    scale: float
    recipe: str
    precision: str
    out: Path
    workers: str
    device: str
    per_gpu: int = 1
    seeds: Sequence[int] = ()

    @property
    def small(self) -> Rehearsal | None:
        return Rehearsal(self.scale, self.out / "data") if self.scale < 1 else None

    @property
    def network_figures(self) -> list[str]:
        """The figures that show a network and a dataset; the others show points or a drawing."""
        return [name for name in self.figures if takes_bench(figure(name))]


def run(asked: Asked) -> int:
    """Measure, draw, and write the page; the number of cells that failed."""
    check_folder(asked.out)
    console, facts = console_of_errors(), Facts.of(asked.out)
    refuse_two_scales(asked, facts)
    every = table_tasks(asked)
    lacking = lacking_of(asked, every)
    found = [task for task in every if task.dataset not in lacking]
    shown = shown_task(asked, found)
    unshown = lacking_of(asked, [shown] if shown else [])
    facts.scale = asked.scale
    facts.missing = {**facts.missing, **lacking}
    _refuse_nothing(asked, found, {**lacking, **unshown})
    for why in lacking.values():
        console.print(f"Left out: {why}")
    asked.out.mkdir(parents=True, exist_ok=True)
    facts.keep(asked.out)
    failed, measured = 0, list[tuple[bool, Grid]]()
    for number, task in enumerate(found, 1):
        console.print(f"\n[{number} of {len(found)}] {title(task.experiment)} {task.arch} on {task.dataset}")
        failed += _one(task, asked, facts, measured, alone=len(found) == 1)
        facts.keep(asked.out)
    _draw(asked, shown, next(iter(unshown.values()), ""), facts)
    facts.keep(asked.out)
    make_page(asked.out)
    return failed


def _one(task: Task, asked: Asked, facts: Facts, measured: list[tuple[bool, Grid]], *, alone: bool) -> int:
    """Measure a task, unless the same is `measured`; how many cells failed, or 1 if it is left out.

    Raises UserError where it cannot be measured and is `alone`; else the others go on, and facts say why.
    """
    published = stands_for(task.dataset) or task.dataset
    place, failed = f"{task.experiment}, {network_of(task.arch)} on {published}", 0
    try:
        ready = _prepared(task, asked, facts)
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


def make_page(out: Path) -> None:
    """Write the page of what the folder holds, and print the paths."""
    results = [out / "results", out / ALONE]
    here = [folder for folder in results if (folder / "cells").is_dir()]
    facts = Facts.of(out)
    read = view("load")
    cells = {folder.name: read([folder]) for folder in here}
    for name in sorted({str(name) for frame in cells.values() for name in frame["dataset"]}):
        if (published := stands_for(name)) not in ("", name):  # of a sweep that this command did not start
            facts.stands.setdefault(published, name)
    if not cells and not facts.figures:
        raise UserError(_why_nothing(out, facts))
    other_images = {name for published, name in facts.stands.items() if stands_for(name) != published}
    about = {**asdict(facts), "other_images": sorted(other_images)}
    paths, no_pdf = view("paper")(cells.get("results"), cells.get(ALONE), about, out)
    for path in paths:
        print(printable(str(path)))
    if no_pdf:
        console_of_errors().print(printable(no_pdf))


def _why_nothing(out: Path, facts: Facts) -> str:
    """Why the folder holds no results."""
    if why := [*facts.missing.values(), *facts.left_out.values()]:
        return "\n".join([f"{out} holds no results, because nothing could be measured:", *why])
    if (out / FACTS).exists():
        return f"{out} holds no results yet; run the command that began it again, without --page."
    return (
        f"{out} holds no results of ttabench paper; name its folder with --out, or leave out --page to "
        "measure them."
    )


# ---- what there is to do


def table_tasks(asked: Asked) -> list[Task]:
    """The tasks of tables.

    Raises UserError for options that nothing uses, for names that no table has a place for, and where there
    is no task.
    """
    _refuse_unused(asked)
    for name in asked.datasets:
        check_dataset(name)
    for arch in asked.archs:
        if not network_of(arch):
            raise UserError(
                f"--archs {arch} stands for none of the paper's networks (ResNet18, CCT, CVT and ViT-Lite), "
                "so no table has a place for it; run it with ttabench sweep or ttabench figure."
            )
        if not {"/", ":"} & {*arch}:
            resolve(arch, dataset=DATASETS[0], image_size=32)
    _refuse_two("--archs", asked.archs, lambda arch: [network_of(arch)])
    _refuse_two(
        "--datasets", asked.datasets, lambda name: [stands_for(name)] if stands_for(name) else DATASETS
    )
    check_recipe(asked.recipe)
    OPTIONS["precision"].kind.check(asked.precision, "--precision")
    pick_workers(asked.workers, pick_device(asked.device), count=1, per_gpu=asked.per_gpu)
    every = [task for name in asked.experiments for task in tasks(name, asked.datasets, asked.archs)]
    if asked.experiments and not every:
        given = {"--datasets": asked.datasets, "--archs": asked.archs}
        flags = " and ".join(f"{flag} {','.join(names)}" for flag, names in given.items() if names)
        raise UserError(f"{', '.join(asked.experiments)}: nothing is measured of {flags}; name others.")
    return [task.with_seeds(asked.seeds) for task in every] if asked.seeds else every


def shown_task(asked: Asked, found: Sequence[Task]) -> Task | None:
    """The network and dataset that figures show; None where no figure shows any.

    ResNet18 as in the paper, or else the first: of the tasks that are measured, or where no table is asked
    for of those that Table 1 would have.
    """
    if not asked.network_figures:
        return None
    of = found if asked.experiments else tasks("table1", asked.datasets, asked.archs)
    return next((task for task in of if task.arch == "resnet18"), of[0] if of else None)


def _refuse_unused(asked: Asked) -> None:
    """Raises UserError for options that neither a table nor a figure that is asked for uses."""
    if asked.experiments:
        return
    names = ", ".join(asked.figures)
    of_tables = {
        "--seeds": asked.seeds, "--precision": asked.precision != "float32",
        "--per-gpu": asked.per_gpu != 1,
    }  # fmt: skip
    of_networks = {
        "--datasets": asked.datasets, "--archs": asked.archs, "--recipe": asked.recipe,
        "--device": asked.device != "auto",
    }  # fmt: skip
    for flag in (flag for flag, given in of_tables.items() if given):
        raise UserError(f"{flag} is for tables, and --only names none ({names}); leave it out.")
    for flag in (flag for flag, given in of_networks.items() if given and not asked.network_figures):
        raise UserError(f"{flag} is for tables and for figures of a network, not for {names}; leave it out.")


def _refuse_two(flag: str, names: Sequence[str], places: Callable[[str], Sequence[str]]) -> None:
    """Raises UserError where two names stand for the same dataset or network of the paper."""
    held: dict[str, str] = {}
    for name in names:
        for place in places(name):
            if (other := held.setdefault(place, name)) != name:
                raise UserError(
                    f"{flag}: {other} and {name} both stand for {place}, and a table has one place for it; "
                    "name one of them here, and the other with another --out."
                )


def lacking_of(asked: Asked, every: Sequence[Task]) -> dict[str, str]:
    """The datasets that are not here, with the reason; none in a rehearsal, which has others in their place.

    Raises UserError for a dataset that the user names and that there is not.
    """
    listed = {entry.name: entry for entry in listing()}
    lacking = {}
    for name in dict.fromkeys(task.dataset for task in every):
        if name not in listed:
            dataset(name)  # raises where there is none
        elif (entry := listed[name]).state != "here":
            lacking[name] = f"{name} is {entry.state}: {entry.note}."
    return {} if asked.small else lacking


def refuse_two_scales(asked: Asked, facts: Facts) -> None:
    """Raises UserError where the folder holds numbers of another --scale."""
    if (asked.out / FACTS).exists() and facts.scale != asked.scale:
        raise UserError(
            f"{asked.out} is a folder of --scale {facts.scale:g}, and this run has {asked.scale:g}; numbers "
            "of both would stand in one table. Name another folder with --out."
        )


def _refuse_nothing(asked: Asked, found: Sequence[Task], lacking: Mapping[str, str]) -> None:
    drawable = not asked.experiments and {*asked.figures} - {*asked.network_figures}
    if found or drawable or not lacking:
        return
    raise UserError(
        "none of the datasets is here.\n" + "\n".join(lacking.values())
        + "\nTo rehearse without them: ttabench paper --scale 0.01"
    )  # fmt: skip


# ---- weights


def find_weights(task: Task, asked: Asked, *, fetch: bool) -> Weights:
    """The network of a task, which is small in a rehearsal; see :func:`ttabench.paper.sources.weights_of`."""
    if asked.small is None:
        with Meter("bytes") as meter:
            return weights_of(task, asked.recipe, fetch=fetch, progress=meter)
    if not resolve_model(task.arch, dataset(task.dataset)).trainable:
        return Weights(task.arch, None)
    whole = trained(task.arch, task.dataset, asked.recipe)
    if whole.model is None or whole.model.ready:  # some come with ttabench
        return whole
    epochs = asked.small.epochs(whole.model.plan.recipe.epochs)
    return trained(task.arch, task.dataset, asked.recipe, epochs)


def _prepared(asked_for: Task, asked: Asked, facts: Facts) -> Task:
    """The task with its weights, small in a rehearsal; facts learn what stands for what."""
    task = _with_weights(asked_for, asked, facts)
    name = dataset(task.dataset).name
    published = stands_for(asked_for.dataset)
    for each in [published] if published else datasets_of(task.experiment):
        facts.stands |= {each: name}
        facts.missing.pop(each, None)
    network = network_of(asked_for.arch)
    arch = resolve_model(task.arch, dataset(task.dataset)).name  # as in the results
    measured = facts.nets.setdefault(name, {})
    measured[network] = [*(each for each in measured.get(network, ()) if each != arch), arch]
    return task


def _with_weights(task: Task, asked: Asked, facts: Facts) -> Task:
    """The task, small in a rehearsal, with its weights, which are trained if need be."""
    if asked.small is not None:
        task = asked.small.task(task)
    weights = find_weights(task, asked, fetch=True)
    if weights.note and weights.note not in facts.notes.values():
        console_of_errors().print(f"Note: {weights.note}.")
    if weights.model is not None:
        if not weights.model.ready:
            _train(weights, asked)
        sha256 = weights.sha256
        facts.recipes[sha256], facts.notes[sha256] = weights.model.plan.recipe.name, weights.note
    moved = task.on(task.dataset, weights.arch)
    grid = replace(moved.grid, checkpoint=weights.checkpoint, precision=asked.precision)
    return replace(moved, grid=grid)


def _train(weights: Weights, asked: Asked) -> None:
    assert weights.model is not None
    plan, device = weights.model.plan, pick_device(asked.device)
    epochs = weights.model.epochs
    job = TrainJob(
        weights.model.name, weights.model.dataset.name, device, epochs=epochs, recipe=plan.recipe.name
    )
    if note := note_on_mirrors([weights.model]):
        console_of_errors().print(note)
    workers = 0 if asked.workers == "0" else 1
    train_all([job], pick_executor(workers, device), workers)


def folder_of(task: Task, asked: Asked) -> Path:
    """The results folder of a task."""
    return asked.out / (ALONE if task.experiment == ALONE else "results")


def _measure(task: Task, asked: Asked) -> int:
    folder = folder_of(task, asked)
    workers = "1" if task.experiment == ALONE and asked.workers != "0" else asked.workers
    options: dict[str, Any] = {
        **DEFAULTS, "out": str(folder), "workers": workers, "device": asked.device,
        "per_gpu": 1 if task.experiment == ALONE else asked.per_gpu,
    }  # fmt: skip
    finished = run_cells(task.grid, options, extend=True)
    counts = f"{counted(len(finished.cells), 'cell')}, {len(finished.failed)} failed."
    console_of_errors().print(" ".join(filter(None, (counts, finished.warning))))
    return finished.unfinished


# ---- figures


def _draw(asked: Asked, shown: Task | None, lacking: str, facts: Facts) -> None:
    """Draw each figure, or note why there is none.

    shown    the network and dataset of those that show one; `lacking` says why it is not here, or is "".
    """
    console = console_of_errors()
    given, why = {}, lacking
    if shown is not None and not lacking:
        try:
            given = _bench(shown, asked, facts)
        except UserError as problem:
            why = str(problem)
    for name in asked.figures:
        console.print(f"\nFigure {name}")
        settings = [*(SMALL_FIGURES.get(name, ()) if asked.scale < 1 else ())]
        settings += OF_PAPER if "method" in options(figure(name)) else []
        own = given if name in asked.network_figures else {}
        of: dict[str, str | list[str]] = {**own, "settings": settings}
        files = [asked.out / "figures" / f"{name}.{kind}" for kind in KINDS]
        if facts.drawn.get(name) == of and all(file.exists() for file in files):
            console.print("It was drawn before. To draw it again, delete its files.")
            continue
        facts.drawn.pop(name, None)
        facts.keep(asked.out)  # where the drawing is stopped, its files may be of two figures
        try:
            if why and name in asked.network_figures:
                raise UserError(why)
            _figure.make(name, asked.out / "figures", own, {**BENCH, **own}, settings)
            facts.figures[name], facts.drawn[name] = "", of
        except UserError as problem:
            facts.figures[name] = str(problem)
            console.print(f"Left out: {problem}")
        facts.keep(asked.out)


def _bench(shown: Task, asked: Asked, facts: Facts) -> dict[str, str]:
    """What ``ttabench figure`` is given for a figure of this network and dataset."""
    ready = _with_weights(shown, asked, facts)
    return {
        "arch": ready.arch, "dataset": dataset(ready.dataset).name, "device": asked.device,
        "checkpoint": ready.grid.checkpoint,
    }  # fmt: skip
