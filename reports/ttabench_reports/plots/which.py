"""Which tables and which methods a plot shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from ttabench_reports.plots.style import LOOKS, SOURCE, Look
from ttabench_reports.shape import Row, Table


def families(tables: Iterable[Table]) -> list[list[Table]]:
    """Tables that differ in nothing but the severity, by rising severity."""
    by_stream: dict[tuple[str, str], list[Table]] = {}
    for table in tables:
        by_stream.setdefault((table.key["dataset"], table.difference), []).append(table)
    return [sorted(family, key=lambda table: int(table.key["severity"])) for family in by_stream.values()]


def highest_severities(tables: Iterable[Table]) -> list[Table]:
    """The table of the highest severity of each family."""
    return [family[-1] for family in families(tables)]


def methods(table: Table) -> dict[str, list[Row]]:
    """The measured rows of each architecture: Source first, then methods."""
    measured = {arch: [row for row in rows if row.measured] for arch, rows in table.archs().items()}
    return {arch: rows for arch, rows in measured.items() if rows}


def looks(
    panels: Mapping[str, Sequence[Row]], value: Callable[[Row], float], lowest: int = 0
) -> dict[str, Look]:
    """A look for Source and for the methods with the highest `value`, averaged over the panels.

    By label of the method. Methods without a look are drawn in light gray. If not all methods have one,
    `lowest` of the looks go to those with the lowest value.
    """
    values: dict[str, list[float]] = {}
    chosen: dict[str, Look] = {}
    for rows in panels.values():
        for row in rows:
            if row.kind == "source":
                chosen[row.method] = SOURCE
            elif not math.isnan(number := value(row)):
                values.setdefault(row.method, []).append(number)
    mean = {method: sum(numbers) / len(numbers) for method, numbers in values.items()}
    ordered = sorted(mean, key=lambda method: -mean[method])
    if len(ordered) > len(LOOKS):
        ordered = ordered[: len(LOOKS) - lowest] + ordered[len(ordered) - lowest :]
    return chosen | dict(zip(ordered, LOOKS, strict=False))
