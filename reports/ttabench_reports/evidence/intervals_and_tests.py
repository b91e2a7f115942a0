"""How sure the means of a table are: intervals, tests against Source and against the best, ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ttabench.system.garbage_collection import paused
from ttabench_reports.evidence import stats
from ttabench_reports.evidence.groups import groups
from ttabench_reports.evidence.once_per_table import once_per_table
from ttabench_reports.evidence.paired_rows import paired_with, stands_for_all_seeds, with_baselines
from ttabench_reports.evidence.places import ALPHA
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words.naming import MEAN

LEAST_IMAGES = 3
"""Images that differ from the others, for an interval: it holds in 94 of 100 cases with 3, in 86 with 2."""


@dataclass
class Finding:
    """What is known of one row's mean over the corruptions. Percent and points; NaN where not known.

    interval, rise_interval   of the accuracy and of its distance from Source, 95 %; NaN also where fewer than
                              :data:`LEAST_IMAGES` images differ from the others.
    wins, ties, losses        corruptions on which it is significantly above Source, not different, below it.
                              Tests are Holm-corrected over the corruptions of the row.
    p_source                  paired test of the mean against Source, Holm-corrected over the architecture.
    p_best                    against the best of the same weights and mode, which may be Source,
                              Holm-corrected over these; NaN for the best itself.
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


@once_per_table
@paused()
def findings(table: Table) -> dict[int, Finding]:
    """By id of row, of every measured row of a table."""
    by_row = {id(row): Finding() for row in table.measured_rows}
    _intervals(table, by_row)
    for rows in table.archs().values():
        ours = [row for row in rows if row.kind == "method"]
        _against_source(ours, table, by_row)
        for group in groups(rows):
            _against_best(group, table, by_row)
            _ranks(group, table, by_row)
    return by_row


def _intervals(table: Table, by_row: dict[int, Finding]) -> None:
    rows = with_baselines(table.measured_rows)
    shares = {
        id(row): share for row in rows if (share := paired_with(row, table).share(row)) is not None
    }  # fmt: skip
    of = len(table.main)
    for n in sorted({len(share) for share in shares.values()}):
        same = [row for row in rows if id(row) in shares and len(shares[id(row)]) == n]
        draws = of * stats.bootstrap_means(np.stack([shares[id(row)] for row in same]))
        at = {id(row): k for k, row in enumerate(same)}
        ours = [row for row in same if id(row) in by_row]
        for row, bounds in zip(ours, _bounds(draws[:, [at[id(row)] for row in ours]]), strict=True):
            if _varies(shares[id(row)]) and (spread := paired_with(row, table).spread(row, None, table.main)):
                low, high = (100 / of * bound for bound in spread.between(*bounds))
                by_row[id(row)].interval = (max(low, 0.0), min(high, 100.0))
        raised = [
            (row, row.baseline) for row in ours
            if row.baseline and id(row.baseline) in at
            and _varies(shares[id(row)] - shares[id(row.baseline)])
        ]  # fmt: skip
        rises = draws[:, [at[id(row)] for row, _ in raised]] - draws[:, [at[id(base)] for _, base in raised]]
        for (row, base), bounds in zip(raised, _bounds(rises), strict=True):
            spread = paired_with(row, table).spread(row, base, table.main)
            # Source may lack a seed of the row: what is left is another increase than the printed one.
            if spread and spread.n_seeds == row.about["seeds"]:
                low, high = (100 / of * bound for bound in spread.between(*bounds))
                by_row[id(row)].rise_interval = (low, high)


def _varies(by_image: NDArray[np.float32]) -> bool:
    """Whether images differ enough for a bootstrap over them.

    Of images that are all right, every sample is all right: an interval from 100 to 100 would be wrong.
    """
    others = int(np.count_nonzero(by_image != by_image[0]))
    if LEAST_IMAGES <= others <= len(by_image) - LEAST_IMAGES:
        return True  # so of nearly all rows, without sorting their images
    counts = np.unique(by_image, return_counts=True)[1]
    return len(by_image) - int(counts.max(initial=0)) >= LEAST_IMAGES


def _bounds(draws: NDArray[np.float32]) -> list[tuple[float, float]]:
    """The percentiles of each of several rows (times, rows)."""
    return [(low, high) for low, high in stats.percentiles(draws).T.tolist()]


def _against_source(rows: Sequence[Row], table: Table, by_row: dict[int, Finding]) -> None:
    """The tests of the methods of one architecture against their Source, which differs with the weights."""
    tests: dict[int, float] = {}
    for base in {id(row.baseline): row.baseline for row in rows if row.baseline}.values():
        ours = [row for row in rows if row.baseline is base and _has_seeds_of(base, row)]
        paired = paired_with(base, table)
        tests |= zip(map(id, ours), paired.p_values(base, ours, table.main), strict=True)
        by_column = [paired.p_values(base, ours, (column,)) for column in table.main]
        for row, p in zip(ours, zip(*by_column, strict=True), strict=True):
            _record(row, base, dict(zip(table.main, p, strict=True)), by_row[id(row)])
    of_means = stats.holm([tests.get(id(row), math.nan) for row in rows])
    for row, p in zip(rows, of_means, strict=True):
        by_row[id(row)].p_source = float(p)


def _has_seeds_of(base: Row, row: Row) -> bool:
    """Whether Source has every seed of a row; if not, a test is not about the printed increase."""
    return stands_for_all_seeds(base) or {*row.about["seed_names"]} <= {*base.about["seed_names"]}


def _record(row: Row, base: Row, tests: Mapping[str, float], finding: Finding) -> None:
    """Corruptions won, tied and lost; `tests` are the p-values by corruption."""
    whole = [column for column in tests if row.complete(column) and base.complete(column)]
    for column, adjusted in zip(whole, stats.holm([tests[column] for column in whole]), strict=True):
        if math.isnan(adjusted):
            continue
        rise = row.value(column) - base.value(column)
        if adjusted >= ALPHA or rise == 0:
            finding.ties += 1
        elif rise > 0:
            finding.wins += 1
        else:
            finding.losses += 1


def _against_best(group: Sequence[Row], table: Table, by_row: dict[int, Finding]) -> None:
    paired = paired_with(group[0], table)
    able = [row for row in group if row.complete(MEAN)]
    if len(able) < 2:
        return
    top = max(able, key=lambda row: row.value(MEAN))
    others = [row for row in able if row is not top]  # with Source, as for the marks of the tables
    tests = stats.holm(paired.p_values(top, others, table.main))
    for row, p in zip(others, tests, strict=True):
        if row.kind == "method":
            by_row[id(row)].p_best = float(p)


def ranks(group: Sequence[Row], table: Table) -> list[tuple[Row, NDArray[np.float64]]]:
    """Rank of each row under each of the main corruptions, within the group; equal numbers share a mean rank.

    Of the rows with a number under all of them; none for a single one.
    """
    able = [row for row in group if all(map(row.complete, table.main))]
    if len(able) < 2:
        return []
    values = np.array([[row.printed(column) for column in table.main] for row in able])
    higher, equal = (of(values, values[:, None]).sum(axis=1) for of in (np.greater, np.equal))
    return list(zip(able, higher + (equal + 1) / 2, strict=True))


def _ranks(group: Sequence[Row], table: Table, by_row: dict[int, Finding]) -> None:
    for row, ranks_of_row in ranks(group, table):
        if row.kind == "method":  # Source has one in each group
            by_row[id(row)].rank = float(ranks_of_row.mean())
