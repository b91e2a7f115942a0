"""Paired tests between rows of a table, from the stored per-image correctness."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttabench_reports.evidence import stats
from ttabench_reports.evidence.once_per_table import once_per_table
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words.naming import MIXED

Column = tuple[str, ...]


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
            packed = [_packed(row, corruption, seeds, n) for row in rows]
            known = {k for k, bits in enumerate(packed) if bits}
            size = len(seeds) * ((n + 7) // 8)
            joined = np.frombuffer(b"".join([bits or bytes(size) for bits in packed]), np.uint8)
            values = np.unpackbits(joined.reshape(len(rows), len(seeds), -1), axis=2, count=n)
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
            of_chosen = values if len(chosen) == len(rows) else values[chosen]  # which copies them
            self._moments.setdefault(column, []).append((places, stats.Moments(of_chosen)))
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


def stands_for_all_seeds(row: Row) -> bool:
    """Whether a row is Source, measured with one seed that stands for all of them."""
    if row.kind != "source" or row.whole is not None or len(row.about["seed_names"]) != 1:
        return False
    return not row.about["held_out"] and MIXED not in row.correct


def _has(row: Row, seeds: tuple[int, ...]) -> bool:
    stored = row.about["seed_names"]
    if stored == seeds or stands_for_all_seeds(row):
        return True
    return not row.about["held_out"] and set(seeds) <= set(stored)


def _packed(row: Row, corruption: str, seeds: tuple[int, ...], n: int) -> bytes:
    """Packed correctness, seed after seed; b"" unless every seed has it."""
    bits = row.correct.get(corruption, {})
    stored = row.about["seed_names"]
    wanted = [bits.get(seed if seed in bits or len(stored) > 1 else stored[0], b"") for seed in seeds]
    size = (n + 7) // 8
    if set(stored) - set(bits) or any(len(b) != size for b in wanted):
        return b""
    return b"".join(wanted)


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
