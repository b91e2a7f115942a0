"""Severity curves: the mean accuracy of each method from the mildest severity to the strongest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from ttabench_reports.evidence.report import Report
from ttabench_reports.plots.captions import flags, protocol
from ttabench_reports.plots.curves import Curve, Panels, curves, others, parts
from ttabench_reports.plots.plot import Drawing
from ttabench_reports.plots.which import looks, methods
from ttabench_reports.tables.families import Family, families
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words.naming import MEAN


def severity_curves(report: Report) -> Iterator[Drawing]:
    """One for each dataset that was swept at several severities."""
    for family in families(report.tables):
        severities = [int(table.key["severity"]) for table in family.tables]
        if len(severities) < 2:
            continue
        panels = _panels(family.tables, severities)
        for part in parts(panels):
            yield _severity_curves(family, severities, part)


def _panels(family: Sequence[Table], severities: Sequence[int]) -> dict[str, list[Curve]]:
    """A curve for each method, with a gap where it has no mean."""
    rows: dict[str, dict[str, Row]] = {}
    values: dict[tuple[str, str], dict[int, float]] = {}
    for table, severity in zip(family, severities, strict=True):
        for arch, rows_of_arch in methods(table).items():
            for row in rows_of_arch:
                rows.setdefault(arch, {})[row.method] = row
                values.setdefault((arch, row.method), {})[severity] = row.value(MEAN)
    return {
        arch: [
            Curve(row, severities, [values[arch, method].get(s, math.nan) for s in severities])
            for method, row in rows_of_arch.items()
            if not all(map(math.isnan, values[arch, method].values()))
        ]
        for arch, rows_of_arch in rows.items()
    }


def _severity_curves(family: Family, severities: Sequence[int], panels: Panels) -> Drawing:
    chosen = looks(
        {arch: [curve.row for curve in group] for arch, group in panels.items()}, partial(_mean, panels)
    )
    figure, made = curves(panels, chosen, "Severity", "Mean accuracy (%)")
    for axes in made:
        axes.set_xticks(severities)
    rows = [curve.row for group in panels.values() for curve in group]
    caption = (
        f"Mean accuracy (%) over the corruptions of {family.heading} by severity. "
        f"{others(panels, chosen)}{flags(rows)}{protocol(family.tables[-1])}"
    )
    return Drawing("severity", family.title, f"Accuracy by severity: {family.heading}", caption, figure)


def _mean(panels: Panels, row: Row) -> float:
    """Of a method over the severities, on the architecture of `row`."""
    values = next(curve.y for curve in panels[row.arch] if curve.row is row)
    return sum(values) / len(values)
