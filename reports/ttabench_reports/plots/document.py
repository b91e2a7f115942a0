r"""All plots with their captions as a LaTeX document; each float can be copied into a paper.

A float needs ``\usepackage{graphicx}`` and is as wide as a column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ttabench_reports.formats.latex import article, escape

SETTINGS = r"\renewcommand{\topfraction}{1}\renewcommand{\textfraction}{0}\setcounter{topnumber}{9}"
PLOTS = 10
"""Floats that LaTeX may hold back before a page is full."""


def document(captions: Mapping[str, str]) -> str:
    """A document that compiles beside the PDF files of plots; `captions` by the names of the files."""
    return article("a4paper,twocolumn", "2cm", "graphicx", [SETTINGS], list(_floats(captions)))


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
