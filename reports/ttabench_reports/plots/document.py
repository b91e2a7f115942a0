r"""All plots with their captions as a LaTeX document; each float can be copied into a paper.

A float needs ``\usepackage{graphicx}`` and is as wide as a column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ttabench_reports.formats.latex.escape import escape

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


def document(captions: Mapping[str, str]) -> str:
    """A document that compiles beside the PDF files of plots; `captions` by the names of the files."""
    return HEAD + "\n".join(_floats(captions)) + "\n\\end{document}\n"


def _floats(captions: Mapping[str, str]) -> Iterator[str]:
    for number, (name, caption) in enumerate(captions.items(), start=1):
        yield "\n".join([
            r"\begin{figure}[tp]",
            r"\centering\footnotesize\emergencystretch=3em",
            f"\\includegraphics[width=\\columnwidth]{{{name}.pdf}}",
            f"\\caption{{{escape(caption)}}}",
            f"\\label{{fig:{name}}}",
            r"\end{figure}",
        ])  # fmt: skip
        if number % PLOTS == 0:
            yield r"\clearpage"
