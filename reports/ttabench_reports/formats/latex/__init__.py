r"""The tables as booktabs LaTeX: fragments to ``\input``, and documents that compile as they stand.

A fragment needs ``\usepackage{booktabs,graphicx}`` and nothing else. ``NAME.tex`` takes the width of a
page (``table*``), ``NAME_column.tex`` that of one column of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ttabench_reports.evidence.report import Report
from ttabench_reports.formats.files import write_text
from ttabench_reports.formats.latex.escape import escape
from ttabench_reports.formats.latex.floats import Printed, printed
from ttabench_reports.formats.latex.pages import Form
from ttabench_reports.sheets import every
from ttabench_reports.sheets.sheet import Sheet

__all__ = ["article", "escape", "printed", "write", "write_sheets"]

FORMS: dict[Form, tuple[str, str, str]] = {
    "page": ("", "a4paper", "2.5cm"), "column": ("_column", "a4paper,twocolumn", "2cm"),
}  # fmt: skip
"""Of each form the ending of its files, and the options and margin of its document."""
SETTINGS = (
    r"\renewcommand{\topfraction}{1}\renewcommand{\dbltopfraction}{1}\renewcommand{\textfraction}{0}",
    r"\setcounter{topnumber}{9}\setcounter{dbltopnumber}{9}\setcounter{totalnumber}{9}",
)


def write(
    cells: pd.DataFrame, to: Path, *, increase: bool = True, report: Report | None = None
) -> list[Path]:
    """All tables in the folder `to`, and documents; their paths.

    ``all.tex`` has the main tables, ``appendix.tex`` the others; ``all_column.tex`` and
    ``appendix_column.tex`` are for two columns.
    """
    report = report or Report(cells)
    made = list(every.sheets(report, increase=increase))
    main, further = [s for s in made if s.main], [s for s in made if not s.main]
    return [*write_sheets(main, to, "all"), *write_sheets(further, to, "appendix")]


def write_sheets(
    made: Sequence[Sheet], to: Path, name: str, before: Sequence[str] = (), after: Sequence[str] = ()
) -> list[Path]:
    """Each sheet in both forms, and a document of each form; their paths.

    before, after  lines around the tables in the document of the form ``page``.
    """
    paths: list[Path] = []
    for form, (ending, options, margin) in FORMS.items():
        floats = {f"{sheet.name}{ending}": printed(sheet, form) for sheet in made}
        paths += [write_text(Path(to) / f"{key}.tex", one.text) for key, one in floats.items()]
        lines = [*before, *_inputs(floats), *after] if form == "page" else _inputs(floats)
        text = article(options, margin, "booktabs,graphicx", SETTINGS, lines)
        paths.append(write_text(Path(to) / f"{name}{ending}.tex", text))
    return paths


def _inputs(floats: dict[str, Printed]) -> list[str]:
    """The lines that take fragments into a document; small ones share a page."""
    lines: list[str] = []
    room = 0.0
    for name, one in floats.items():
        if lines and one.height > room:
            lines.append(r"\clearpage")
            room = 0.0
        room = (room or 600.0) - one.height - 20
        lines.append(f"\\input{{{name}.tex}}")
    return lines


def article(options: str, margin: str, packages: str, settings: Sequence[str], lines: Sequence[str]) -> str:
    """A document that compiles as it stands; `settings` say where floats may stand."""
    return "\n".join([
        f"\\documentclass[{options}]{{article}}",
        r"\usepackage[T1]{fontenc}",
        r"\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}",
        f"\\usepackage[margin={margin}]{{geometry}}",
        f"\\usepackage{{{packages}}}",
        *settings,
        r"\begin{document}",
        *lines,
        r"\end{document}",
        "",
    ])  # fmt: skip
