r"""The tables as booktabs LaTeX: fragments to ``\input``, and ``all.tex``, which compiles as it stands.

A fragment needs ``\usepackage{booktabs,graphicx}`` and nothing else.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ttabench_reports import naming
from ttabench_reports.files import write_text
from ttabench_reports.naming import MEAN, MEAN_EXTRA
from ttabench_reports.shape import LABEL, LEGEND, Row, Table
from ttabench_reports.tables import means, tables

MOST_ROWS = 48  # per float: what fits on a page
_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "#": r"\#", "$": r"\$", "%": r"\%", "&": r"\&",
    "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''", "[": "{[}", "]": "{]}",
    "†": r"\textdagger{}", "‡": r"\textdaggerdbl{}", "§": r"\S{}", "–": "--", "—": "---", "−": "$-$",
    "…": r"\dots{}", "°": r"$^\circ$", "’": "'", "‘": "`", "“": "``", "”": "''", "‖": r"$\|$", "⁄": "/",
}  # fmt: skip
_FORMULAS = {  # signs that LaTeX has a command for in formulas, without any package
    "αβγδεζηθικλμνξπ": "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi",
    "ρςστυφχψω": "rho varsigma sigma tau upsilon phi chi psi omega",
    "ΓΔΘΛΞΠΣΥΦΨΩ": "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega",
    "√±∓×÷·∗∘⊕⊗⊙": "surd pm mp times div cdot ast circ oplus otimes odot",
    "≤≥≠≈∼≡∝≪≫∈∉⊂∪∩∅": "le ge ne approx sim equiv propto ll gg in notin subset cup cap emptyset",
    "→←↔↦⇒↑↓": "to gets leftrightarrow mapsto Rightarrow uparrow downarrow",
    "∞∂∇∑∏∫": "infty partial nabla sum prod int",
    "∧∨¬∀∃⟨⟩⌊⌋⌈⌉ℓ": "wedge vee neg forall exists langle rangle lfloor rfloor lceil rceil ell",
}
_SPECIAL |= {
    sign: f"$\\{command}$"
    for signs, commands in _FORMULAS.items()
    for sign, command in zip(signs, commands.split(), strict=True)
}
_SPECIAL |= dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True))  # Greek that looks Latin


def write(cells: pd.DataFrame, to: Path, published: pd.DataFrame | None = None) -> list[Path]:
    """Per-corruption tables, summary, drop table and ``all.tex`` in the folder `to`; their paths."""
    built = tables(cells, published)
    pieces: dict[str, list[Float]] = {}
    for table in built:
        name = f"per_corruption_{naming.slug(table.title)}"
        while name in pieces:
            name += "_"
        pieces[name] = list(per_corruption(table))
    summaries = means(built)
    pieces["summary"] = [summary(summaries, built)]
    pieces["drop"] = [drop(summaries, built)]
    paths = [
        write_text(
            Path(to) / f"{name}.tex", "\n".join(f.render(f"{name}-{n}") for n, f in enumerate(floats, 1))
        )
        for name, floats in pieces.items()
    ]
    return [*paths, write_text(Path(to) / "all.tex", document(list(pieces)))]


def escape(text: str) -> str:
    """`text` so that LaTeX prints it: specials escaped, Greek and signs as formulas, accents left out.

    What pdfLaTeX has no letter for is printed by its number, such as ``U+4E2D``.

    >>> escape("tent[norms=all]: 5 % of a_b")
    'tent{[}norms=all{]}: 5 \\\\% of a\\\\_b'
    """
    return "".join(_SPECIAL.get(char) or _plain(char) for char in text)


def _plain(char: str) -> str:
    if char.isascii():
        return char if char.isprintable() else " "
    if "À" <= char <= "ÿ" and char not in "ÐðÞþ":  # what every font encoding can build
        return char
    if unicodedata.combining(char) or unicodedata.category(char) == "Cf":
        return ""
    parts = unicodedata.normalize("NFKD", char)
    text = escape(parts) if parts != char else ""
    if not text or "U+" in text:
        return f"U+{ord(char):04X}"
    raised = {"<super>": "\\textsuperscript", "<sub>": "\\textsubscript"}
    command = raised.get(unicodedata.decomposition(char).split()[0])
    return f"{command}{{{text}}}" if command else text


Cell = tuple[str, bool]  # (LaTeX, whether bold)


@dataclass(frozen=True)
class Float:
    """A ``table*``; `groups` of rows are set apart by rules, and continue in a next float if need be."""

    caption: str
    align: str
    header: Sequence[str]
    groups: Sequence[Sequence[Sequence[Cell]]]
    legend: Sequence[str] = ()

    def render(self, label: str) -> str:
        return "\n".join(self._float(label, n, groups) for n, groups in enumerate(self._pages()))

    def _pages(self) -> Iterator[list[Sequence[Sequence[Cell]]]]:
        page: list[Sequence[Sequence[Cell]]] = []
        room = MOST_ROWS
        for group in self.groups:
            for start in range(0, len(group), MOST_ROWS):
                part = group[start : start + MOST_ROWS]
                if len(part) > room:
                    yield page
                    page, room = [], MOST_ROWS
                page.append(part)
                room -= len(part)
        yield page

    def _float(self, label: str, number: int, groups: list[Sequence[Sequence[Cell]]]) -> str:
        caption = self.caption if number == 0 else "Continued."
        lines = [
            r"\begin{table*}[tp]",
            r"\centering\small\setlength{\tabcolsep}{3.5pt}",
            r"\setlength{\abovecaptionskip}{0pt}\setlength{\belowcaptionskip}{6pt}",
            f"\\caption{{{caption}}}",
            f"\\label{{tab:{label}{chr(ord('a') + number) if number else ''}}}",
            r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%",
            self._tabular(groups).rstrip() + "}",
        ]
        if self.legend:
            lines.append(r"\par\smallskip{\footnotesize " + "; ".join(self.legend) + r".\par}")
        return "\n".join([*lines, r"\end{table*}", ""])

    def _tabular(self, groups: list[Sequence[Sequence[Cell]]]) -> str:
        rows = [row for group in groups for row in group]
        frame = pd.DataFrame([[text for text, _ in row] for row in rows], dtype=object)
        bold = pd.DataFrame([["textbf:--rwrap;" if b else "" for _, b in row] for row in rows])
        styler = frame.style.hide(axis=0).format_index(lambda i: self.header[int(str(i))], axis=1)
        text = styler.apply(lambda _: bold, axis=None).to_latex(column_format=self.align, hrules=True)
        lines = text.splitlines()
        at = lines.index(r"\midrule") + 1
        for group in groups[:-1]:
            at += len(group)
            lines.insert(at, r"\midrule")
            at += 1
        return "\n".join(lines)


def per_corruption(table: Table) -> Iterator[Float]:
    """The paper's appendix table: Source, method, Increase per architecture, the best in bold.

    Extra corruptions follow in a table of their own.
    """
    yield _per_corruption(table, (*table.main, MEAN))
    if table.extra:
        yield _per_corruption(table, (*table.extra, MEAN_EXTRA))


def _per_corruption(table: Table, columns: Sequence[str]) -> Float:
    header = ["", "", *(f"\\rotatebox{{90}}{{{escape(naming.title(c))}}}" for c in columns)]
    best = table.best()
    groups = []
    for arch, rows in table.archs().items():
        lines: list[list[Cell]] = []
        for row in rows:
            if row.kind == "published" and all(math.isnan(row.value(c)) for c in columns):
                continue
            label = (
                "Increase" if row.kind == "increase" else escape(row.method + row.flags) + _raised(row, LABEL)
            )
            numbers = [(_number(row, c), (id(row), c) in best) for c in columns]
            lines.append([("" if lines else escape(arch), False), (label, False), *numbers])
        groups.append(lines)
    legend = [
        f"{escape(mark) if mark in LEGEND else f'$^{mark}$'} {escape(text)}"
        for mark, text in table.legend(columns)
    ]
    caption = f"{escape(table.caption)} Bold: best of an architecture."
    return Float(caption, "ll" + "r" * len(columns), header, groups, legend)


def _number(row: Row, column: str) -> str:
    value, sd = row.value(column), row.sd.get(column, math.nan)
    if math.isnan(value):
        return escape(row.words.get(column, "")) + _raised(row, column)
    if row.kind == "increase":
        return f"\\footnotesize {_signed(value)}"
    spread = "" if math.isnan(sd) else f"{{\\tiny$\\pm${sd:.1f}}}"
    return f"{value:.1f}{spread}{_raised(row, column)}"


def _raised(row: Row, column: str) -> str:
    letters = row.letters.get(column, "")
    return f"$^{{{letters}}}$" if letters else ""


def _signed(value: float) -> str:
    return "" if math.isnan(value) else naming.points(value).replace("-", "$-$")


def summary(lines: pd.DataFrame, built: Sequence[Table]) -> Float:
    """Baseline, accuracy and increase, means over the corruptions (see :func:`tables.summary`)."""
    caption = f"Increase in mean accuracy (\\%) over the corruptions above Source. {_measured(built)}"
    header = ["Dataset", "Model", "Method", "Baseline", "Accuracy", "Increase"]
    best = lines.groupby(["table", "arch"])["accuracy"].transform(lambda a: a.round(1).max())
    groups = _grouped(lines, lines["accuracy"].round(1) == best, lambda row: [
        _one(row["baseline"]), _accuracy(row), _signed(row["increase"])
    ], bold=1)  # fmt: skip
    return Float(caption, "lllrrr", header, groups, _flags(lines))


def drop(lines: pd.DataFrame, built: Sequence[Table]) -> Float:
    """Clean, corrupted, drop (see :func:`tables.drop`); the smallest drop of an architecture in bold."""
    caption = (
        "Drop in accuracy (\\%) from the source classifier on clean images to the mean over the corruptions. "
        + _measured(built)
    )
    header = ["Dataset", "Model", "Method", "Clean", "Corrupted", "Drop"]
    best = lines.groupby(["table", "arch"])["drop"].transform(lambda a: a.round(1).min())
    groups = _grouped(lines, lines["drop"].round(1) == best, lambda row: [
        _one(row["clean"]), _accuracy(row), _one(row["drop"])
    ], bold=2)  # fmt: skip
    return Float(caption, "lllrrr", header, groups, _flags(lines))


def _grouped(
    lines: pd.DataFrame, best: pd.Series[bool], numbers: Any, *, bold: int
) -> list[list[list[Cell]]]:
    groups: list[list[list[Cell]]] = []
    last = ("", "")
    for (_, row), is_best in zip(lines.iterrows(), best, strict=True):
        here = (str(row["table"]), str(row["arch"]))
        if here[0] != last[0]:
            groups.append([])
        table = escape(here[0]) if here[0] != last[0] else ""
        arch = escape(here[1]) if here != last else ""
        texts = [table, arch, escape(f"{row['method']}{row['flags']}"), *numbers(row)]
        groups[-1].append([(text, bool(is_best) and i == 3 + bold) for i, text in enumerate(texts)])
        last = here
    return groups


def _one(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.1f}".replace("-", "$-$")


def _accuracy(row: Any) -> str:
    if math.isnan(row["accuracy"]):
        return escape(row["word"])
    return f"{row['accuracy']:.1f}" + ("" if math.isnan(row["sd"]) else f"{{\\tiny$\\pm${row['sd']:.1f}}}")


def _flags(lines: pd.DataFrame) -> list[str]:
    used = "".join(lines["flags"])
    return [f"{escape(flag)} {escape(text)}" for flag, text in LEGEND.items() if flag in used]


def _measured(built: Sequence[Table]) -> str:
    """The protocol, once where all tables share it."""
    said: dict[str, list[str]] = {}
    for table in built:
        said.setdefault(table.measured, []).append(table.title)
    if len(said) == 1:
        return escape(next(iter(said)))
    return escape(" ".join(f"{'; '.join(titles)}: {text}" for text, titles in said.items()))


def document(names: Sequence[str]) -> str:
    """A LaTeX document of all fragments."""
    return "\n".join([
        r"\documentclass{article}",
        r"\usepackage[T1]{fontenc}",
        r"\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}",
        r"\usepackage[a4paper,landscape,margin=2cm]{geometry}",
        r"\usepackage{booktabs,graphicx}",
        r"\begin{document}",
        *(f"\\input{{{name}.tex}}\n\\clearpage" for name in names),
        r"\end{document}",
        "",
    ])  # fmt: skip
