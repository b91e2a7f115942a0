"""Verdicts on matched cells and on the means over them: whether a number fell."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ttabench.errors import UserError
from ttabench_reports.cells import frames
from ttabench_reports.compare.matching import KEY, OF_PROTOCOL, WEIGHTS
from ttabench_reports.compare.one_sided_tests import holm, one_of
from ttabench_reports.compare.paired_cells import PairedTests

MEAN_OVER = ("corruption", "seed", "history")
MEAN_OF = tuple(name for name in KEY if name not in MEAN_OVER)
"""What the cells of a mean share."""
# Percent. cells.csv has 4 decimals, so two sides may differ by this and be equal; one image in a
# million weighs as much, so no real change is lost.
SAME = 1e-4
NO_MEAN = "none"
"""The verdict on a mean of which no cell has a number on both sides."""
FAMILIES = 2
"""Families of tests: the cells, and the means over them. Either can fail the gate."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the gate lets pass.

    max_drop       points that a cell may fall.
    max_mean_drop  points that a mean over corruptions and seeds may fall.
    alpha          a fall beyond its bound fails only if a paired test, corrected for the number of tests,
                   confirms it at this level; where a side has no per-image correctness, the bound alone
                   decides. 1: no test.
    subset         whether the candidate may lack cells of the baseline.

    Raises UserError for a bound below 0 or infinite, and for an alpha outside (0, 1].
    """

    max_drop: float = 1.0
    max_mean_drop: float = 0.3
    alpha: float = 0.05
    subset: bool = False

    def __post_init__(self) -> None:
        for option, value in (("--max-drop", self.max_drop), ("--max-mean-drop", self.max_mean_drop)):
            if not value >= 0 or math.isinf(value):
                raise UserError(f"{option} is {value}; expected a number of points, 0 or more.")
        if not 0 < self.alpha <= 1:
            raise UserError(f"--alpha is {self.alpha}; expected a level above 0 and up to 1, e.g. 0.05.")


def of_cells(both: pd.DataFrame, bounds: Bounds) -> pd.Series[str]:
    """The verdict on each matched cell, see :class:`ttabench_reports.compare.comparison.Comparison`."""
    change = both["change"]
    verdict = _moved(change, both["p_value"], bounds.max_drop, bounds.alpha)
    before, after = both["accuracy_before"].notna(), both["accuracy_after"].notna()
    verdict[~before & ~after] = "neither"
    verdict[~before & after] = "gained"
    verdict[before & ~after] = "lost"
    verdict[both["_merge"] == "left_only"] = "missing"
    verdict[both["_merge"] == "right_only"] = "new"
    return verdict


def _moved(change: pd.Series[float], p: pd.Series[float], bound: float, alpha: float) -> pd.Series[str]:
    """same, moved, fell or chance."""
    verdict = pd.Series("same", change.index, dtype=object)
    verdict[change.abs() > SAME] = "moved"
    beyond = change < -(bound + SAME)
    verdict[beyond] = "fell"
    verdict[beyond & p.notna() & (p > alpha)] = "chance"
    return verdict


def of_means(both: pd.DataFrame, tests: PairedTests, bounds: Bounds) -> pd.DataFrame:
    """The means over corruptions and seeds, with their verdicts; rows as in `Comparison.means`."""
    by = list(MEAN_OF)
    known = both[both["_merge"] != "right_only"]
    paired = known[known["change"].notna()]
    means = known.groupby(by, sort=False).size().to_frame("of")
    means["cells"] = paired.groupby(by, sort=False).size().reindex(means.index, fill_value=0)
    sides = paired.groupby(by, sort=False)[["accuracy_before", "accuracy_after"]].mean()
    means = means.join(sides).rename(columns={"accuracy_before": "before", "accuracy_after": "after"})
    means["change"] = means["after"] - means["before"]
    members = {key: group.index.to_numpy() for key, group in paired.groupby(by, sort=False)}
    p = np.array([tests.mean(members[key]) if key in members else math.nan for key in means.index], float)
    differs = np.array([bool(tests.differs[members.get(key, [])].any()) for key in means.index], bool)
    means["p_value"] = one_of(FAMILIES, holm(p, differs))
    verdict = _moved(means["change"], means["p_value"], bounds.max_mean_drop, bounds.alpha)
    means["verdict"] = verdict.where(means["cells"] > 0, NO_MEAN)
    means = means.reset_index()
    return means.assign(variant=_variants(means))


def _variants(means: pd.DataFrame) -> pd.Series[str]:
    """What tells means of one name apart: weights, and of the protocol what is not usual, as iid order is."""
    same = ["method", "arch", "dataset", "severity"]
    within = {"batch_size": ["mode"], "epochs": ["mode"]}  # else these say it
    parts = [frames.differences(means.rename(columns={WEIGHTS: "checkpoint"}), same, ["checkpoint"])]
    for name in OF_PROTOCOL:
        part = frames.differences(means, [*same, *within.get(name, ())], [name])
        said = name in ("mode", "batch_size", "epochs")
        parts.append(part if said else part.where(means[name] != frames.USUAL[name], ""))
    return frames.joined(parts, means.index)
