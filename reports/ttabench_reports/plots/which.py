"""Which tables and which methods a plot shows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ttabench_reports.evidence.groups import by_weights, which_weights
from ttabench_reports.plots.style import BLUE, GREY, LOOKS, ORANGE, SOURCES, Look
from ttabench_reports.tables.families import families
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words import naming


def highest_severities(tables: Iterable[Table]) -> list[Table]:
    """The table of the highest severity of each family."""
    return [family.tables[-1] for family in families(tables)]


def methods(table: Table) -> dict[str, list[Row]]:
    """The measured rows of each architecture: Source first, then methods."""
    measured = {arch: [row for row in rows if row.measured] for arch, rows in table.archs().items()}
    return {arch: rows for arch, rows in measured.items() if rows}


def networks(table: Table) -> list[tuple[str, list[Row]]]:
    """The rows of :func:`methods` by the name of their network, each of several weights apart.

    They are never ranked against each other, and have a Source each.
    """
    named = []
    for arch, rows in methods(table).items():
        every = by_weights(rows)
        named += [(naming.network(arch, which_weights(ours, every)), ours) for ours in every]
    return named


def dot(row: Row) -> tuple[str, str]:
    """Colour and marker of a row's mean."""
    if row.kind == "source":
        return GREY, "s"
    return (ORANGE, "D") if row.offline else (BLUE, "o")


@dataclass(frozen=True)
class Looks:
    """How the curves of a figure look.

    names    id of a row → the name of its curve. A method is one curve in all panels, also where its settings
             differ, unless a panel has it several times in a mode: then each name is a curve. Online and
             offline are two curves.
    by_name  name of a curve → its look; Source first, then the methods, the best first.
    """

    names: Mapping[int, str]
    by_name: Mapping[str, Look]

    def of(self, row: Row) -> Look | None:
        """None: light gray."""
        return self.by_name.get(self.names[id(row)])


def looks(panels: Mapping[str, Sequence[Row]], value: Callable[[Row], float], lowest: int = 0) -> Looks:
    """A look for Source and for the best methods: those in most panels, and of these the highest.

    value   of a row; a method's is the mean over the panels.
    lowest  if not all methods have a look, so many of the looks go to those with the lowest value.
    """
    names = _names(panels)
    values: dict[str, list[float]] = {}
    chosen: dict[str, Look] = {}
    for rows in panels.values():
        for row in rows:
            if row.kind == "source":
                chosen.setdefault(names[id(row)], SOURCES[len(chosen) % len(SOURCES)])
            elif not math.isnan(number := value(row)):
                values.setdefault(names[id(row)], []).append(number)
    mean = {name: sum(numbers) / len(numbers) for name, numbers in values.items()}
    ordered = sorted(mean, key=lambda name: (-len(values[name]), -mean[name]))
    if len(ordered) > len(LOOKS):
        best = ordered[: len(LOOKS) - lowest]
        rest = sorted((name for name in ordered if name not in best), key=lambda name: -mean[name])
        ordered = best + rest[len(rest) - lowest :]
    return Looks(names, chosen | dict(zip(ordered, LOOKS, strict=False)))


def _names(panels: Mapping[str, Sequence[Row]]) -> dict[int, str]:
    counts = Counter((arch, _method(row)) for arch, rows in panels.items() for row in rows)
    several = {method for (_, method), count in counts.items() if count > 1}
    every = [row for rows in panels.values() for row in rows]
    return {
        id(row): f"{method}: {row.name}" if (method := _method(row)) in several else method for row in every
    }


def _method(row: Row) -> str:
    """A method in one of its modes; Source does not adapt, so it has none."""
    mode = "" if row.kind == "source" else row.about["mode"]
    return f"{row.about['base']} {mode}"
