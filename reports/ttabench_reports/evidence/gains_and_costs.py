"""What each method cost, beside what it gained: one line per dataset × severity × architecture × method."""

from __future__ import annotations

import math

import pandas as pd

from ttabench_reports.evidence.flat_rows import line_of
from ttabench_reports.evidence.report import Report
from ttabench_reports.tables.rows_of_cells import MEASURED
from ttabench_reports.tables.table import Row
from ttabench_reports.words.naming import MEAN

TRUSTED = 0.1  # share by which Source's C may differ from its forward passes per image


def costs(report: Report) -> pd.DataFrame:
    """Accuracy, increase and cost of every measured row: the data of accuracy against cost.

    Costs are those of `tables.MEASURED`, NaN where they were not measured. `cells` and `cells_with_cost`
    count the cells of a row, and `notes` says what is missing. `device` names each device on which they ran.
    """
    lines = [
        line_of(
            table, row, mode=row.about["mode"], batch_size=row.about["batch_size"],
            accuracy=row.value(MEAN), increase=row.rise,
            **{name: row.about[name] for name in MEASURED}, device=device(row),
            cells=row.about["measured"], cells_with_cost=row.about["costs"],
        ) | {"notes": "; ".join(filter(None, (lacks(row), doubt(row))))}
        for table in report.tables for row in table.measured_rows
    ]  # fmt: skip
    return pd.DataFrame(lines)


def device(row: Row) -> str:
    """``cpu``, or ``cpu, cuda`` where the cells of a row with a number ran on several."""
    return ", ".join(filter(None, dict.fromkeys((row.about["first_device"], row.about["last_device"]))))


def doubt(row: Row) -> str:
    """Why the times of a row, or of its network, may be wrong, as the text of a footnote; "" if all is well.

    Source's C is its time over that of its own forward pass. Where times can be trusted, it is the number of
    its passes: 1, or more in offline mode, which goes over the images before it scores them.
    """
    if "," in (several := device(row)) and row.about["costs"]:
        return f"its cells ran on different devices ({several}), and the medians are over all of them"
    ratio, passes = float(row.about["compute_ratio"]), float(row.about["forward_passes"])
    passes = passes if passes > 0 else 1.0  # not known of cells that others made
    if row.kind != "source" or math.isnan(ratio) or round(abs(ratio / passes - 1), 4) <= TRUSTED:
        return ""
    return (
        f"Source itself has C = {ratio:.2f} and not {passes:g}. Other work ran too, or a pass "
        "is too short to be timed. Every C of this network may be wrong by as much"
    )


def lacks(row: Row) -> str:
    """What the costs of a row lack, as the text of a footnote; "" if nothing."""
    measured, known = row.about["measured"], row.about["costs"]
    if known == measured:
        return ""
    if not known:
        return "its cost was not measured"
    return "the cost of some of its cells was not measured; the medians are over the others"
