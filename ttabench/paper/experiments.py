"""What the experiments of the paper measure: one sweep file each, as a list of tasks. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import as_file, files

from ttabench.data.catalog import EMBEDDED, NAMES
from ttabench.errors import UserError, unknown
from ttabench.sweep.grid import Grid
from ttabench.sweep.options_to_grid import make_grid
from ttabench.sweep.plain_grids import dataset_names, plain_grids
from ttabench.sweep.sweep_file import read_sweep_file, with_flags

EXPERIMENTS = ("table1", "table2", "table3", "severity", "runtime")
FIGURES = (
    "pipeline", "tsne", "loss-vs-mse", "quantile-index", "quantile-field", "six-blobs", "two-moons",
    "bad-start", "informative-quantiles",
)  # fmt: skip
DATASETS = ("cifar10-c", "cifar100-c", "tinyimagenet-c")
"""Those of the paper."""
MEASURABLE = (EMBEDDED, *DATASETS, "imagenet-c")
"""Those that come with ttabench or can be fetched, and that have the corruptions of the tables."""
OFFICIAL = "official/"
_FOLDER = "sweeps"
_STANDS = (("cifar10-c", r"cifar-?10"), ("cifar100-c", r"cifar-?100"), ("tinyimagenet-c", r"tiny-?imagenet"))
_NOT_OTHERS = r"(?!\.?[0-9]|-?c-bar)"
"""CIFAR10.1 has other images than CIFAR10-C, and CIFAR10-C-Bar other corruptions."""

_NETWORKS = {"resnet": "resnet18", "cct": "cct", "cvt": "cvt", "vit": "vit_lite"}
"""How the name of an architecture begins → the network of the paper that it speaks of."""


@dataclass(frozen=True)
class Task:
    """One network on one dataset, of an experiment; `grid` has this architecture and dataset alone."""

    experiment: str
    grid: Grid

    @property
    def arch(self) -> str:
        return self.grid.archs[0]

    @property
    def dataset(self) -> str:
        return self.grid.datasets[0]

    def with_seeds(self, seeds: Sequence[int]) -> Task:
        return replace(self, grid=replace(self.grid, seeds=tuple(seeds)))

    def on(self, dataset: str, arch: str) -> Task:
        return replace(self, grid=replace(self.grid, datasets=(dataset,), archs=(arch,)))


def asked(only: Sequence[str]) -> tuple[list[str], list[str]]:
    """The experiments and figures that `only` names; all for none. Raises UserError for an unknown one."""
    for name in only:
        if name not in (*EXPERIMENTS, *FIGURES):
            raise unknown("table or figure of the paper", name, [*EXPERIMENTS, *FIGURES])
    chosen = set(only) or {*EXPERIMENTS, *FIGURES}
    return [e for e in EXPERIMENTS if e in chosen], [f for f in FIGURES if f in chosen]


def title(experiment: str) -> str:
    """What a sweep file says of itself, its first line."""
    text = files(__package__).joinpath(_FOLDER, f"{experiment}.toml").read_text(encoding="utf-8")
    return text.partition("\n")[0].lstrip("# ")


def stands_for(dataset: str) -> str:
    """The dataset of the paper that a name speaks of: ``my-cifar10-c-local`` → ``cifar10-c``; "" for none."""
    for published, pattern in _STANDS:
        if dataset == published or re.search(rf"(?<![a-z0-9]){pattern}{_NOT_OTHERS}", dataset.lower()):
            return published
    return ""


def check_dataset(name: str) -> None:
    """Raises UserError for a published dataset that has none of the corruptions of the tables."""
    if dataset_names(name) & ({*NAMES} - {*MEASURABLE}):
        raise UserError(
            f"--datasets {name}: it has none of the corruptions of the paper's tables; name one of "
            f"{', '.join(MEASURABLE)}, or one of your own."
        )


def network_of(arch: str) -> str:
    """The network of the paper that a name speaks of: ``official/cct_7`` → ``cct``; "" for none."""
    name = re.split("[/:]", arch)[-1].lower()
    return next((network for start, network in _NETWORKS.items() if name.startswith(start)), "")


def datasets_of(experiment: str) -> list[str]:
    """The datasets of the paper that an experiment has."""
    return list(dict.fromkeys(name for grid in _grids(experiment) for name in grid.datasets))


def tasks(experiment: str, datasets: Sequence[str] = (), archs: Sequence[str] = ()) -> list[Task]:
    """The tasks of an experiment, each once.

    datasets  in place of the experiment's own. One that stands for a dataset of the paper takes the place of
              that one, and nothing else; any other is measured in every experiment.
    archs     in place of the experiment's own; those that stand for none of its networks are left out.
    """
    found: list[Task] = []
    for grid in _grids(experiment):
        for name in _datasets(grid, datasets):
            for arch in _archs(grid, archs):
                task = Task(experiment, grid).on(name, _fitting(arch, name, named=bool(archs)))
                if task not in found:
                    found.append(task)
    return found


def _grids(experiment: str) -> list[Grid]:
    with as_file(files(__package__).joinpath(_FOLDER, f"{experiment}.toml")) as file:
        return plain_grids(make_grid(with_flags(read_sweep_file(file), {})))


def _datasets(grid: Grid, given: Sequence[str]) -> list[str]:
    if not given:
        return [*grid.datasets]
    return [name for name in given if not stands_for(name) or stands_for(name) in grid.datasets]


def _archs(grid: Grid, given: Sequence[str]) -> list[str]:
    networks = {network_of(arch) for arch in grid.archs}
    return [arch for arch in given or grid.archs if network_of(arch) in networks]


def _fitting(arch: str, dataset: str, *, named: bool) -> str:
    """Published weights are for CIFAR; elsewhere the network is trained, unless the user named them."""
    published = ("cifar10-c", "cifar100-c")
    own = dataset not in DATASETS
    if arch.startswith(OFFICIAL) and dataset not in published and not (own and named):
        return trained_here(arch)
    return arch


def trained_here(arch: str) -> str:
    """The architecture of published weights, as one that is trained here: ``official/cct_7`` → ``cct``."""
    return "cct" if arch == f"{OFFICIAL}cct_7" else arch.removeprefix(OFFICIAL)
