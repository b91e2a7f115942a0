"""Every table of a report, in the order of its documents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ttabench_reports.evidence.report import Report
from ttabench_reports.sheets import costs, drops, means, methods, per_corruption, stability, unknown_classes
from ttabench_reports.sheets.sheet import Sheet
from ttabench_reports.words import naming


def sheets(report: Report, *, increase: bool = True) -> Iterator[Sheet]:
    """All tables; without `increase`, per-corruption tables have no such rows. Names are unique."""
    taken: set[str] = set()
    for sheet in _sheets(report, increase):
        yield replace(sheet, name=naming.free(sheet.name, taken))


def _sheets(report: Report, increase: bool) -> Iterator[Sheet]:
    yield means.summary(report)
    yield from drops.drops(report)
    yield from means.severities(report)
    yield means.statistics(report)
    if cost := costs.cost(report):
        yield cost
    for table in report.tables:
        yield from per_corruption.sheets(table, increase=increase)
    yield from stability.sheets(report)
    yield from unknown_classes.sheets(report)
    yield methods.given(report)
    yield methods.protocols(report)
