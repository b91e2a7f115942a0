"""``ttabench train``: train source classifiers."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated

from typer import Option

if TYPE_CHECKING:
    from ttabench.models.trained_model import TrainedModel


def train(
    archs: Annotated[
        str, Option(metavar="NAMES", help="Architectures, also package.module:callable.")
    ] = "resnet18,cct",
    datasets: Annotated[str, Option(metavar="NAMES", help="Datasets, by name or path.")] = "digits-c",
    epochs: Annotated[
        int, Option(metavar="COUNT", help="Passes over the training images; 0 = as the recipe says.", min=0)
    ] = 0,
    seed: Annotated[
        int, Option(metavar="NUMBER", help="The seed of initialisation, order and augmentation.", min=0)
    ] = 0,
    precision: Annotated[str, Option(metavar="TYPE", help="auto, float32 or bfloat16.")] = "auto",
    device: Annotated[str, Option(metavar="DEVICE", help="auto, cpu, cuda, cuda:1 …")] = "auto",
    workers: Annotated[
        str,
        Option(metavar="COUNT", help="Classifiers trained at once: auto or a number; 0 = in this process."),
    ] = "auto",
    threads: Annotated[
        int,
        Option(
            metavar="COUNT",
            help="CPU threads per classifier, if its recipe does not set them; 0 = cores / workers.",
            min=0,
        ),
    ] = 0,
    recipe: Annotated[
        str,
        Option(
            metavar="NAME",
            help="fast, paper or cross-entropy. With -portable at the end: the same weights on all x86-64 "
            "processors with AVX2.",
        ),
    ] = "fast",
    no_mirror: Annotated[
        bool,
        Option(
            "--no-mirror", help="Do not mirror images at random in training: for text, signs and the like."
        ),
    ] = False,
    force: Annotated[bool, Option("--force", help="Train again even if it is trained already.")] = False,
) -> None:
    """Train a source classifier for each architecture and dataset, and keep it in the cache.

    Prints the clean accuracy, and where the model card and the learning curve are. If a training was stopped,
    the same command goes on from the last saved epoch, which is at most half a minute and an epoch old.
    """
    from ttabench.data.catalog import check_names, dataset
    from ttabench.data.own.doubts import warn_of_doubts
    from ttabench.method.spelling import distinct_list
    from ttabench.models.resolve import resolve_trainable
    from ttabench.models.trained_model import note_on_mirrors
    from ttabench.models.training import portable
    from ttabench.models.training.recipes import NO_MIRROR, PORTABLE
    from ttabench.models.training.train import check_precision
    from ttabench.run.executors.workers import pick_executor, pick_workers
    from ttabench.sweep.grid import check_seed
    from ttabench.sweep.options_to_grid import count as checked_count
    from ttabench.sweep.progress.training import train_all
    from ttabench.sweep.train_sources import TrainJob
    from ttabench.system.cores import available_cores
    from ttabench.system.environment import pick_device

    everywhere = recipe.endswith(PORTABLE)
    chosen = "cpu" if everywhere and device == "auto" else pick_device(device)
    pick_workers(workers, chosen, 1)  # mistakes come out before anything is printed
    check_precision(precision)
    check_seed(seed)
    for option, number in (("--epochs", epochs), ("--threads", threads)):
        checked_count(number, option)
    if everywhere:
        portable.check_options(chosen, precision)
    recipe = f"{recipe.removesuffix(NO_MIRROR)}{NO_MIRROR}" if no_mirror else recipe
    todo: list[TrainedModel] = []
    opened = [dataset(name) for name in distinct_list(datasets, "--datasets")]
    check_names(opened)
    for data in opened:
        warn_of_doubts(data, ())
    for data in opened:
        for arch in distinct_list(archs, "--archs"):
            model = resolve_trainable(arch, data, recipe=recipe, epochs=epochs, seed=seed)
            if model.plan and not force and model.ready:
                loaded = model.load()
                why = "comes with ttabench" if loaded.pretrained else "trained already"
                print(f"{model}: {loaded.clean_accuracy:.2f} % clean, {why} (see --force)")
                tell_checkpoint(model)
            else:
                todo.append(model)
    if note := note_on_mirrors(todo):
        print(note, file=sys.stderr)
    if todo:
        count = pick_workers(workers, chosen, len(todo))
        share = threads or max(1, available_cores() // max(1, count))
        jobs = [
            TrainJob(model.name, model.dataset.name, chosen, share, epochs, seed, precision, recipe, force)
            for model in todo
        ]
        kernels = portable.KERNELS if everywhere else {}
        train_all(jobs, pick_executor(count, chosen, variables=kernels), count)
        for model in todo:
            plot = model.plot_learning_curve()
            print(f"{model}: model card {plot.with_suffix('.md')}, learning curve {plot}")
            tell_checkpoint(model)


def tell_checkpoint(model: TrainedModel) -> None:
    """How a sweep uses weights that it does not find by itself.

    By itself it finds those of our architectures, trained by the recipe with its own epochs and seed 0.
    """
    from ttabench.models.resolve import resolve_trainable

    if ":" in model.name or resolve_trainable(model.name, model.dataset).plan != model.plan:
        path = shlex.quote(str(model.load().path))
        print(
            f"To use these weights: --archs {model.name} --datasets {model.dataset.name} --checkpoint {path}"
        )
