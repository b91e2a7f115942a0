r"""All plots with their captions as a LaTeX document; each float can be copied into a paper.

A float needs ``\usepackage{graphicx}`` and is as wide as a column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ttabench_reports.formats.latex.escape import escape
from ttabench_reports.plots.plot import Plot

HEAD = r"""\documentclass[a4paper,twocolumn]{article}
\usepackage[T1]{fontenc}
\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}
\usepackage[margin=2cm]{geometry}
\usepackage{graphicx}
\renewcommand{\topfraction}{1}\renewcommand{\textfraction}{0}\setcounter{topnumber}{9}
\begin{document}
"""
PLOTS = 10
"""Floats that LaTeX may hold back before a page is full."""


def document(plots: Sequence[Plot]) -> str:
    """A document that compiles beside the PDF files of these plots."""
    return HEAD + "\n".join(_floats(plots)) + "\n\\end{document}\n"


def _floats(plots: Sequence[Plot]) -> Iterator[str]:
    for number, plot in enumerate(plots, start=1):
        yield "\n".join([
            r"\begin{figure}[tp]",
            r"\centering\footnotesize\emergencystretch=3em",
            f"\\includegraphics[width=\\columnwidth]{{{plot.name}.pdf}}",
            f"\\caption{{{escape(plot.caption)}}}",
            f"\\label{{fig:{plot.name}}}",
            r"\end{figure}",
        ])  # fmt: skip
        if number % PLOTS == 0:
            yield r"\clearpage"
