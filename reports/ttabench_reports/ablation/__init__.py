"""Ablation tables as files: the paper's shape, a line per combination, and the settings crossed."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ttabench.errors import NothingToReport
from ttabench.store.columns import MISSING
from ttabench_reports.ablation import sheets
from ttabench_reports.ablation.find import Ablation, Value, ablations, crossed, lines
from ttabench_reports.evidence.report import Report
from ttabench_reports.formats import latex
from ttabench_reports.formats.csv_files import write_csv
from ttabench_reports.sheets.sheet import Sheet
from ttabench_reports.words import naming

__all__ = ["Ablation", "Value", "ablations", "crossed", "lines", "sheets", "write"]


def write(cells: pd.DataFrame, to: Path, *, report: Report | None = None) -> list[Path]:
    """``ablation_*`` and ``ablation_*_crossed``, as CSV and LaTeX, and ``ablations.tex``; their paths.

    Raises NothingToReport, with the reasons, where `cells` hold no ablation.
    """
    report = report or Report(cells)
    crossings, reasons = ablations(report.tables, report.cells.attrs.get(MISSING, ()))
    if not crossings:
        why = f" ({'; '.join(reasons)})" if reasons else ""
        raise NothingToReport(
            f"no method ran with several values of one setting, or with all combinations of two{why}; sweep "
            "with --set method.setting=value,value to make an ablation."
        )
    paths: list[Path] = []
    made: list[Sheet] = []
    taken: set[str] = set()
    for ablation in crossings:
        about = ablation.about
        what = f"{about['base']} {about['arch']} {ablation.weights} {ablation.table.title}"
        name = naming.free(f"ablation_{naming.slug(what)}", taken)
        paths.append(write_csv(Path(to) / f"{name}.csv", lines(ablation)))
        paths.append(write_csv(Path(to) / f"{name}_crossed.csv", crossed(ablation)))
        made += [sheets.paper(ablation, name), sheets.cross(ablation, f"{name}_crossed")]
    return [*paths, *latex.write_sheets(made, Path(to), "ablations")]
