"""Unknown classes by severity: how well each method's certainty tells foreign images from test images."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from ttabench_reports.evidence.report import Report
from ttabench_reports.plots.curves import Panels, parts
from ttabench_reports.plots.plot import Drawing
from ttabench_reports.plots.severities import by_severity, draw
from ttabench_reports.tables.families import Family, families
from ttabench_reports.tables.table import Row

DRAWN = {"auroc_softmax": "maximum softmax", "auroc_energy": "energy"}


def unknown_curves(report: Report) -> Iterator[Drawing]:
    """For each contaminated dataset at several severities, one by maximum softmax and one by energy."""
    for family in families(report.tables):
        if len(family.tables) < 2:
            continue
        for figure in DRAWN:
            for part in parts(by_severity(family, partial(_value, figure))):
                yield _drawing(family, figure, part)


def _value(figure: str, row: Row) -> float:
    return row.unknown.get(figure, math.nan)


def _drawing(family: Family, figure: str, panels: Panels) -> Drawing:
    drawn, below = draw(family, panels, "AUROC (%)", _mean)
    caption = (
        f"Unknown classes on {family.heading} by severity: chance (%) that a test image has a higher "
        f"{DRAWN[figure]} than a foreign image, over all corruptions. {below}"
    )
    title = f"Unknown classes by {DRAWN[figure]}: {family.heading}"
    return Drawing("unknown", f"{family.title} {DRAWN[figure]}", title, caption, drawn)


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known)
