"""Numbers that papers printed, to stand beside ours: facts about the papers, not measurements of this tool.

quantile2026  the appendix of the quantile-matching paper: CIFAR10-C, CIFAR100-C, TinyImageNet-C, severity 5.
tent2021      the README of TENT's official repository: RobustBench's Standard WRN-28-10, CIFAR10-C,
              severity 5, batch size 200, reset per corruption; printed there as errors.
"""

from __future__ import annotations

from importlib.resources import files

import pandas as pd

from ttabench.errors import unknown

COLUMNS = ("publication", "dataset", "severity", "arch", "method", "corruption", "accuracy")


def publications() -> list[str]:
    """The names that :func:`load` knows."""
    return sorted(f.name.removesuffix(".csv") for f in files(__name__).iterdir() if f.name.endswith(".csv"))


def load(*names: str) -> pd.DataFrame:
    """Published accuracies (percent, as printed) of some publications, or of all; columns :data:`COLUMNS`.

    The corruption ``mean`` is the mean as printed. Raises UserError for an unknown publication.
    """
    known = publications()
    for name in names:
        if name not in known:
            raise unknown("publication", name, known)
    frames = []
    for name in names or known:
        with (files(__name__) / f"{name}.csv").open(encoding="utf-8") as file:
            frames.append(pd.read_csv(file).assign(publication=name))
    return pd.concat(frames, ignore_index=True)[list(COLUMNS)]
