"""``ttabench train``: train source classifiers."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer import Option


def register(app: typer.Typer) -> None:
    app.command()(train)


def train(
    archs: Annotated[str, Option(help="Architectures, separated by commas.")] = "resnet18,cct",
    datasets: Annotated[str, Option(help="Datasets, separated by commas.")] = "digits-c",
    epochs: Annotated[int, Option(help="0 = the recipe's.", min=0)] = 0,
    seed: Annotated[int, Option(help="Initialisation, order and augmentation.")] = 0,
    precision: Annotated[str, Option(help="auto, float32 or bfloat16.")] = "auto",
    device: Annotated[str, Option(help="auto, cpu, cuda …")] = "auto",
    workers: Annotated[str, Option(help="Classifiers at once; 0 = in this process.")] = "auto",
    threads: Annotated[
        int, Option(help="CPU threads per classifier, where its recipe sets none. 0 = cores / workers", min=0)
    ] = 0,
    recipe: Annotated[str, Option(help="fast or paper. [the dataset's default]")] = "",
    force: Annotated[bool, Option("--force", help="Train again what is there already.")] = False,
) -> None:
    """Train a source classifier per architecture × dataset, and keep it in the cache.

    Prints the clean accuracy, and where the model card and the learning curve are. A training that was
    stopped goes on where it was.
    """
    from ttabench import runner
    from ttabench.cli._training import TrainJob, train_all
    from ttabench.data.catalog import dataset
    from ttabench.env import pick_device
    from ttabench.executors import inline, local
    from ttabench.grid import split_list
    from ttabench.models.checkpoints import cache as checkpoints

    chosen = pick_device(device)
    which: dict[str, Any] = {"recipe": recipe, "epochs": epochs or None, "seed": seed}
    todo = []
    for name in split_list(datasets):
        data = dataset(name)
        for arch in split_list(archs):
            if not force and checkpoints.find(arch, data, **which):
                held = checkpoints.load(arch, data, **which)
                print(f"{arch} on {name}: {held.clean_accuracy:.2f} % clean, trained already (see --force)")
                continue
            todo.append((arch, name))
    if todo:
        count = runner.pick_workers(workers, chosen, len(todo))
        share = threads or max(1, runner.cores() // max(1, count))
        jobs = [TrainJob(arch, name, chosen, share, epochs, seed, precision, recipe) for arch, name in todo]
        train_all(jobs, local.run if count else inline.run, count)
        for arch, name in todo:
            plot = checkpoints.curve(arch, dataset(name), **which)
            print(f"{arch} on {name}: model card {plot.with_suffix('.md')}, learning curve {plot}")
