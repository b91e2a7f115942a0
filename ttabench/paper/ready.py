"""A task made ready to be measured: small in a rehearsal, with its weights."""

from __future__ import annotations

from dataclasses import replace

from ttabench.data.catalog import EMBEDDED, dataset
from ttabench.errors import UserError
from ttabench.models.resolve import resolve_model
from ttabench.models.trained_model import TrainedModel, note_on_mirrors
from ttabench.models.training.recipes import FAST
from ttabench.paper.asked import Asked, refuse_lacking_images
from ttabench.paper.experiments import Task, datasets_of, network_of, stands_for
from ttabench.paper.page_facts import PageFacts
from ttabench.paper.sources import Weights, trained, weights_of
from ttabench.run.executors.workers import pick_executor
from ttabench.sweep.conduct import console_of_errors
from ttabench.sweep.progress.display import Meter
from ttabench.sweep.progress.training import train_all
from ttabench.sweep.train_sources import TrainJob
from ttabench.system.environment import pick_device


def find_weights(task: Task, asked: Asked, *, fetch: bool) -> Weights:
    """The network of a task, which is small in a rehearsal; see :func:`ttabench.paper.sources.weights_of`."""
    if asked.small is None:
        with Meter("bytes") as meter:
            return weights_of(task, asked.recipe, fetch=fetch, progress=meter)
    if not resolve_model(task.arch, dataset(task.dataset)).trainable:
        return Weights(task.arch, None)
    recipe, note = _recipe_of_rehearsal(task, asked)
    whole = trained(task.arch, task.dataset, recipe, note=note)
    if whole.model is None or whole.model.ready:  # some come with ttabench
        return whole
    epochs = asked.small.epochs(whole.model.plan.recipe.epochs)
    return trained(task.arch, task.dataset, recipe, epochs, note)


def _recipe_of_rehearsal(task: Task, asked: Asked) -> tuple[str, str]:
    """The recipe that was asked for, and a note where the embedded dataset has none, which nobody named."""
    if not asked.recipe or task.dataset != EMBEDDED or EMBEDDED in asked.datasets:
        return asked.recipe, ""
    try:
        trained(task.arch, task.dataset, asked.recipe)
    except UserError:
        note = f"{EMBEDDED}, which this rehearsal uses, has no recipe {asked.recipe}: trained with {FAST}"
        return "", note
    return asked.recipe, ""


def prepared(asked_for: Task, asked: Asked, facts: PageFacts) -> Task:
    """The task with its weights, small in a rehearsal; facts learn what stands for what.

    Raises UserError, before anything is trained, where a dataset of the user's lacks what the table is of.
    """
    if asked.small is None:  # a rehearsal corrupts images itself
        refuse_lacking_images(asked_for)
    task = with_weights(asked_for, asked, facts)
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


def with_weights(task: Task, asked: Asked, facts: PageFacts) -> Task:
    """The task, small in a rehearsal, with its weights, which are trained if need be."""
    if asked.small is not None:
        task = asked.small.task(task)
    weights = find_weights(task, asked, fetch=True)
    if weights.note and weights.note not in facts.notes.values():
        console_of_errors().print(f"Note: {weights.note}.")
    if weights.model is not None:
        if not weights.model.ready:
            _train(weights.model, asked)
        sha256 = weights.model.load().sha256  # as results have it
        facts.recipes[sha256], facts.notes[sha256] = weights.model.plan.recipe.name, weights.note
    moved = task.on(task.dataset, weights.arch)
    grid = replace(moved.grid, checkpoint=weights.checkpoint, precision=asked.precision)
    return replace(moved, grid=grid)


def _train(model: TrainedModel, asked: Asked) -> None:
    device = pick_device(asked.device)
    job = TrainJob(model.name, model.dataset.name, device, epochs=model.epochs, recipe=model.plan.recipe.name)
    if note := note_on_mirrors([model]):
        console_of_errors().print(note)
    workers = 0 if asked.workers == "0" else 1
    train_all([job], pick_executor(workers, device), workers)
