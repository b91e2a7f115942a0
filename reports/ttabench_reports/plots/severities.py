"""Curves of each method from the mildest severity to the strongest: mean accuracy, and unknown classes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from matplotlib.figure import Figure

from ttabench_reports.evidence.report import Report
from ttabench_reports.plots.captions import flags, protocol
from ttabench_reports.plots.curves import Curve, Panels, curves, others, parts, rows_of, shown
from ttabench_reports.plots.plot import Drawing
from ttabench_reports.plots.which import looks
from ttabench_reports.sheets import words
from ttabench_reports.tables.families import Family, across, families
from ttabench_reports.tables.table import Row
from ttabench_reports.words.naming import MEAN

CERTAINTIES = {"auroc_softmax": "maximum softmax", "auroc_energy": "energy"}
"""Figures of unknown classes that are drawn → the certainty that each is of."""


def severity_curves(report: Report) -> Iterator[Drawing]:
    """One for each dataset that was swept at several severities."""
    for family in families(report.tables):
        if len(family.tables) > 1:
            for part in parts(_by_severity(family, lambda row: row.value(MEAN))):
                yield _severity_curves(family, part)


def _severity_curves(family: Family, panels: Panels) -> Drawing:
    figure, below = _draw(family, panels, "Mean accuracy (%)", _complete_first)
    caption = f"Mean accuracy (%) {words.over(family.tables)} of {family.heading} by severity. {below}"
    return Drawing("severity", family.title, f"Accuracy by severity: {family.heading}", caption, figure)


def unknown_curves(report: Report) -> Iterator[Drawing]:
    """For each contaminated dataset at several severities, one by maximum softmax and one by energy."""
    for family in families(report.tables):
        if len(family.tables) < 2:
            continue
        for figure in CERTAINTIES:
            for part in parts(_by_severity(family, partial(_value, figure))):
                yield _unknown_curves(family, figure, part)


def _value(figure: str, row: Row) -> float:
    return row.unknown.get(figure, math.nan)


def _unknown_curves(family: Family, figure: str, panels: Panels) -> Drawing:
    drawn, below = _draw(family, panels, "AUROC (%)", _mean_of_known)
    caption = (
        f"Unknown classes on {family.heading} by severity: chance (%) that a test image has a higher "
        f"{CERTAINTIES[figure]} than a foreign image, over all corruptions. {below}"
    )
    title = f"Unknown classes by {CERTAINTIES[figure]}: {family.heading}"
    return Drawing("unknown", f"{family.title} {CERTAINTIES[figure]}", title, caption, drawn)


def _complete_first(values: Sequence[float]) -> float:
    """The mean. That of a curve with gaps is over other severities: it is below those of complete curves."""
    return _mean_of_known(values) - 100 * sum(map(math.isnan, values))


def _mean_of_known(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known)


def _by_severity(family: Family, value: Callable[[Row], float]) -> dict[str, list[Curve]]:
    """A curve for each method that has a number at some severity, with a gap where it has none."""
    severities = _severities(family)
    panels: dict[str, list[Curve]] = {}
    for (arch, _), rows in across(family.tables).items():
        values = [value(rows[n]) if n in rows else math.nan for n in range(len(severities))]
        if not all(map(math.isnan, values)):
            *others, last = rows.values()
            panels.setdefault(arch, []).append(Curve(last, severities, values, others))
    return panels


def _draw(
    family: Family, panels: Panels, what: str, mean: Callable[[Sequence[float]], float]
) -> tuple[Figure, str]:
    """A figure of curves by severity, and what its caption says of marks and protocol.

    what  the axis shows.
    mean  of the numbers of a curve; the best curves have colours.
    """
    means = {id(curve.row): mean(curve.y) for group in panels.values() for curve in group}
    rows = rows_of(panels)
    chosen = looks(rows, lambda row: means[id(row)])
    figure, made = curves(panels, chosen, "Severity", what)
    for axes in made:
        axes.set_xticks(_severities(family))
    return figure, f"{others(panels, chosen)}{flags(shown(panels))}{protocol(*family.tables)}"


def _severities(family: Family) -> list[int]:
    return [int(table.key["severity"]) for table in family.tables]
