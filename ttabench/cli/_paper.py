"""What ``ttabench paper`` does once its options are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from ttabench.cli import _figure
from ttabench.cli._bench import BENCH
from ttabench.cli._folders import check_folder
from ttabench.data.catalog import dataset
from ttabench.errors import UserError, printable
from ttabench.figure import KINDS, options
from ttabench.paper.asked import (
    ALONE,
    Asked,
    lacking_of,
    refuse_nothing,
    shown_task,
    table_tasks,
)
from ttabench.paper.experiments import Task, stands_for
from ttabench.paper.measure import measure
from ttabench.paper.page_facts import FACTS, DrawnOf, PageFacts, refuse_two_scales
from ttabench.paper.ready import with_weights
from ttabench.registry import figure, view
from ttabench.sweep.conduct import check_precision, console_of_errors
from ttabench.system.environment import pick_device

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


def run(asked: Asked) -> int:
    """Measure, draw, and write the page; how many cells failed, and tasks could not be measured."""
    check_folder(asked.out)
    console, facts = console_of_errors(), PageFacts.of(asked.out)
    refuse_two_scales(asked.out, asked.scale)
    every = table_tasks(asked)
    check_precision(asked.precision, pick_device(asked.device))  # a sweep refuses it after the training
    lacking = lacking_of(asked, every)
    found = [task for task in every if task.dataset not in lacking]
    shown = shown_task(asked, found)
    unshown = lacking_of(asked, [shown] if shown else [])
    facts.scale = asked.scale
    facts.missing = {**facts.missing, **lacking}
    refuse_nothing(asked, found, {**lacking, **unshown})
    for why in lacking.values():
        console.print(f"Left out: {why}")
    asked.out.mkdir(parents=True, exist_ok=True)
    facts.keep(asked.out)
    failed = len(every) - len(found) + measure(found, asked, facts)
    _draw(asked, shown, next(iter(unshown.values()), ""), facts)
    facts.keep(asked.out)
    make_page(asked.out)
    return failed


def make_page(out: Path) -> None:
    """Write the page of what the folder holds, and print the paths."""
    results = [out / "results", out / ALONE]
    here = [folder for folder in results if (folder / "cells").is_dir()]
    facts = PageFacts.of(out)
    read = view("load")
    cells = {folder.name: read([folder]) for folder in here}
    measured = {str(name) for frame in cells.values() for name in frame["dataset"]}
    for name in sorted(measured):
        if (published := stands_for(name)) not in ("", name):  # of a sweep that this command did not start
            facts.stands.setdefault(published, name)
    facts.missing = {
        published: why for published, why in facts.missing.items()
        if facts.stands.get(published, published) not in measured
    }  # fmt: skip
    if not cells and not facts.figures:
        raise UserError(_why_nothing(out, facts))
    other_images = {name for published, name in facts.stands.items() if stands_for(name) != published}
    about = {**asdict(facts), "other_images": sorted(other_images)}
    paths, no_pdf = view("paper")(cells.get("results"), cells.get(ALONE), about, out)
    for path in paths:
        print(printable(str(path)))
    if no_pdf:
        console_of_errors().print(printable(no_pdf))


def _why_nothing(out: Path, facts: PageFacts) -> str:
    """Why the folder holds no results."""
    if why := [*facts.missing.values(), *facts.left_out.values()]:
        return "\n".join([f"{out} holds no results, because nothing could be measured:", *why])
    if (out / FACTS).exists():
        return f"{out} holds no results yet; run the command that began it again, without --page."
    return (
        f"{out} holds no results of ttabench paper; name its folder with --out, or leave out --page to "
        "measure them."
    )


# ---- figures


def _draw(asked: Asked, shown: Task | None, lacking: str, facts: PageFacts) -> None:
    """Draw each figure, or note why there is none.

    shown    the network and dataset of those that show one; `lacking` says why it is not here, or is "".
    """
    console = console_of_errors()
    given, why = DrawnOf(), lacking
    if shown is not None and not lacking:
        try:
            given = _bench(shown, asked, facts)
        except UserError as problem:
            why = str(problem)
    for name in asked.figures:
        console.print(f"\nFigure {name}")
        settings = [*(SMALL_FIGURES.get(name, ()) if asked.scale < 1 else ())]
        settings += OF_PAPER if "method" in options(figure(name)) else []
        own = given if name in asked.network_figures else DrawnOf()
        of: DrawnOf = {**own, "settings": settings}
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


def _bench(shown: Task, asked: Asked, facts: PageFacts) -> DrawnOf:
    """What ``ttabench figure`` is given for a figure of this network and dataset."""
    ready = with_weights(shown, asked, facts)
    return {
        "arch": ready.arch, "dataset": dataset(ready.dataset).name, "device": asked.device,
        "checkpoint": ready.grid.checkpoint,
    }  # fmt: skip
