"""The page on paper: all tables in one document, with the sentences before them and the figures after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ttabench_reports.formats.latex import escape

__all__ = ["on_paper"]

BEGIN, END = "\\begin{document}\n", "\\end{document}\n"


def on_paper(
    document: str, title: str, before: Mapping[str, Sequence[str]], figures: Mapping[str, str],
    missing: Sequence[str], after: Mapping[str, Sequence[str]],
) -> str:  # fmt: skip
    """`document` with more in it.

    before   heading → sentences; nothing where there are none. `after` likewise, at the end.
    figures  what a figure shows → its file, without an ending, from the document's folder.
    missing  sentences on figures that are not there.
    """
    head, body = document.removesuffix(END).split(BEGIN, 1)
    parts = [
        head + BEGIN.rstrip(), f"\\section*{{{escape(title)}}}", *_sections(before), r"\clearpage",
        body.rstrip(), r"\clearpage", *(_figure(words, file) for words, file in figures.items()),
        *_sections({"Figures that are missing": missing, **after}), END,
    ]  # fmt: skip
    return "\n".join(parts)


def _sections(sections: Mapping[str, Sequence[str]]) -> list[str]:
    return [
        "\n".join([
            f"\\subsection*{{{escape(heading)}}}", r"\begin{itemize}",
            *(f"\\item {escape(sentence)}" for sentence in sentences), r"\end{itemize}",
        ])
        for heading, sentences in sections.items() if sentences
    ]  # fmt: skip


def _figure(words: str, file: str) -> str:
    """In the text, where it stands, so that nothing has to float."""
    return (
        "\\begin{center}\n"
        f"\\includegraphics[width=0.8\\linewidth,height=0.42\\textheight,keepaspectratio]{{{file}.pdf}}\\\\\n"
        f"{escape(words)}\n"
        "\\end{center}"
    )
