"""What ``ttabench paper`` is asked for: its tasks, and what it refuses before anything is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench.data.balanced_subset import undrawn
from ttabench.data.catalog import dataset, listing
from ttabench.data.own.own_dataset_base import OwnDataset
from ttabench.errors import UserError
from ttabench.models.architectures.arch_names import resolve
from ttabench.paper.experiments import DATASETS, Task, check_dataset, network_of, stands_for, tasks
from ttabench.paper.rehearsal import Rehearsal
from ttabench.paper.sources import check_recipe
from ttabench.run.executors.workers import pick_workers
from ttabench.store import Store
from ttabench.sweep.option_table import OPTIONS
from ttabench.system.environment import pick_device

ALONE = "runtime"  # its own folder: its cells run one at a time


@dataclass(frozen=True)
class Asked:
    """The command: experiments and figures, and the options of the same names.

    network_figures   the figures that show a network and a dataset; the others show points or a drawing.
    """

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
    network_figures: Sequence[str] = ()

    @property
    def small(self) -> Rehearsal | None:
        return Rehearsal(self.scale, self.out / "data", self.seeds) if self.scale < 1 else None

    def folder_of(self, task: Task) -> Path:
        """The results folder of a task."""
        return self.out / (ALONE if task.experiment == ALONE else "results")


def table_tasks(asked: Asked) -> list[Task]:
    """The tasks of tables.

    Raises UserError for options that nothing uses, for names that no table has a place for, for a folder that
    cannot take the results, and where there is no task.
    """
    _refuse_unused(asked)
    for name in asked.datasets:
        check_dataset(name)
    for arch in asked.archs:
        if not network_of(arch):
            raise UserError(
                f"--archs {arch} is none of the paper's networks (ResNet18, CCT, CVT and ViT-Lite), so it "
                "has no place in a table; use ttabench sweep or ttabench figure for it."
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
    for folder in dict.fromkeys(asked.folder_of(task) for task in every):
        Store(folder).sweep_before({}, extend=True)
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


def refuse_lacking_images(task: Task) -> None:
    """Raises UserError where a dataset of the user's lacks what a table is of. Before anything is trained.

    Of the fifteen corruptions, it may have some: these are measured.
    """
    data = undrawn(dataset(task.dataset))
    if not isinstance(data, OwnDataset):
        return
    has = [name for name in task.grid.corruptions if name in data.corruptions]
    make = f"make the images with ttabench data generate, or leave {task.experiment} out with --only"
    if not has:
        of = task.grid.corruptions
        what = "none of the fifteen corruptions" if of == CORRUPTIONS else f"no {', '.join(of)}"
        raise UserError(f"{data.name} has {what}; {make}.")
    for name in has:
        lacking = [str(each) for each in task.grid.severities if each not in data.severities(name)]
        if lacking:
            raise UserError(f"{data.name} has no {name} at severity {', '.join(lacking)}; {make}.")


def refuse_nothing(asked: Asked, found: Sequence[Task], lacking: Mapping[str, str]) -> None:
    """Raises UserError where nothing can be measured or drawn; `lacking` says why."""
    drawable = not asked.experiments and {*asked.figures} - {*asked.network_figures}
    if found or drawable or not lacking:
        return
    raise UserError(
        "none of the datasets is here.\n" + "\n".join(lacking.values())
        + "\nTo rehearse without them: ttabench paper --scale 0.01"
    )  # fmt: skip
