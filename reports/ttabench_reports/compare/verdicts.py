"""Whether one set of results is as good as another: cells matched one by one, means over them, verdicts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ttabench.errors import UserError, counted, first_of
from ttabench.system.garbage_collection import paused
from ttabench_reports.cells import frames
from ttabench_reports.cells.frames import PROTOCOL
from ttabench_reports.compare.cards import Difference, differences
from ttabench_reports.compare.one_sided_tests import holm, one_of, typical_smallest_fall
from ttabench_reports.compare.paired_cells import PairedTests
from ttabench_reports.compare.sides import STATUS, Side, side
from ttabench_reports.words import naming

# The compute ratio of a pace is measured anew for each folder.
OF_PROTOCOL = tuple(name for name in PROTOCOL if name != "pace_ratio")
SAME_CELL = ("method", "arch", "dataset", "corruption", "severity", "seed")
"""What a cell keeps under another protocol."""
KEY = (*SAME_CELL, *OF_PROTOCOL, "history")
MEAN_OVER = ("corruption", "seed", "history")
MEAN_OF = tuple(name for name in KEY if name not in MEAN_OVER)
"""What the cells of a mean share."""
# Percent. cells.csv has 4 decimals, so two sides may differ by this and be equal; one image in a
# million weighs as much, so no real change is lost.
SAME = 1e-4
BAD = ("fell", "lost", "missing")
CHANGED = ("moved", "chance", "fell", "lost")
"""Verdicts on cells of both sides whose causes are looked for."""
_REAL_KEYS = ("held_out", "pace")
RECORDED = {
    "config": "settings", "versions": "versions", "source": "source of the method", "fingerprint": "data",
    "checkpoint": "weights",
}  # fmt: skip
"""What a reader wants to know that it does not differ, by the key of a card."""
TWINS_DIFFER_IN = [*KEY, "config", "checkpoint", "fingerprint", "foreign"]
SHOWN = [
    *KEY, "accuracy", "status", "reason", "fingerprint", "foreign", "checkpoint", "config", "n_images",
    "cell_id", "pace_ratio",
]  # fmt: skip
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


@dataclass(frozen=True)
class Comparison:
    """Two sets of results, matched cell by cell.

    cells     one row per cell of either: :data:`KEY`, accuracy_before, accuracy_after, change (points),
              p_value (one-sided, corrected for the number of tests; NaN where there was no test),
              status_before, status_after, reason_after, verdict: same | moved (rose, or fell within the
              bound) | chance (beyond it, but the test does not confirm it) | fell | lost (had a number, has
              none) | gained | missing | new; variant: that of its mean.
    means     one row per method × arch × dataset × severity × protocol (:data:`MEAN_OF`): before, after,
              change over the cells with a number in both, every cell weighing the same; `cells` of `of`;
              p_value; verdict; variant: what of the protocol differs from the other means of this method
              here, such as ``offline, 3 epochs``; "" for a mean on its own.
    warnings  why the two may not be comparable at all; sentences.
    causes    how the protocol cards of the cells that moved, fell or lost their number differ.
    stale     which cells of either side were made with other code than is installed, and what changed;
              sentences.
    recorded  where `causes` is empty: what both sides hold of each cell that moved, such as ``settings``.
    smallest_fall  points: the smallest fall of a cell that the test could have confirmed with as many images
              and changes as there are, the median over the tested cells; NaN without a test.
    """

    cells: pd.DataFrame
    means: pd.DataFrame
    warnings: tuple[str, ...]
    bounds: Bounds
    causes: tuple[Difference, ...] = ()
    stale: tuple[str, ...] = ()
    names: tuple[str, str] = ("baseline", "candidate")
    recorded: tuple[str, ...] = ()
    smallest_fall: float = math.nan

    @property
    def failed(self) -> bool:
        """Whether a cell or a mean fell, or a cell lost its number or, unless it may, is missing."""
        return bool(self.cells["verdict"].isin(self.bad).any() or (self.means["verdict"] == "fell").any())

    @property
    def changed(self) -> bool:
        """Whether a cell is not as it was; if not, `causes` says nothing of how the two differ."""
        return bool(self.cells["verdict"].isin(CHANGED).any())

    @property
    def bad(self) -> list[str]:
        """The verdicts on cells that fail; a subset may lack cells, but not all of them."""
        shared = not self.cells["verdict"].isin(["missing", "new"]).all()
        return [verdict for verdict in BAD if verdict != "missing" or not (self.bounds.subset and shared)]

    def count(self, verdict: str) -> int:
        """Cells with this verdict."""
        return int((self.cells["verdict"] == verdict).sum())


@paused()
def compare(
    baseline: pd.DataFrame | Path | str | Side,
    candidate: pd.DataFrame | Path | str | Side,
    max_drop: float = 1.0,
    max_mean_drop: float = 0.3,
    alpha: float = 0.05,
    subset: bool = False,
) -> Comparison:
    """Hold `candidate` against `baseline`: each a table of cells, a results folder or a ``cells.csv``.

    Raises UserError for bounds out of range (:class:`Bounds`), for what is not a table with cells, and where
    nothing fails only because no cell has a number on both sides.
    """
    bounds = Bounds(max_drop, max_mean_drop, alpha, subset)
    before, after = side(baseline, "baseline"), side(candidate, "candidate")
    both, twins = match(before, after)
    tests = PairedTests(both, before, after)
    both["p_value"] = one_of(FAMILIES, holm(tests.cells(), tests.differs))
    both["verdict"] = _verdicts(both, bounds)
    means = _means(both, tests, bounds)
    changed = both[both["verdict"].isin(CHANGED)]
    unlike = differences(card_pairs(changed, before, after), whole=before.whole and after.whole)
    causes = [one for one in unlike if one.key != STATUS]  # a lost number is shown with its cell
    recorded = () if causes else _recorded(card_pairs(changed, before, after))
    warnings = [*_twins("baseline", twins[0]), *_twins("candidate", twins[1]), *_unlike(both)]
    shown = [*KEY, *(f"{n}_{s}" for n in ("accuracy", "status", "reason") for s in ("before", "after"))]
    cells = both[[*shown, "change", "p_value", "verdict"]].merge(
        means[[*MEAN_OF, "variant"]], how="left", on=list(MEAN_OF)
    )
    cells["variant"] = cells["variant"].fillna("")  # new cells have no mean
    stale = (*_stale("baseline", before), *_stale("candidate", after))
    names = before.name, after.name
    smallest = typical_smallest_fall(
        tests.changed()[tests.testable],
        tests.sizes[tests.testable],
        alpha / FAMILIES,
        int(tests.differs.sum()),
    )
    outcome = Comparison(
        cells, means, tuple(warnings), bounds, tuple(causes), stale, names, recorded, smallest
    )
    if not outcome.failed and not both["change"].notna().any():
        raise UserError(
            f"no cell has a number on both sides: {before.name} has {_numbers(before)}, {after.name} has "
            f"{_numbers(after)}; there is nothing to compare. Run both sweeps until their cells have numbers."
        )
    return outcome


def _numbers(of: Side) -> str:
    return f"{counted(int(of.cells['accuracy'].notna().sum()), 'number')} in {counted(len(of.cells), 'cell')}"


def match(before: Side, after: Side) -> tuple[pd.DataFrame, tuple[int, int]]:
    """The cells of both sides with the same :data:`KEY` side by side; how many twins each side had.

    Of twins, those count whose data, weights and settings the other side has too; else the latest.
    """
    left, right = _best(before.cells), _best(after.cells)
    left = _last(left, right)
    right = _last(right, left)
    left_twins, right_twins = len(before.cells) - len(left), len(after.cells) - len(right)
    left, right = left[SHOWN], right[SHOWN]
    both = left.merge(right, how="outer", on=list(KEY), suffixes=("_before", "_after"), indicator=True)
    both["change"] = both["accuracy_after"] - both["accuracy_before"]
    both["_place"] = both["corruption"].map(naming.corruption_key)
    order = ["dataset", "severity", "arch", "method", "_place", *KEY]
    both = both.sort_values(list(dict.fromkeys(order)), ignore_index=True).drop(columns="_place")
    return both, (left_twins, right_twins)


def in_other_protocols(both: pd.DataFrame) -> pd.DataFrame:
    """Cells that only one side has, paired one to one with those of the other side under another protocol.

    The pairs that differ in the fewest columns of the protocol come first, so that online stays with online.
    The rest of :data:`KEY` and the ids have the suffixes ``_before`` and ``_after``.
    """
    may_differ = KEY[len(SAME_CELL) :]
    sides = [
        both.loc[both["_merge"] == word, [*KEY, cell_id]]
        for word, cell_id in (("left_only", "cell_id_before"), ("right_only", "cell_id_after"))
    ]
    pairs = sides[0].merge(sides[1], on=list(SAME_CELL), suffixes=("_before", "_after"))
    unlike = sum((pairs[f"{name}_before"] != pairs[f"{name}_after"]).astype(int) for name in may_differ)
    nearest = pairs.assign(_unlike=unlike).sort_values("_unlike", kind="stable")
    partner: dict[str, str] = {}
    taken: set[str] = set()
    for one, other in zip(nearest["cell_id_before"], nearest["cell_id_after"], strict=True):
        if one not in partner and other not in taken:
            partner[one] = other
            taken.add(other)
    return pairs[pairs["cell_id_before"].map(partner) == pairs["cell_id_after"]]


def card_pairs(both: pd.DataFrame, before: Side, after: Side) -> Iterator[Any]:
    """(method, architecture, data set) and the two cards of each cell that both sides have."""
    paired = both[both["_merge"] == "both"]
    places = zip(paired["method"], paired["arch"], paired["dataset"], strict=True)
    ids = zip(paired["cell_id_before"], paired["cell_id_after"], strict=True)
    for place, (one, other) in zip(places, ids, strict=True):
        yield place, before.card(one), after.card(other)


def _recorded(pairs: Iterator[Any]) -> tuple[str, ...]:
    """The words of :data:`RECORDED` whose keys all cards have."""
    known = set(RECORDED)
    for _, before, after in pairs:
        known &= before.keys() & after.keys()
    return tuple(word for key, word in RECORDED.items() if key in known)


def _best(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per key, data, weights and settings: the latest.

    A number stands before a later failure with the same settings, weights and data, as at another compute
    ratio; but not before one with others: the candidate has lost that number.
    """
    frame = frames.with_hashes(frame.round(dict.fromkeys(_REAL_KEYS, 4)))  # as older cells.csv have them
    return frames.latest_last(frame).drop_duplicates(TWINS_DIFFER_IN, keep="last")


def _last(frame: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """One row per key: the latest whose data, weights and settings the other side has too; else the latest.

    A latest one without a number always counts: it is a loss.
    """
    theirs = other[TWINS_DIFFER_IN].drop_duplicates().assign(_shared=True)
    marked = frame.merge(theirs, how="left", on=TWINS_DIFFER_IN).sort_values("written", kind="stable")
    lost = marked["accuracy"].isna() & ~marked.duplicated(list(KEY), keep="last")
    marked["_first"] = marked["_shared"].notna() | lost
    marked["_lost"] = lost
    return marked.sort_values(["_first", "_lost"], kind="stable").drop_duplicates(list(KEY), keep="last")


def _verdicts(both: pd.DataFrame, bounds: Bounds) -> pd.Series[str]:
    change = both["change"]
    verdict = _moved(change, both["p_value"], bounds.max_drop, bounds.alpha)
    verdict[both["accuracy_before"].isna() & both["accuracy_after"].notna()] = "gained"
    verdict[both["accuracy_before"].notna() & both["accuracy_after"].isna()] = "lost"
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


# ---- the means


def _means(both: pd.DataFrame, tests: PairedTests, bounds: Bounds) -> pd.DataFrame:
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
    means["verdict"] = _moved(means["change"], means["p_value"], bounds.max_mean_drop, bounds.alpha)
    means = means.reset_index()
    return means.assign(variant=_variants(means))


def _variants(means: pd.DataFrame) -> pd.Series[str]:
    """What of the protocol tells means of one name apart; what is usual, such as iid order, is not said."""
    same = ["method", "arch", "dataset", "severity"]
    within = {"batch_size": ["mode"], "epochs": ["mode"]}  # else these say it
    parts = []
    for name in OF_PROTOCOL:
        part = frames.differences(means, [*same, *within.get(name, ())], [name])
        said = name in ("mode", "batch_size", "epochs")
        parts.append(part if said else part.where(means[name] != frames.USUAL[name], ""))
    return frames.joined(parts, means.index)


# ---- what the two sides do not share


def _twins(word: str, count: int) -> list[str]:
    if not count:
        return []
    return [
        f"the {word} has {counted(count, 'cell')} more than once (other settings, weights, data or "
        "compute ratio); those that both sides have count, else the latest."
    ]


def _stale(word: str, of: Side) -> list[str]:
    return [
        f"{counted(count, 'cell')} of {method} in the {word}: {changed}."
        for (method, changed), count in sorted(of.stale.items())
    ]


def _unlike(both: pd.DataFrame) -> list[str]:
    """What differs though method, architecture and dataset have the same names."""
    pairs = both[both["_merge"] == "both"]
    warnings = []
    for column, by, what in (
        ("fingerprint", ["dataset"], "not the same data"),
        ("foreign", ["contamination"], "not the same data contaminate the stream"),
        ("checkpoint", ["arch", "dataset"], "not the same weights"),
        ("n_images", ["dataset"], "not the same number of images"),
    ):
        left, right = pairs[f"{column}_before"], pairs[f"{column}_after"]
        known = ~left.isin(["", 0]) & ~right.isin(["", 0])
        unlike = pairs.loc[known & (left != right), by].drop_duplicates()
        if len(unlike):
            names = ", ".join(" on ".join(map(str, row)) for row in unlike.itertuples(index=False))
            warnings.append(f"{what}: {names}.")
    unlike = pairs[(pairs["config_before"] != pairs["config_after"]) & (pairs["config_before"] != "")]
    changed = unlike[unlike["config_after"] != ""].drop_duplicates(
        ["method", "config_before", "config_after"]
    )
    warnings += [
        f"not the same settings: {row.method}: {settings}."
        for row in changed.itertuples()
        if (settings := _settings(row.config_before, row.config_after))
    ]
    some_may_be_the_same = {"left_only", "right_only"} <= {*both["_merge"]}
    sides = ("the baseline", "the candidate")
    renamed = (*_other_protocol(both), *other_settings(both, sides)) if some_may_be_the_same else ()
    more = (*_other_ratio(both), *renamed, *_nothing_shared(both))
    return list(dict.fromkeys([*warnings, *more]))


def _other_ratio(both: pd.DataFrame) -> Iterator[str]:
    """Whether cells at a pace were run with other compute ratios."""
    paced = both[(both["_merge"] == "both") & (both["pace"] > 0)]
    changed = paced[(paced["pace_ratio_before"] - paced["pace_ratio_after"]).abs() > SAME]
    for row in changed.drop_duplicates(["method", "pace_ratio_before", "pace_ratio_after"]).itertuples():
        ratios = f"{row.pace_ratio_before:g} → {row.pace_ratio_after:g}"
        yield f"not the same compute ratio: {row.method}: {ratios}; --pace-ratio gives both sides one."


def _other_protocol(both: pd.DataFrame) -> Iterator[str]:
    """Whether missing cells are there under another protocol."""
    pairs = in_other_protocols(both)
    for name in OF_PROTOCOL:
        before, after = f"{name}_before", f"{name}_after"
        changed = pairs[pairs[before] != pairs[after]].drop_duplicates(["method", before, after])
        for row in changed.to_dict("records"):
            yield f"not the same protocol: {row['method']}: {name} {row[before]} → {row[after]}."


def other_settings(both: pd.DataFrame, sides: Sequence[str]) -> Iterator[str]:
    """Whether missing cells are there with other settings, which are in the name of a row: tent[lr=0.01].

    sides  what the two are called.
    """
    by = [name for name in KEY if name != "method"] + ["base"]
    named = both.assign(base=both["method"].str.partition("[")[0])
    missing, new = (named[named["_merge"] == one] for one in ("left_only", "right_only"))
    pairs = missing.merge(new, on=by, suffixes=("_before", "_after"))
    for _, pair in pairs.groupby("base"):
        before, after = (", ".join(pair[f"method_{side}"].unique()) for side in ("before", "after"))
        yield f"not the same settings: {before} in {sides[0]}; {after} in {sides[1]}."


def _nothing_shared(both: pd.DataFrame) -> Iterator[str]:
    """Which names keep two sides without a common cell apart: those of which they share none."""
    if (both["_merge"] == "both").any():
        return
    sides = [both[both["_merge"] == one] for one in ("left_only", "right_only")]
    for name in ("dataset", "arch", "corruption", "severity", "seed", "method"):
        old, new = (list(map(str, side[name].unique())) for side in sides)
        if old and new and not {*old} & {*new}:
            yield f"no common cell: {name} {first_of(old)} in the baseline; {first_of(new)} in the candidate."


def _settings(before: Any, after: Any) -> str:
    try:
        old, new = dict(json.loads(before)), dict(json.loads(after))
    except (ValueError, TypeError):
        return f"{before} → {after}"
    keys = [key for key in sorted(old | new) if old.get(key) != new.get(key)]
    return ", ".join(f"{key} {old.get(key, 'unset')} → {new.get(key, 'unset')}" for key in keys)
