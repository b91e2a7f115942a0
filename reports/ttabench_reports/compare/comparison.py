"""Whether one set of results is as good as another."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ttabench.errors import UserError, counted
from ttabench.provenance.staleness import attested_note
from ttabench.system.garbage_collection import paused
from ttabench_reports.compare import verdicts
from ttabench_reports.compare.card_differences import Difference, differences
from ttabench_reports.compare.matching import KEY, card_pairs, match
from ttabench_reports.compare.one_sided_tests import holm, one_of, typical_smallest_fall
from ttabench_reports.compare.paired_cells import PairedTests
from ttabench_reports.compare.sides import STATUS, Side, side
from ttabench_reports.compare.unlike import unlike_in
from ttabench_reports.compare.verdicts import FAMILIES, MEAN_OF, Bounds

BAD = ("fell", "lost", "missing")
CHANGED = ("moved", "chance", "fell", "lost")
"""Verdicts on cells of both sides whose causes are looked for."""
RECORDED = {
    "config": "settings", "versions": "versions", "source": "source of the method", "fingerprint": "data",
    "checkpoint": "weights",
}  # fmt: skip
"""What a reader wants to know that it does not differ, by the key of a card."""


@dataclass(frozen=True)
class Comparison:
    """Two sets of results, matched cell by cell.

    cells     one row per cell of either: :data:`KEY`, accuracy_before, accuracy_after, change (points),
              p_value (one-sided, corrected for the number of tests; NaN where there was no test),
              status_before, status_after, reason_after, verdict: same | moved (rose, or fell within the
              bound) | chance (beyond it, but the test does not confirm it) | fell | lost (had a number, has
              none) | gained | neither (no number on both sides) | missing | new; variant: that of its mean.
    means     one row per method × arch × dataset × severity × protocol × weights (:data:`MEAN_OF`): before,
              after, change over the cells with a number in both, every cell weighing the same; `cells` of
              `of`; p_value; verdict: same | moved | chance | fell, or none where `cells` is 0; variant: what
              of the protocol or the weights differs from the other means of this method here, such as
              ``offline, 3 epochs``; "" for a mean on its own.
    warnings  why the two may not be comparable at all; sentences.
    causes    how the protocol cards of the cells that moved, fell or lost their number differ.
    stale     which cells of either side were made with other code than is installed, and what changed;
              sentences.
    attested  that cells of either side count as fresh because a sample of them ran again; "" if none do.
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
    attested: str = ""

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
    both["verdict"] = verdicts.of_cells(both, bounds)
    means = verdicts.of_means(both, tests, bounds)
    changed = both[both["verdict"].isin(CHANGED)]
    unlike = differences(card_pairs(changed, before, after), whole=before.whole and after.whole)
    causes = [one for one in unlike if one.key != STATUS]  # a lost number is shown with its cell
    recorded = () if causes else _recorded(card_pairs(changed, before, after))
    warnings = [*_twins("baseline", twins[0]), *_twins("candidate", twins[1]), *unlike_in(both)]
    shown = [*KEY, *(f"{n}_{s}" for n in ("accuracy", "status", "reason") for s in ("before", "after"))]
    cells = both[[*shown, "change", "p_value", "verdict"]].merge(
        means[[*MEAN_OF, "variant"]], how="left", on=list(MEAN_OF)
    )
    cells["variant"] = cells["variant"].fillna("")  # new cells have no mean
    stale = (*_stale("baseline", before), *_stale("candidate", after))
    attested = attested_note(flag for each in (before, after) for flag in each.cells.get("attested", ()))
    names = before.name, after.name
    smallest = typical_smallest_fall(
        tests.changed()[tests.testable],
        tests.sizes[tests.testable],
        alpha / FAMILIES,
        int(tests.differs.sum()),
    )
    outcome = Comparison(
        cells, means, tuple(warnings), bounds, tuple(causes), stale, names, recorded, smallest, attested
    )
    if not outcome.failed and not both["change"].notna().any():
        raise UserError(
            f"no cell has a number on both sides: {before.name} has {_numbers(before)}, {after.name} has "
            f"{_numbers(after)}; there is nothing to compare. Run both sweeps until their cells have numbers."
        )
    return outcome


def _numbers(of: Side) -> str:
    return f"{counted(int(of.cells['accuracy'].notna().sum()), 'number')} in {counted(len(of.cells), 'cell')}"


def _recorded(pairs: Iterator[Any]) -> tuple[str, ...]:
    """The words of :data:`RECORDED` whose keys all cards have."""
    known = set(RECORDED)
    for _, before, after in pairs:
        known &= before.keys() & after.keys()
    return tuple(word for key, word in RECORDED.items() if key in known)


def _twins(word: str, count: int) -> list[str]:
    if not count:
        return []
    return [
        f"the {word} has {counted(count, 'cell')} more than once (other settings, weights, data or compute "
        "ratio). The latest one that both sides have is used; if there is none, the latest one."
    ]


def _stale(word: str, of: Side) -> list[str]:
    return [
        f"{counted(count, 'cell')} of {method} in the {word}: {changed}."
        for (method, changed), count in sorted(of.stale.items())
    ]
