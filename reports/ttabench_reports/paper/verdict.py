"""What a reader of Table 1 would conclude, in sentences made from the numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ttabench_reports.paper import theirs
from ttabench_reports.paper.ours import MEAN, Ours
from ttabench_reports.paper.sheets import METHOD, OTHERS, of_paper
from ttabench_reports.words import naming

__all__ = ["verdict"]

NEAR = 2.0  # points within which an increase counts as reproduced


def verdict(ours: Ours) -> list[str]:
    """How many increases over Source are near the paper's, and where its method stands; or nothing."""
    rows = list(_rows(ours))
    if not rows:
        return []
    of = len(theirs.DATASETS) * len(theirs.ARCHS)
    near = sum(abs(mine - paper) <= NEAR for _, mine, paper in rows)
    where, mine, paper = max(rows, key=lambda row: abs(row[1] - row[2]))
    return [
        f"{len(rows)} of the {of} rows of Table 1 are measured. In {near} of them, the increase over Source "
        f"is within {NEAR:g} points of the paper's.",
        f"The largest difference: {where}, {naming.points(mine)} here and {naming.points(paper)} there.",
        *_ranks(ours),
    ]


def _rows(ours: Ours) -> Iterator[tuple[str, float, float]]:
    """(row, our increase over Source, the paper's) where both are known."""
    for dataset in theirs.DATASETS:
        for arch in theirs.ARCHS:
            source = ours.find(dataset, arch, "source").value(MEAN)
            mine = of_paper(ours, dataset, arch, METHOD).value(MEAN) - source
            paper = theirs.accuracy(dataset, arch, METHOD) - theirs.accuracy(dataset, arch, "source")
            if not math.isnan(mine):
                where = f"{naming.arch(arch)} on {naming.dataset(ours.dataset(dataset))}"
                yield where, round(mine, 1), round(paper, 1)


def _ranks(ours: Ours) -> Iterator[str]:
    """On each network, the paper's method and the best of the other methods, as measured here."""
    for dataset in theirs.DATASETS:
        for arch in theirs.ARCHS:
            mine = of_paper(ours, dataset, arch, METHOD).value(MEAN)
            known = {name: ours.find(dataset, arch, name).value(MEAN) for name in OTHERS}
            known = {name: value for name, value in known.items() if not math.isnan(value)}
            if math.isnan(mine) or not known:
                continue
            best = max(known, key=lambda name: known[name])
            where = f"{naming.arch(arch)} on {naming.dataset(ours.dataset(dataset))}"
            word = "above" if mine > known[best] else "below"
            yield (
                f"{where}: the paper's method has {mine:.1f}, {word} the best of the others here, "
                f"{naming.method(best)} with {known[best]:.1f}."
            )
