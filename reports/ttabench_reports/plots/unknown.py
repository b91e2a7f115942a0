"""Unknown classes by severity: how well each method's certainty tells foreign images from test images."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ttabench_reports.evidence.report import Report
from ttabench_reports.plots.captions import flags, protocol
from ttabench_reports.plots.curves import Curve, Panels, curves, others, parts
from ttabench_reports.plots.plot import Drawing
from ttabench_reports.plots.which import looks, methods
from ttabench_reports.tables.families import Family, families
from ttabench_reports.tables.table import Row

DRAWN = {"auroc_softmax": "maximum softmax", "auroc_energy": "energy"}


def unknown_curves(report: Report) -> Iterator[Drawing]:
    """For each contaminated dataset at several severities, one by maximum softmax and one by energy."""
    for family in families(report.tables):
        if len(family.tables) < 2:
            continue
        for figure in DRAWN:
            panels = _panels(family, figure)
            for part in parts(panels):
                yield _drawing(family, figure, part)


def _panels(family: Family, figure: str) -> dict[str, list[Curve]]:
    severities = [int(table.key["severity"]) for table in family.tables]
    rows: dict[tuple[str, str], dict[int, Row]] = {}
    for table, severity in zip(family.tables, severities, strict=True):
        for arch, rows_of_arch in methods(table).items():
            for row in rows_of_arch:
                if not math.isnan(row.unknown.get(figure, math.nan)):
                    rows.setdefault((arch, row.method), {})[severity] = row
    panels: dict[str, list[Curve]] = {}
    for (arch, _), by_severity in rows.items():
        values = [by_severity[s].unknown[figure] if s in by_severity else math.nan for s in severities]
        last = by_severity[max(by_severity)]
        panels.setdefault(arch, []).append(Curve(last, severities, values))
    return panels


def _drawing(family: Family, figure: str, panels: Panels) -> Drawing:
    rows = {arch: [curve.row for curve in group] for arch, group in panels.items()}
    means = {id(curve.row): _mean(curve.y) for group in panels.values() for curve in group}
    chosen = looks(rows, lambda row: means[id(row)])
    drawn, made = curves(panels, chosen, "Severity", "AUROC (%)")
    for axes in made:
        axes.set_xticks([int(table.key["severity"]) for table in family.tables])
    caption = (
        f"Unknown classes on {family.heading} by severity: chance (%) that a test image has a higher "
        f"{DRAWN[figure]} than a foreign image, over all corruptions. "
        f"{others(panels, chosen)}{flags([row for group in rows.values() for row in group])}"
        f"{protocol(family.tables[-1])}"
    )
    title = f"Unknown classes by {DRAWN[figure]}: {family.heading}"
    return Drawing("unknown", f"{family.title} {DRAWN[figure]}", title, caption, drawn)


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known)
