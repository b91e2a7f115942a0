"""How sure the tables' numbers are, from the stored per-image correctness; see :mod:`ttabench.stats`.

Offline and online rows are never ranked against each other: Source stands in both groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from ttabench import stats
from ttabench_reports.naming import MEAN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ttabench_reports.shape import Row, Table

Place = Literal["best", "second"]
ALPHA = 0.05


def correctness(row: Row, column: str) -> NDArray[np.uint8] | None:
    """Packed correctness (seeds, bytes) of one corruption; None unless every seed has it."""
    bits = row.correct.get(column, {})
    size = (row.about["n_images"] + 7) // 8
    if set(bits) != set(row.about["seed_names"]) or any(len(b) != size for b in bits.values()) or not size:
        return None
    if len(bits) > 1 and row.about["held_out"]:
        return None  # each seed scores other images
    return np.frombuffer(b"".join(bits[seed] for seed in sorted(bits)), np.uint8).reshape(len(bits), size)


def shares(row: Row, columns: Sequence[str]) -> NDArray[np.float32] | None:
    """Share of these corruptions under which each image was right: (seeds, n); None unless all are known."""
    packed = [correctness(row, column) for column in columns]
    if not packed or any(bits is None for bits in packed):
        return None
    n = row.about["n_images"]
    total = np.zeros((len(row.about["seed_names"]), n), np.uint16)
    for bits in packed:
        total += np.unpackbits(bits, axis=1, count=n)  # type: ignore[arg-type]
    return total.astype(np.float32) / np.float32(len(packed))


def comparable(first: Row, second: Row) -> bool:
    """Whether two rows can be paired: the same images, and the same seeds unless one is Source with one."""
    a, b = first.about, second.about
    if a["n_images"] != b["n_images"]:
        return False
    if a["seed_names"] == b["seed_names"]:
        return True
    return any(
        row.kind == "source" and len(row.about["seed_names"]) == 1 and not row.about["held_out"]
        for row in (first, second)
    )


def p_value(first: Row, second: Row, columns: Sequence[str]) -> float:
    """Of the paired test that two rows have the same mean over `columns`; NaN where it cannot be made."""
    if not comparable(first, second):
        return math.nan
    if len(columns) == 1:
        one, other = (correctness(row, columns[0]) for row in (first, second))
        if one is None or other is None:
            return math.nan
        if len(one) == len(other) == 1:
            return float(stats.mcnemar(_count(one & ~other), _count(other & ~one)))
    a, b = shares(first, columns), shares(second, columns)
    return math.nan if a is None or b is None else stats.mean_test(b - a)


_ONES = np.array([bin(i).count("1") for i in range(256)], np.uint8)


def _count(bits: NDArray[np.uint8]) -> int:
    return int(_ONES[bits].sum())


def groups(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Rows that may be ranked against each other: online ones, offline ones, each with Source."""
    ours = [row for row in rows if row.measured]
    for offline in (False, True):
        group = [row for row in ours if row.kind == "source" or row.offline == offline]
        if any(row.kind == "method" for row in group):
            yield group


def standing(table: Table) -> dict[tuple[int, str], Place]:
    """(id of row, column) → ``best`` or ``second`` among the rows of one architecture and mode.

    Best is the highest number, and each that a paired test does not tell from it (Holm-corrected over
    the group, at 5 %) or that prints the same; second is the highest method of the rest, with its ties.
    Source competes with both modes, and is marked by how it stands among the online rows, if there are any.
    A number over fewer seeds takes no part. Where correctness is not stored, ties are as printed.
    """
    found: dict[tuple[int, str], Place] = {}
    for rows in table.archs().values():
        for number, group in enumerate(groups(rows)):
            for column in table.columns:
                for row, place in places(group, table, column):
                    if not (number and row.kind == "source"):  # it is marked as one of the first group
                        found[id(row), column] = place
    return found


def places(rows: Sequence[Row], table: Table, column: str) -> list[tuple[Row, Place]]:
    """Best and second of these rows in one column, as :func:`standing` says it."""
    able = [row for row in rows if not math.isnan(row.value(column)) and column not in row.partial]
    if len(able) < 2:
        return []
    best = _with_ties(able, table, column)
    rest = [row for row in able if all(row is not other for other in best)]
    second = _with_ties(rest, table, column) if rest else []
    if second and second[0].kind == "source":  # not to adapt is no second place
        second = []
    return [(row, "best") for row in best] + [(row, "second") for row in second]


def _with_ties(rows: Sequence[Row], table: Table, column: str) -> list[Row]:
    """The highest row first, then those that are no different from it."""
    top = max(rows, key=lambda row: row.value(column))
    others = [row for row in rows if row is not top]
    p = stats.holm([p_value(top, row, table.over(column)) for row in others])
    return [top] + [
        row
        for row, adjusted in zip(others, p, strict=True)
        if adjusted >= ALPHA or row.printed(column) == top.printed(column)
    ]


@dataclass
class Finding:
    """What is known of one row's mean over the corruptions. Percent and points; NaN where not known.

    interval, rise_interval   of the accuracy and of its distance from Source, 95 %.
    wins, ties, losses        corruptions on which it is above Source, not told from it, below it.
    p_source                  paired test of the mean against Source, Holm-corrected over the architecture.
    p_best                    against the best of the same mode, Holm-corrected; NaN for that one itself.
    rank                      mean over the corruptions of its rank in its group: descriptive, no test.
    """

    interval: tuple[float, float] = (math.nan, math.nan)
    rise_interval: tuple[float, float] = (math.nan, math.nan)
    wins: int = 0
    ties: int = 0
    losses: int = 0
    p_source: float = math.nan
    p_best: float = math.nan
    rank: float = math.nan

    @property
    def record(self) -> str:
        """``12/2/1``: won, tied, lost; "" where nothing was tested."""
        return f"{self.wins}/{self.ties}/{self.losses}" if self.wins + self.ties + self.losses else ""


def findings(table: Table) -> dict[int, Finding]:
    """By id of row, of every measured row of a table."""
    found = {id(row): Finding() for row in table.rows if row.measured}
    known = {
        id(row): share
        for row in table.rows
        if row.measured and MEAN not in row.partial and not math.isnan(row.value(MEAN))
        if (share := shares(row, table.main)) is not None
    }
    _intervals(table, known, found)
    for rows in table.archs().values():
        ours = [row for row in rows if row.kind == "method"]
        tests = []
        for row in ours:
            base = row.baseline
            tests.append(
                p_value(row, base, table.main) if base and {id(row), id(base)} <= known.keys() else math.nan
            )
            if base:
                _record(row, base, table.main, found[id(row)])
        for row, p in zip(ours, stats.holm(tests), strict=True):
            found[id(row)].p_source = float(p)
        for group in groups(rows):
            _against_best(group, table, known, found)
            _ranks(group, table, found)
    return found


def _intervals(table: Table, known: dict[int, NDArray[np.float32]], found: dict[int, Finding]) -> None:
    rows = [row for row in table.rows if id(row) in known]
    for n in sorted({known[id(row)].shape[1] for row in rows}):
        same = [row for row in rows if known[id(row)].shape[1] == n]
        if n < 2:
            continue
        draws = stats.bootstrap_means(np.stack([known[id(row)].mean(axis=0) for row in same]))
        own = {id(row): draws[:, k] for k, row in enumerate(same)}
        for row in same:
            result = stats.two_levels(known[id(row)], own[id(row)])
            found[id(row)].interval = (max(result.low, 0.0), min(result.high, 100.0))
            base = row.baseline
            if base and id(base) in own and comparable(row, base):
                rise = stats.two_levels(known[id(row)] - known[id(base)], own[id(row)] - own[id(base)])
                found[id(row)].rise_interval = (rise.low, rise.high)


def _record(row: Row, base: Row, columns: Sequence[str], finding: Finding) -> None:
    whole = [
        c for c in columns
        if not math.isnan(row.value(c) - base.value(c)) and c not in row.partial | base.partial
    ]  # fmt: skip
    p = stats.holm([p_value(row, base, (column,)) for column in whole])
    for column, adjusted in zip(whole, p, strict=True):
        if math.isnan(adjusted):
            continue
        rise = row.value(column) - base.value(column)
        if adjusted >= ALPHA or rise == 0:
            finding.ties += 1
        elif rise > 0:
            finding.wins += 1
        else:
            finding.losses += 1


def _against_best(
    group: Sequence[Row], table: Table, known: dict[int, NDArray[np.float32]], found: dict[int, Finding]
) -> None:
    able = [row for row in group if id(row) in known]
    if len(able) < 2:
        return
    top = max(able, key=lambda row: row.value(MEAN))
    others = [row for row in able if row is not top and row.kind == "method"]
    for row, p in zip(others, stats.holm([p_value(top, row, table.main) for row in others]), strict=True):
        found[id(row)].p_best = float(p)


def _ranks(group: Sequence[Row], table: Table, found: dict[int, Finding]) -> None:
    from scipy.stats import rankdata

    able = [row for row in group if not any(math.isnan(row.value(c)) or c in row.partial for c in table.main)]
    if len(able) < 2:
        return
    values = np.array([[row.printed(column) for column in table.main] for row in able])
    mean = rankdata(-values, axis=0).mean(axis=1)
    for row, rank in zip(able, mean, strict=True):
        if row.kind == "method":  # Source has one in each group
            found[id(row)].rank = float(rank)
