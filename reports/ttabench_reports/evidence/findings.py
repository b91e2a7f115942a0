"""How sure the tables' numbers are, from the stored per-image correctness.

Offline and online rows are never ranked against each other: Source stands in both groups. Neither are rows of
different weights: they are other classifiers, each with its own Source.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd

from ttabench.system.garbage_collection import paused
from ttabench_reports.cells.frames import spell
from ttabench_reports.evidence import stats
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words.naming import MEAN, MIXED

if TYPE_CHECKING:
    from numpy.typing import NDArray

Place = Literal["best", "second"]
ALPHA = 0.05
LEAST_IMAGES = 3
"""Images that differ from the others, for an interval: it holds in 94 of 100 cases with 3, in 86 with 2."""


Column = tuple[str, ...]
T = TypeVar("T")


def once_per_table(made: Callable[[Table], T]) -> Callable[[Table], T]:
    """`made`, which is called once for each table; its result lives as long as the table."""
    known: WeakKeyDictionary[Table, T] = WeakKeyDictionary()

    @wraps(made)
    def of_table(table: Table) -> T:
        if table not in known:
            known[table] = made(table)
        return known[table]

    return of_table


class Paired:
    """The paired tests among the rows of one architecture, which share the images of a table.

    Two rows are paired over the seeds that both have. Source with one seed is paired with everything where it
    is the same for all seeds: not where images are held out, nor in the stream `mixed`. Where images are held
    out, each seed has its own images; there only rows with the same single seed are paired.
    """

    def __init__(self, rows: Sequence[Row], columns: Sequence[Column]) -> None:
        self._rows = [row for row in rows if row.measured and row.correct]
        self._moments: dict[Column, list[tuple[dict[int, int], stats.Moments]]] = {}
        self._first = columns[0]
        self._right: dict[int, NDArray[Any]] = {}
        for n in sorted({row.about["n_images"] for row in self._rows if row.about["n_images"] > 1}):
            same = [row for row in self._rows if row.about["n_images"] == n]
            for seeds in _common_seeds(row.about["seed_names"] for row in same):
                chosen = [row for row in same if _has(row, seeds)]
                if chosen and not (len(seeds) > 1 and chosen[0].about["held_out"]):
                    self._measure(chosen, seeds, n, columns)

    def _measure(
        self, rows: Sequence[Row], seeds: tuple[int, ...], n: int, columns: Sequence[Column]
    ) -> None:
        single = {c: None for column in columns for c in column}
        totals = {
            column: np.zeros((len(rows), len(seeds), n), np.uint8) for column in columns if len(column) > 1
        }
        whole = {column: set(range(len(rows))) for column in columns}
        for corruption in single:
            values = np.zeros((len(rows), len(seeds), n), np.uint8)
            known = set()
            for k, row in enumerate(rows):
                packed = _packed(row, corruption, seeds, n)
                if packed is not None:
                    values[k] = np.unpackbits(packed, axis=1, count=n)
                    known.add(k)
            for column in columns:
                if column == (corruption,):
                    self._keep(column, rows, known, seeds, values)
                elif corruption in column:
                    totals[column] += values
                    whole[column] &= known
        for column, total in totals.items():
            self._keep(column, rows, whole[column], seeds, total)

    def _keep(
        self, column: Column, rows: Sequence[Row], known: set[int], seeds: tuple[int, ...],
        values: NDArray[np.uint8],
    ) -> None:  # fmt: skip
        """Of the `known` rows; of those with exactly these seeds also what :meth:`share` needs.

        values  (rows, seeds, n), counts.
        """
        smallest = np.min_scalar_type(len(column) * len(seeds))  # as each row has one for each image
        chosen = sorted(known)
        if chosen:
            places = {id(rows[k]): at for at, k in enumerate(chosen)}
            self._moments.setdefault(column, []).append((places, stats.Moments(values[chosen])))
        for k in chosen if column == self._first else ():
            if rows[k].about["seed_names"] == seeds:
                self._right[id(rows[k])] = values[k].sum(axis=0, dtype=smallest)

    def p_values(self, first: Row, others: Sequence[Row], column: Column) -> list[float]:
        """Of the tests that a row and each of the others have the same mean over a column.

        NaN for a test that cannot be made.
        """
        p = [math.nan] * len(others)
        for places, moments in self._moments.get(column, ()):
            if id(first) not in places:
                continue
            able = [k for k, row in enumerate(others) if id(row) in places and math.isnan(p[k])]
            if able:
                a, b = places[id(first)], [places[id(others[k])] for k in able]
                if len(column) == 1 and moments.sums.shape[1] == 1:
                    values = stats.mcnemar(*moments.discordant(a, b))
                else:
                    values = moments.p_values(a, b)
                for k, value in zip(able, values.tolist(), strict=True):
                    p[k] = value
        return p

    def spread(self, row: Row, minus: Row | None, column: Column) -> stats.Spread | None:
        """Of the number of corruptions of a column under which an image was right, or of its difference."""
        for places, moments in self._moments.get(column, ()):
            if id(row) in places and (minus is None or id(minus) in places):
                return moments.spread(places[id(row)], None if minus is None else places[id(minus)])
        return None

    def is_lower(self, row: Row, other: Row, column: Column) -> bool:
        """Whether a row's mean over a column and the seeds of both is below the other's, or not known."""
        for places, moments in self._moments.get(column, ()):
            if id(row) in places and id(other) in places:
                return moments.is_lower(places[id(row)], places[id(other)])
        return True

    def share(self, row: Row) -> NDArray[np.float32] | None:
        """Share of the first column's corruptions, and of the seeds, under which each image was right."""
        if (right := self._right.get(id(row))) is None:
            return None
        mean = right.astype(np.float32) / np.float32(len(row.about["seed_names"]))
        return mean / np.float32(len(self._first))


def _common_seeds(stored: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The seeds of each row, and those that two rows share; the most first, so that a pair uses all."""
    own = {*stored}
    common = {tuple(sorted({*a} & {*b})) for a in own for b in own}
    return sorted(common - {()}, key=lambda seeds: (-len(seeds), seeds))


def _for_all_seeds(row: Row) -> bool:
    """Whether a row is Source, measured with one seed that stands for all of them."""
    if row.kind != "source" or row.whole is not None or len(row.about["seed_names"]) != 1:
        return False
    return not row.about["held_out"] and MIXED not in row.correct


def _has(row: Row, seeds: tuple[int, ...]) -> bool:
    stored = row.about["seed_names"]
    if stored == seeds or _for_all_seeds(row):
        return True
    return not row.about["held_out"] and set(seeds) <= set(stored)


def _packed(row: Row, corruption: str, seeds: tuple[int, ...], n: int) -> NDArray[np.uint8] | None:
    """Packed correctness (seeds, bytes); None unless every seed has it."""
    bits = row.correct.get(corruption, {})
    stored = row.about["seed_names"]
    wanted = [bits.get(seed if seed in bits or len(stored) > 1 else stored[0], b"") for seed in seeds]
    size = (n + 7) // 8
    if set(stored) - set(bits) or any(len(b) != size for b in wanted):
        return None
    return np.frombuffer(b"".join(wanted), np.uint8).reshape(len(seeds), size)


def with_baselines(rows: Iterable[Row]) -> list[Row]:
    """`rows`, and what they are compared with where that is not printed (:attr:`Row.whole`), each once."""
    listed = list(rows)
    unprinted = [row.baseline for row in listed if row.baseline and row.baseline.whole]
    return list({id(row): row for row in (*listed, *unprinted)}.values())


@once_per_table
def _paired(table: Table) -> dict[str, Paired]:
    columns = list(dict.fromkeys([table.main, *map(table.over, table.columns)]))
    return {arch: Paired(with_baselines(rows), columns) for arch, rows in table.archs().items()}


def paired_with(row: Row, table: Table) -> Paired:
    """The paired tests among the rows of one row's architecture."""
    return _paired(table)[row.arch]


def groups(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Rows of one architecture that may be ranked against each other, with Source.

    They share weights and mode; of the same weights, those of online methods come first.
    """
    by_weights: dict[str, list[Row]] = {}
    for row in rows:
        if row.measured:
            by_weights.setdefault(str(row.about["checkpoint"]), []).append(row)
    for ours in by_weights.values():
        for offline in (False, True):
            group = [row for row in ours if row.kind == "source" or row.offline == offline]
            if any(row.kind == "method" for row in group):
                yield group


def which_weights(group: Sequence[Row], among: Sequence[Sequence[Row]]) -> str:
    """``weights 1a2b3c4d``, if the groups of an architecture do not all have the same; "" if they do."""
    several = len({row.about["checkpoint"] for rows in among for row in rows}) > 1
    return spell("checkpoint", group[0].about["checkpoint"]) if several else ""


@once_per_table
def places_of_table(table: Table) -> dict[tuple[int, str], Place]:
    """(id of row, column) → ``best`` or ``second`` among the rows of the same weights and mode.

    Best is the highest number, and each that does not differ from it in a paired test (Holm-corrected over
    the group, at 5 %), that is higher over the seeds of both, or that prints the same; second is the highest
    method of the rest, with its ties. What prints no higher than Source is not second.
    Source competes with both modes, and is marked by how it stands among the online rows, if there are any.
    A number over fewer seeds takes no part. Where correctness is not stored, ties are as printed.
    """
    by_row: dict[tuple[int, str], Place] = {}
    marked: set[int] = set()  # Source rows of groups before; Source is marked as one of its first group
    for rows in table.archs().values():
        for group in groups(rows):
            for column in table.columns:
                for row, place in places(group, table, column):
                    if id(row) not in marked:
                        by_row[id(row), column] = place
            marked |= {id(row) for row in group if row.kind == "source"}
    return by_row


def best_places(table: Table) -> set[tuple[int, str]]:
    """(id of row, column) of what is best, ties included; offline and online rows apart."""
    return {key for key, place in places_of_table(table).items() if place == "best"}


def places(rows: Sequence[Row], table: Table, column: str) -> list[tuple[Row, Place]]:
    """Best and second of these rows in one column, see :func:`places_of_table`."""
    able = [row for row in rows if not math.isnan(row.value(column)) and column not in row.partial]
    if len(able) < 2:
        return []
    best = _with_ties(able, table, column)
    rest = [row for row in able if all(row is not other for other in best)]
    source = max((row.printed(column) for row in able if row.kind == "source"), default=-math.inf)
    second = [
        row for row in (_with_ties(rest, table, column) if rest else []) if row.printed(column) > source
    ]
    return [(row, "best") for row in best] + [(row, "second") for row in second]


def _with_ties(rows: Sequence[Row], table: Table, column: str) -> list[Row]:
    """The highest row first, then those that are no different from it."""
    top = max(rows, key=lambda row: row.value(column))
    others = [row for row in rows if row is not top]
    paired, over, printed = paired_with(top, table), table.over(column), top.printed(column)
    p = stats.holm(paired.p_values(top, others, over))

    return [top] + [
        row
        for row, adjusted in zip(others, p, strict=True)
        # By the seeds that both have: where these are other images, so may be the order of the means.
        if adjusted >= ALPHA or row.printed(column) == printed or not paired.is_lower(row, top, over)
    ]


@once_per_table
def untested(table: Table) -> frozenset[int]:
    """Ids of the rows whose mean could not be tested against the best of their weights and mode."""
    every = [untested_among(group, table) for rows in table.archs().values() for group in groups(rows)]
    return frozenset().union(*every)


def untested_among(rows: Sequence[Row], table: Table) -> set[int]:
    """Ids of the methods among these rows with a mean that cannot be tested against the highest.

    They have other seeds or images, or no correctness. None in a table without any correctness: there all
    ties are as printed.
    """
    able = [row for row in rows if not math.isnan(row.value(MEAN))]
    if not able or not any(row.correct for row in table.rows):
        return set()
    return untested_against(max(able, key=lambda row: row.value(MEAN)), able, table)


def untested_against(one: Row, rows: Sequence[Row], table: Table) -> set[int]:
    """Ids of the methods among these rows, which have a mean, that cannot be tested against `one`."""
    others = [row for row in rows if row is not one and row.kind == "method"]
    p = paired_with(one, table).p_values(one, others, table.main)
    return {id(row) for row, value in zip(others, p, strict=True) if math.isnan(value)}


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
    by_row = {id(row): Finding() for row in table.rows if row.measured}
    _intervals(table, by_row)
    for rows in table.archs().values():
        ours = [row for row in rows if row.kind == "method"]
        _against_source(ours, table, by_row)
        for group in groups(rows):
            _against_best(group, table, by_row)
            _ranks(group, table, by_row)
    return by_row


def _intervals(table: Table, by_row: dict[int, Finding]) -> None:
    rows = with_baselines(row for row in table.rows if row.measured)
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
    return _for_all_seeds(base) or {*row.about["seed_names"]} <= {*base.about["seed_names"]}


def _record(row: Row, base: Row, tests: Mapping[str, float], finding: Finding) -> None:
    """Corruptions won, tied and lost; `tests` are the p-values by corruption."""
    whole = [
        c for c in tests
        if not math.isnan(row.value(c) - base.value(c)) and c not in row.partial | base.partial
    ]  # fmt: skip
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
    able = [row for row in group if not math.isnan(row.value(MEAN))]
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
    able = [row for row in group if not any(math.isnan(row.value(c)) or c in row.partial for c in table.main)]
    if len(able) < 2:
        return []
    values = pd.DataFrame([[row.printed(column) for column in table.main] for row in able])
    return list(zip(able, values.rank(ascending=False).to_numpy(float), strict=True))


def _ranks(group: Sequence[Row], table: Table, by_row: dict[int, Finding]) -> None:
    for row, ranks_of_row in ranks(group, table):
        if row.kind == "method":  # Source has one in each group
            by_row[id(row)].rank = float(ranks_of_row.mean())
