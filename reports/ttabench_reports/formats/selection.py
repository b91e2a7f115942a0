"""The choice of settings without labels, as files and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import RenderableType

from ttabench_reports.evidence import selection
from ttabench_reports.evidence.report import Report
from ttabench_reports.formats import latex, markdown
from ttabench_reports.formats.csv_files import write_csv
from ttabench_reports.formats.files import write_text
from ttabench_reports.sheets.selection import sheet
from ttabench_reports.terminal import sheets as terminal


def write(report: Report, names: Sequence[str], to: Path) -> tuple[list[Path], RenderableType]:
    """``select.csv``, ``select_settings.csv``, ``select.md`` and LaTeX in `to`, and the table to print.

    names  of `selection.SCORES`, or ``all``. Raises UserError, see :func:`selection.choices`.
    """
    made = selection.choices(report, names)
    printed = sheet(made)
    paths = [
        write_csv(to / "select.csv", selection.frame(made)),
        write_csv(to / "select_settings.csv", selection.settings_frame(made)),
        write_text(to / "select.md", markdown.render(printed)),
        *latex.write_sheets([printed], to, "select_document"),
    ]
    return paths, terminal.render(printed)
