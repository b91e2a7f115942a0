"""A small form of the experiments: small networks, few images, few epochs. Its numbers mean nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from ttabench.data.catalog import EMBEDDED, dataset
from ttabench.data.dataset import Labelled
from ttabench.data.files.array_files import save_npz
from ttabench.data.own.generate_corrupted import generate
from ttabench.errors import UserError
from ttabench.paper.experiments import OFFICIAL, Task, network_of
from ttabench.sweep.options_to_grid import corruption_names
from ttabench.sweep.plain_grids import method_names
from ttabench.system.files import replacing, writing

SMALL = {
    "resnet18": "resnet18_w16", "official/cct_7": "cct_2_3x2_32", "cct": "cct_2_3x2_32",
    "cvt": "cvt_2_4_32", "vit_lite": "vit_2_4_32",
}  # fmt: skip
"""Networks of the same kinds for images of 32 pixels."""
SIDE = 32
IMAGES = 60  # of the embedded dataset, which is small already
EPOCHS = 10  # of all forms of quantile matching, of which a rehearsal has a share
MATCHING = ("quantile", "quantile_paper", "quantile_strict")


@dataclass(frozen=True)
class Rehearsal:
    """How small.

    scale   the share of images, corruptions and epochs; at least one of each.
    folder  for small datasets.
    seeds   those that the user names, or one.
    """

    scale: float
    folder: Path
    seeds: Sequence[int] = ()

    def task(self, task: Task) -> Task:
        """The small form of a task: with the embedded dataset where the task's is not here."""
        name = self.dataset(task)
        arch = _embedded(task.arch) if name == EMBEDDED else SMALL.get(task.arch, task.arch)
        used = method_names(task.grid.methods)
        fewer = tuple(f"{name}.epochs={self.epochs(EPOCHS)}" for name in MATCHING if name in used)
        grid = replace(
            task.grid, corruptions=self._corruptions(task.grid.corruptions), seeds=tuple(self.seeds) or (0,),
            limit=IMAGES if name == EMBEDDED else 0, settings=(*task.grid.settings, *fewer),
        )  # fmt: skip
        return replace(task, grid=grid).on(name, arch)

    def epochs(self, whole: int) -> int:
        return max(1, round(self.scale * whole))

    def _corruptions(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(names[: max(1, round(self.scale * len(names)))])

    def dataset(self, task: Task) -> str:
        """The name of a small dataset with the task's images, or the embedded one."""
        try:
            data = dataset(task.dataset)
            if data.name == EMBEDDED:
                return EMBEDDED
            clean = data.train(), data.test()
        except UserError:
            return EMBEDDED
        base = f"{data.name.removesuffix('-local').removesuffix('-c')}-x{self.scale:g}"
        self.folder.mkdir(parents=True, exist_ok=True)
        for part, labelled in zip(("train", "test"), clean, strict=True):
            file = self.folder / f"{base}.{part}.npz"
            if not file.exists():
                with writing(file), replacing(file) as whole:
                    save_npz(whole, share(labelled, self.scale))
        made = generate(
            self.folder / f"{base}.test.npz", train=self.folder / f"{base}.train.npz", name=base, size=SIDE,
            corruptions=self._corruptions(corruption_names("all")), severities=(1, 2, 3, 4, 5),
            root=self.folder, workers=0,
        )  # fmt: skip
        return dataset(str(made)).name  # opened once, so that workers know its name


def _embedded(arch: str) -> str:
    """A network for the embedded dataset; in place of published weights, the small one of their family."""
    return network_of(arch) if arch.startswith(OFFICIAL) else arch


def share(labelled: Labelled, scale: float) -> Labelled:
    """The first images of each class, so many that they are `scale` of all; at least one of each class."""
    of_class = pd.Series(labelled.labels).groupby(labelled.labels)
    each = max(1, math.ceil(scale * len(labelled) / of_class.ngroups))
    kept = of_class.head(each).index.to_numpy()
    return Labelled(np.asarray(labelled.images)[kept], labelled.labels[kept])
