"""The increase of a row over Source: which row of Source it is taken from."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ttabench.cell.stream_spec import ALL_STREAMS
from ttabench_reports.cells.row_numbers import RowNumbers
from ttabench_reports.tables.rows import row_of
from ttabench_reports.tables.table import LABEL, Row
from ttabench_reports.words.naming import MIXED

FEWER_SEEDS = "increase over Source with the same seeds; the row of Source has more seeds"
OTHER_SEEDS = "increase over Source with other seeds, and Source depends on the seed"


def with_increases(
    lines: list[Row], numbers: RowNumbers, main: tuple[str, ...], extra: tuple[str, ...]
) -> Iterator[Row]:
    """The rows of a network, each method with its increase over Source behind it."""
    narrowed: dict[tuple[int, tuple[int, ...]], Row] = {}
    for line in lines:
        yield line
        if line.kind == "method" and (baseline := baseline_of(line, lines)):
            place = (baseline.about["row"], line.about["seed_names"])
            fewer = {*place[1]} < {*baseline.about["seed_names"]} and line.about["measured"]
            if fewer and _depends_on_seed(baseline):
                if place not in narrowed:
                    narrowed[place] = _narrowed(baseline, place[1], numbers, main, extra)
                baseline = narrowed[place]
                line.remark(LABEL, FEWER_SEEDS)
            elif _lacks_seeds(baseline, line):
                line.remark(LABEL, OTHER_SEEDS)
            line.baseline = baseline
            yield from increases(line, baseline)


def baseline_of(row: Row, lines: list[Row]) -> Row | None:
    """The Source row to subtract: same weights, and as near in protocol as there is.

    Source neither adapts nor looks at a batch as a whole, so its batch size and mode change nothing.
    """
    same = [
        line
        for line in lines
        if line.kind == "source"
        and line.about["checkpoint"] == row.about["checkpoint"]
        and line.about["measured"]
    ]

    def near(line: Row) -> int:
        return sum(line.about[name] == row.about[name] for name in ("mode", "batch_size", "epochs"))

    return max(same, key=near, default=None)


def _depends_on_seed(source: Row) -> bool:
    """Whether Source has other numbers with other seeds; rounding of a mean over seeds is no difference."""
    return any(sd > 1e-9 for sd in source.sd.values())


def _lacks_seeds(source: Row, row: Row) -> bool:
    """Whether Source lacks a seed of a row, and has, or with a single seed may have, other numbers there."""
    known = source.about["seed_names"]
    single = len(known) == 1 and (
        source.about["held_out"] or not {MIXED, *ALL_STREAMS}.isdisjoint(source.values)
    )
    return not {*row.about["seed_names"]} <= {*known} and bool(single or _depends_on_seed(source))


def _narrowed(
    source: Row, seeds: tuple[int, ...], numbers: RowNumbers, main: tuple[str, ...], extra: tuple[str, ...]
) -> Row:
    """A Source row over some of its seeds: where Source depends on the seed, other seeds are other images."""
    about = {**source.about, "seeds": len(seeds), "missing": 0}
    row = row_of(about, numbers.over_seeds(source.about["row"], seeds), main, extra)
    row.whole = source
    return row


def increases(row: Row, baseline: Row) -> Iterator[Row]:
    partial = row.partial | baseline.partial
    change = {c: row.value(c) - baseline.value(c) for c in row.values if c not in partial}
    if not all(map(math.isnan, change.values())):
        yield Row(row.arch, row.method, "increase", change, about=row.about, baseline=baseline, of=row)
