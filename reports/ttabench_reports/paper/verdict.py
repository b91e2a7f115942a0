"""What a reader of Table 1 would conclude, in sentences made from the numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ttabench_reports.paper import theirs
from ttabench_reports.paper.ours import MEAN, Ours
from ttabench_reports.paper.sheets import METHOD, OTHERS, of_paper
from ttabench_reports.words import naming

NEAR = 2.0  # points within which a number counts as reproduced
BOTH = ("source", METHOD)
FORMS = (METHOD, "quantile")
"""The offline methods. The others are online, and are not ranked against them."""
Pair = tuple[float, float]


def verdict(ours: Ours) -> list[str]:
    """How many rows are near the paper's, and what other methods have here; nothing without a whole row."""
    rows = list(_rows(ours))
    if not rows:
        return []
    of = len(theirs.DATASETS) * len(theirs.ARCHS)
    whole = [all(abs(mine - paper) <= NEAR for mine, paper in pairs) for _, *pairs in rows]
    alone = sum(abs(gain[0] - gain[1]) <= NEAR for _, _, gain in rows) - sum(whole)
    where, _, (mine, paper) = max(rows, key=lambda row: abs(row[2][0] - row[2][1]))
    return [
        f"{len(rows)} of the {of} rows of Table 1 are measured. Source and the increase over it are both "
        f"within {NEAR:g} points of the paper's in {sum(whole)} of them; in {alone} more, only the increase "
        "is.",
        f"The largest difference of an increase: {where}, {naming.points(mine)} here and "
        f"{naming.points(paper)} there.",
        *_beside(ours),
    ]


def _rows(ours: Ours) -> Iterator[tuple[str, Pair, Pair]]:
    """(row, Source here and there, increase here and there) of the printed numbers, where all are known."""
    for dataset in theirs.DATASETS:
        for arch in theirs.ARCHS:
            here = [round(of_paper(ours, dataset, arch, name).value(MEAN), 1) for name in BOTH]
            paper = [theirs.accuracy(dataset, arch, name) for name in BOTH]
            if not math.isnan(sum(here)):
                gains = round(here[1] - here[0], 1), round(paper[1] - paper[0], 1)
                yield _where(ours, dataset, arch), (here[0], paper[0]), gains


def _where(ours: Ours, dataset: str, arch: str) -> str:
    return f"{naming.arch(arch)} on {naming.dataset(ours.dataset(dataset))}"


def _beside(ours: Ours) -> Iterator[str]:
    """On each network, the paper's method, our form of it, and the best online method."""
    for dataset in theirs.DATASETS:
        for arch in theirs.ARCHS:
            means = {name: of_paper(ours, dataset, arch, name).value(MEAN) for name in (METHOD, *OTHERS)}
            known = {name: value for name, value in means.items() if not math.isnan(value)}
            online = [name for name in OTHERS if name in known and name not in FORMS]
            if METHOD not in known or not online:
                continue
            best = max(online, key=lambda name: known[name])
            offline = [f"{naming.method(name)} {known[name]:.1f}" for name in FORMS if name in known]
            yield (
                f"{_where(ours, dataset, arch)}: {' and '.join(offline)}, after all images were "
                f"seen. Of the methods that see each image once, {naming.method(best)} has the highest mean, "
                f"{known[best]:.1f}."
            )
