r"""A sheet as LaTeX floats: booktabs, rotated heads, and as many floats as pages are needed.

How to read a long table stands below its first part; each footnote stands once, where it is first needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ttabench_reports.formats.latex.escape import escape
from ttabench_reports.formats.latex.pages import (
    LABEL_WIDTH,
    ROW_SPACE,
    Form,
    head_lines,
    over_lines,
    pages_of,
    stacked,
)
from ttabench_reports.sheets.sheet import Entry, Head, Line, Sheet


@dataclass(frozen=True)
class Printed:
    """LaTeX, and the height of its highest float in points, estimated."""

    text: str
    height: float


def printed(sheet: Sheet, form: Form) -> Printed:
    """All floats of a sheet. One that is wide has the width of a page in each form."""
    label = f"tab:{sheet.name}{'' if form == 'page' else '-column'}"
    width: Form = "page" if sheet.wide else form
    pages = pages_of(sheet, width)
    texts = [_float(page, width, label, number) for number, (page, _) in enumerate(pages)]
    return Printed("\n".join(texts), max(height for _, height in pages))


def _float(sheet: Sheet, form: Form, label: str, number: int) -> str:
    star = "*" if form == "page" else ""
    width = r"\textwidth" if star else r"\columnwidth"
    again = [] if not number else [r"\addtocounter{table}{-1}"]
    caption = escape(sheet.caption) if not number else "(continued)"
    named = f"\\label{{{label}{f'-{number + 1}' if number else ''}}}"
    lines = [
        f"\\begin{{table{star}}}[tp]", *again,
        r"\centering\footnotesize\setlength{\tabcolsep}{2.6pt}\emergencystretch=3em",
        r"\setlength{\abovecaptionskip}{0pt}\setlength{\belowcaptionskip}{4pt}",
        f"\\caption{{{caption}}}", named,
    ]  # fmt: skip
    for position, block in enumerate(stacked(sheet, form)):
        if position:
            lines.append(r"\par\smallskip")
        lines += [
            f"\\resizebox{{\\ifdim\\width>{width}{width}\\else\\width\\fi}}{{!}}{{%",
            _tabular(block, LABEL_WIDTH[form]) + "}",
        ]
    notes = [f"{_mark(mark)}\u2009{escape(text)}." for mark, text in sheet.used_notes]
    text = " ".join([escape(sheet.footer), *notes]).strip().replace("\u2009", r"\,")
    if text:
        lines.append(r"\par\smallskip\parbox{" + width + r"}{\footnotesize\raggedright " + text + r"\par}")
    return "\n".join([*lines, f"\\end{{table{star}}}", ""])


def _tabular(sheet: Sheet, label: int) -> str:
    columns = "".join("r" if head.align == "r" else "l" for head in sheet.heads)
    running = any(head.align == "p" for head in sheet.heads)
    lines = [f"\\begin{{tabular}}{{@{{}}{columns}@{{}}}}", r"\toprule"]
    if sheet.over:
        lines += _over(sheet)
    lines += [" & ".join(map(_head, sheet.heads)) + r" \\", r"\midrule"]
    for number, group in enumerate(sheet.groups):
        if number:
            lines.append(r"\midrule")
        if group.heading:
            text = f"\\textit{{{escape(group.heading)}}}"
            lines.append(f"\\multicolumn{{{len(sheet.heads)}}}{{@{{}}l@{{}}}}{{{text}}} \\\\")
            lines.append(r"\addlinespace[1pt]")
        for position, block in enumerate(group.blocks):
            if position:
                lines.append(r"\addlinespace[3pt]")
            rows = [_line(line, sheet.heads, label) + r" \\" for line in block]
            lines += _spaced(rows) if running else rows
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _spaced(rows: Sequence[str]) -> list[str]:
    """Rows of several lines with a little space between them, so that it is seen where each begins."""
    between = f"\\addlinespace[{ROW_SPACE:g}pt]"
    return [part for row in rows for part in (between, row)][1:]


def _over(sheet: Sheet) -> list[str]:
    cells, rules = [], []
    at = 1
    for (text, span), folded in zip(sheet.over, over_lines(sheet), strict=True):
        cells.append(f"\\multicolumn{{{span}}}{{c}}{{{_stack(folded, 'c')}}}")
        if text:
            rules.append(f"\\cmidrule(lr){{{at}-{at + span - 1}}}")
        at += span
    return [" & ".join(cells) + r" \\", "".join(rules)]


def _head(head: Head) -> str:
    if head.rotated:
        return f"\\rotatebox{{90}}{{{escape(head.text)}}}"
    return _stack(head_lines(head), head.align)


def _stack(lines: Sequence[str], align: str) -> str:
    """Lines below each other."""
    text = r"\\".join(map(escape, lines))
    return text if len(lines) == 1 else f"\\shortstack[{align}]{{{text}}}"


def _line(line: Line, heads: Sequence[Head], label: int) -> str:
    texts = []
    at = 0
    for cell in line:
        texts.append(_cell(cell, heads[at], label))
        at += cell.span
    return " & ".join(texts)


def _cell(cell: Entry, head: Head, label: int) -> str:
    text = escape(cell.text)
    if cell.place:
        command = "textbf" if cell.place == "best" else "underline"
        text = f"\\{command}{{{text}}}"
    if cell.small and text:
        text = f"{{\\scriptsize {text}}}"
    if cell.after:
        text += f"{{\\scriptsize {escape(cell.after)}}}"
    if cell.marks:
        text += "".join(map(_mark, cell.marks))
    if cell.span > 1:
        return f"\\multicolumn{{{cell.span}}}{{{'l' if cell.left else 'r'}}}{{{text}}}"
    if head.align == "p" and cell.text:
        text = text.replace(r"\_", r"\_\allowbreak{}").replace("=", r"=\allowbreak{}")  # long settings
        return f"\\parbox[t]{{{head.width:.2f}\\linewidth}}{{\\raggedright {text}\\strut}}\\hspace{{4pt}}"
    if head.align == "l" and len(cell.text) > label:
        longest = max(map(len, cell.text.split())) + len(cell.marks)
        return f"\\parbox[t]{{{max(0.45 * label, 0.6 * longest):.1f}em}}{{\\raggedright {text}\\strut}}"
    return text


def _mark(mark: str) -> str:
    return f"\\textsuperscript{{{escape(mark)}}}"
