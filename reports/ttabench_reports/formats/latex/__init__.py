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

__all__ = ["document", "escape", "printed", "write", "write_sheets"]


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


def write_sheets(made: Sequence[Sheet], to: Path, name: str) -> list[Path]:
    """Each sheet in both forms, and a document of each form; their paths."""
    paths: list[Path] = []
    forms: dict[Form, str] = {"page": "", "column": "_column"}
    for form, ending in forms.items():
        floats = {f"{sheet.name}{ending}": printed(sheet, form) for sheet in made}
        paths += [write_text(Path(to) / f"{key}.tex", one.text) for key, one in floats.items()]
        text = document(floats, form)
        paths.append(write_text(Path(to) / f"{name}{ending}.tex", text))
    return paths


def document(floats: dict[str, Printed], form: Form) -> str:
    """A LaTeX document of these fragments; small ones share a page."""
    options = "a4paper" if form == "page" else "a4paper,twocolumn"
    margin = "2.5cm" if form == "page" else "2cm"
    lines: list[str] = []
    room = 0.0
    for name, one in floats.items():
        if lines and one.height > room:
            lines.append(r"\clearpage")
            room = 0.0
        room = (room or 600.0) - one.height - 20
        lines.append(f"\\input{{{name}.tex}}")
    return "\n".join([
        f"\\documentclass[{options}]{{article}}",
        r"\usepackage[T1]{fontenc}",
        r"\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}",
        f"\\usepackage[margin={margin}]{{geometry}}",
        r"\usepackage{booktabs,graphicx}",
        r"\renewcommand{\topfraction}{1}\renewcommand{\dbltopfraction}{1}\renewcommand{\textfraction}{0}",
        r"\setcounter{topnumber}{9}\setcounter{dbltopnumber}{9}\setcounter{totalnumber}{9}",
        r"\begin{document}",
        *lines,
        r"\end{document}",
        "",
    ])  # fmt: skip
