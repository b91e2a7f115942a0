"""What ``ttabench paper`` would train, download and measure."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path

from ttabench.data.catalog import dataset
from ttabench.data.published.known_datasets import PUBLISHED
from ttabench.errors import UserError
from ttabench.method.settings import configured
from ttabench.models.external.download_weights import is_here
from ttabench.models.external.external_model import ExternalModel
from ttabench.models.resolve import resolve_model
from ttabench.paper.asked import (
    Asked,
    lacking_of,
    refuse_lacking_images,
    shown_task,
    table_tasks,
)
from ttabench.paper.experiments import OFFICIAL, Task
from ttabench.paper.page_facts import refuse_two_scales
from ttabench.paper.ready import find_weights
from ttabench.paper.sources import Weights
from ttabench.store import Store
from ttabench.sweep.agenda import Agenda, make_agenda
from ttabench.sweep.chosen_methods import choose_methods
from ttabench.sweep.plan import find_sources, plan, source_of
from ttabench.sweep.resolve import resolve
from ttabench.system.environment import pick_device

SECONDS = {"quantile": 10.0, "official/cct_7": 4.0, "cct": 4.0, "": 1.7}
"""Of a cell of 10,000 images on one H200 with seven workers: of `quantile`, of CCT in TF32, of the others."""
TRAINING = {"cct": 234.0, "": 63.0}
"""Seconds of the recipe cross-entropy on CIFAR-10 on one H200."""
FIGURES = "figures"

Cells = dict[Hashable, float]
"""What identifies a cell → about how many seconds it takes."""


@dataclass
class Work:
    """What is to be done, each thing once.

    rows      of the table that is shown.
    cells     to measure.
    stored    that the folder holds.
    training  the dataset and network → about how many seconds the training takes.
    left_out  why a task cannot be measured.
    weights   published ones that are not here: the network → the datasets it is for.
    """

    rows: list[tuple[str, ...]] = field(default_factory=list)
    cells: Cells = field(default_factory=dict)
    stored: set[Hashable] = field(default_factory=set)
    training: dict[tuple[str, str], float] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    weights: dict[str, dict[str, None]] = field(default_factory=dict)

    @property
    def hours(self) -> float:
        return (sum(self.cells.values()) + sum(self.training.values())) / 3600

    def add(self, label: str, task: Task, state: str, cells: Cells, stored: set[Hashable]) -> None:
        new = cells.keys() - self.cells.keys()  # the others are in the row of another table
        if not cells or new:
            self.rows.append((label, task.dataset, task.arch, state, str(len(new))))
        self.cells |= cells
        self.stored |= stored


def work_of(asked: Asked, elsewhere: Path) -> tuple[Work, dict[str, str]]:
    """The work, and why datasets are not here. Raises UserError for what the command would refuse.

    elsewhere   a folder for the small datasets of a rehearsal that has none yet: `asked.out` stays as it is.
    """
    every = table_tasks(asked)
    refuse_two_scales(asked.out, asked.scale)
    shown = shown_task(asked, every) if not asked.experiments else None
    each = [*((task.experiment, task) for task in every), *([(FIGURES, shown)] if shown else [])]
    lacking, work, small = lacking_of(asked, [task for _, task in each]), Work(), asked.small
    if small and not small.folder.is_dir():
        small = replace(small, folder=elsewhere)
    for label, task in each:
        try:
            if task.dataset in lacking:
                _add_lacking(work, label, task, asked)
            else:
                _add(work, label, small.task(task) if small else task, asked)
        except UserError as problem:
            if len(each) == 1:
                raise
            work.left_out.append(f"{label}, {task.arch} on {task.dataset}: {problem}")
    return work, lacking


def _add_lacking(work: Work, label: str, task: Task, asked: Asked) -> None:
    """Add a task whose dataset is not here to the work."""
    if task.arch.startswith(OFFICIAL):
        _download(work, task)
    else:
        _train(work, task.dataset, task.arch)
    cells = {} if label == FIGURES else _unopened(task, asked)
    work.add(label, task, "after the dataset is here", cells, set())


def _add(work: Work, label: str, task: Task, asked: Asked) -> None:
    """Add a task, small in a rehearsal, to the work. Raises UserError where it cannot be measured."""
    if label != FIGURES and asked.small is None:
        refuse_lacking_images(task)
    weights = find_weights(task, asked, fetch=False)
    task = task.on(dataset(task.dataset).name, weights.arch)
    cells, stored = ({}, set()) if label == FIGURES else _cells(task, weights, asked)
    state = _state(weights, task, new=(task.dataset, task.arch) not in work.training)
    if weights.model is None and weights.arch.startswith(OFFICIAL) and not _loads(weights, task):
        _download(work, task)
    elif weights.model is not None and not weights.model.ready:
        _train(work, task.dataset, task.arch)
    work.add(label, task, state, cells, stored)


def _download(work: Work, task: Task) -> None:
    work.weights.setdefault(task.arch, {})[task.dataset] = None


def _train(work: Work, data: str, arch: str) -> None:
    work.training[data, arch] = TRAINING.get(arch, TRAINING[""])


def _state(weights: Weights, task: Task, *, new: bool) -> str:
    """What is to be done for the weights; `new` where no row above has them trained."""
    if weights.model is None:
        if not weights.arch.startswith(OFFICIAL):
            return "its own"
        return "published" if _loads(weights, task) else "published, to download"
    name = weights.model.plan.recipe.name
    if weights.model.ready:
        return f"trained already: {name}"
    return f"to train: {name}" if new else f"trained by then: {name}"


def _loads(weights: Weights, task: Task) -> bool:
    """Whether the weights are here, so that nothing has to be trained or downloaded."""
    if weights.model is not None:
        return weights.model.ready
    model = resolve_model(task.arch, dataset(task.dataset))
    published = model.published_weights() if isinstance(model, ExternalModel) else None
    return published is None or is_here(published)


# ---- cells


def _cells(task: Task, weights: Weights, asked: Asked) -> tuple[Cells, set[Hashable]]:
    """The cells to measure, and those that the folder holds. Raises UserError where it cannot be measured."""
    agenda, folder = _agenda(task, weights, asked), asked.folder_of(task).name
    todo: Cells = {(folder, cell.cell_id): _seconds(cell.method, task.arch) for cell in agenda.todo}
    return todo, {(folder, cell.cell_id) for cell in agenda.done}


def _agenda(task: Task, weights: Weights, asked: Asked) -> Agenda:
    if _loads(weights, task):
        sweep = resolve(replace(task.grid, checkpoint=weights.checkpoint, precision=asked.precision))
        sources = find_sources(sweep.models, pick_device(asked.device), measure=False)
    else:
        sweep = resolve(replace(task.grid, precision=asked.precision))
        sources = [
            source_of(model, model.build(), "", model.measured.fingerprint()) for model in sweep.models
        ]
    folder = asked.folder_of(task)
    return make_agenda(plan(sweep, sources), Store.at(folder) if (folder / "cells").is_dir() else None)


def _unopened(task: Task, asked: Asked) -> Cells:
    """The cells of a task whose dataset is not here, so that none of them is stored."""
    grid, folder, cells = task.grid, asked.folder_of(task).name, Cells()
    classes = PUBLISHED[task.dataset].num_classes  # the other datasets are always here
    for choice in choose_methods(grid):
        settings = astuple(
            configured(choice.cls, choice.given, choice.cls.for_dataset(task.dataset, classes))
        )
        for at in itertools.product(grid.corruptions, grid.severities, grid.seeds):
            key = (folder, task.dataset, task.arch, choice.cls.name, settings, at)
            cells[key] = _seconds(choice.cls.name, task.arch)
    return cells


def _seconds(method: str, arch: str) -> float:
    """About how long a cell takes, see :data:`SECONDS`."""
    return SECONDS.get(method, SECONDS.get(arch, SECONDS[""]))
