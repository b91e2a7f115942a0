"""Write the page: ``paper.html``, the tables as CSV and LaTeX, and a PDF by TeX or else by a browser."""

from __future__ import annotations

import base64
import csv
import io
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from ttabench.system.files import check_plain, read_plain
from ttabench_reports.formats import latex
from ttabench_reports.formats.files import write_text
from ttabench_reports.page.render import filled
from ttabench_reports.paper import sheets
from ttabench_reports.paper.curve import severity_curve
from ttabench_reports.paper.ours import PAPER, Ours
from ttabench_reports.paper.setting import sentences
from ttabench_reports.paper.verdict import verdict
from ttabench_reports.published.audit import audit
from ttabench_reports.sheets.sheet import Sheet
from ttabench_reports.words import naming

TEX = {
    "latexmk": ("-norc", "-pdf", "-interaction=batchmode"), "pdflatex": ("-interaction=batchmode",),
    "tectonic": (),
}  # fmt: skip
"""Programs that make a PDF of the LaTeX document, the best first, with their options.

Without -norc, latexmk runs a file .latexmkrc of the folder, which may be somebody else's.
"""
BESIDE = (".aux", ".log", ".out", ".fls", ".fdb_latexmk")
"""What these programs leave beside the PDF; only where there is none does it tell a user anything."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
"""Programs that make a PDF of the HTML page, where there is no TeX."""
CURVE = "severity-curve"
WORDS = {
    "pipeline": "Section 1. The pipeline: forward propagation, and backpropagation to the decorruptor.",
    "tsne": "Figure 1. Features before and after matching by the paper's method (t-SNE).",
    "loss-vs-mse": "Section 3. The loss against the squared error of paired features.",
    "quantile-index": "The quantile index.",
    "quantile-field": "Appendix. Quantile indices over the plane: source, shifted, corrected.",
    "six-blobs": "Appendix. Six classes under a linear shift.",
    "two-moons": "Section 3 and appendix. From a start near a symmetry the classes swap.",
    "bad-start": "Not in the paper. A bad start on images: the negative of each, as two moons for a network.",
    "informative-quantiles": "Appendix. Which quantiles show a shift.",
    CURVE: "Figure 1, as curves. Accuracy under Gaussian noise by severity: ours and the paper's.",
}


def write(
    cells: pd.DataFrame | None, runtime: pd.DataFrame | None, facts: Mapping[str, Any], to: Path
) -> tuple[list[Path], str]:
    """The page of `cells` and of the cells that were timed alone, in the folder `to`; the paths, and why
    there is no PDF.

    facts  scale, stands, nets, missing, left_out, figures, drawn, recipes, notes: see
           `ttabench.paper.page_facts.PageFacts`.
    other_images   a fact too: the datasets in place of the paper's whose names do not speak of it.

    Raises UserError, before anything is written, where a picture of the folder is a link or a pipe.
    """
    for name, kind in product(WORDS, ("png", "pdf")):  # the page would hold the file of a link
        check_plain(to / "figures" / f"{name}.{kind}")
    small = facts.get("scale", 1) < 1
    about = {name: facts.get(name, {}) for name in ("stands", "nets", "missing")}
    ours, timed = (Ours(each, **about, partial=small) for each in (cells, runtime))
    made = sheets.every(ours, timed)
    if small:
        made = [replace(one, caption=f"A rehearsal; its numbers mean nothing. {one.caption}") for one in made]
    to.mkdir(parents=True, exist_ok=True)
    paths = [write_text(to / "tables" / f"{sheet.name}.csv", _csv(sheet)) for sheet in made]
    curve = severity_curve(ours, to / "figures", CURVE)
    drawn = {**facts.get("figures", {}), CURVE: "" if curve else "no severity was measured"}
    figures = {name: drawn.get(name, "not asked for yet") for name in WORDS}
    words = {name: _caption(name, facts.get("drawn", {}).get(name, {})) for name in WORDS}
    said = {
        "settings": sentences(ours, facts, timed), "verdict": [] if small else verdict(ours),
        "missing": [*facts.get("missing", {}).values(), *facts.get("left_out", {}).values()],
        "misprints": [str(one).removeprefix(f"{PAPER}, ") for one in audit() if one.table.startswith(PAPER)],
    }  # fmt: skip
    paths += latex.write_sheets(
        made, to / "tables", "paper", *_around_tables(said, figures, words, to, small=small)
    )
    text = filled(
        "paper.html.j2", "paper.css", sheets=made, small=small, scale=facts.get("scale", 1),
        figures=_figures(figures, words, to), **said,
    )  # fmt: skip
    page = write_text(to / "paper.html", text)
    pdf, why = _pdf(to / "tables" / "paper.tex", page)
    return [page, *paths, *curve, *pdf], why


def _caption(name: str, of: Mapping[str, Any]) -> str:
    """What a figure shows, and the network and dataset that it was drawn of, where it shows any."""
    if not (of.get("arch") and of.get("dataset")):
        return WORDS[name]
    return f"{WORDS[name]} Drawn of {naming.arch(of['arch'])} on {naming.dataset(of['dataset'])}."


def _csv(sheet: Sheet) -> str:
    """A line for each of the sheet, the heading of its group first; numbers as programs read them.

    What stands for several lines is in each. A missing number is empty, with the reason in the last column.
    """
    over = [text for text, span in sheet.over for _ in range(span)] or [""] * len(sheet.heads)
    heads = [" ".join(filter(None, (text, head.text))) for text, head in zip(over, sheet.heads, strict=True)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["part", *heads, "note"])
    for group in sheet.groups:
        label = ""
        for line in group.lines:
            label = line[0].text or label
            marks = dict.fromkeys(mark for cell in line for mark in cell.marks)
            notes = "; ".join(sheet.notes[mark] for mark in marks if mark in sheet.notes)
            writer.writerow([group.heading, label, *(_plain(cell.text) for cell in line[1:]), notes])
    return text.getvalue()


def _plain(text: str) -> str:
    """``−1,429`` → ``-1429``, ``+0.5`` → ``0.5``, ``–`` → nothing; what is no number stays."""
    number = text.replace("−", "-").replace(",", "").removeprefix("+")
    return "" if text == "–" else number if re.fullmatch(r"-?\d+(\.\d+)?", number) else text


def _around_tables(
    said: Mapping[str, Sequence[str]], figures: Mapping[str, str], words: Mapping[str, str], to: Path, *,
    small: bool,
) -> tuple[list[str], list[str]]:  # fmt: skip
    """The sentences and the figures of the page in the document of the tables: before these, and after."""
    here = {name: not why and (to / "figures" / f"{name}.pdf").exists() for name, why in figures.items()}
    title = f"The quantile-matching paper: ours, the paper's, the difference{' (a rehearsal)' * small}"
    before = {
        "What the tables say": said["verdict"], "What differs in setting": said["settings"],
        "Not measured": said["missing"],
    }  # fmt: skip
    after = {
        "Figures that are missing": [f"{WORDS[name]} {figures[name]}" for name in figures if not here[name]],
        "Misprints of the paper": said["misprints"],
    }
    drawn = [_figure(name, words[name]) for name in figures if here[name]]
    return (
        [f"\\section*{{{latex.escape(title)}}}", *_sections(before), r"\clearpage"],
        [r"\clearpage", *drawn, *_sections(after)],
    )


def _sections(sections: Mapping[str, Sequence[str]]) -> list[str]:
    return [
        "\n".join([
            f"\\subsection*{{{latex.escape(heading)}}}", r"\begin{itemize}",
            *(f"\\item {latex.escape(sentence)}" for sentence in sentences), r"\end{itemize}",
        ])
        for heading, sentences in sections.items() if sentences
    ]  # fmt: skip


def _figure(name: str, caption: str) -> str:
    """In the text, where it stands, so that nothing has to float; the caption stays with its picture."""
    return (
        "\\begin{center}\\begin{minipage}{\\linewidth}\\centering\n"
        "\\includegraphics[width=0.8\\linewidth,height=0.42\\textheight,keepaspectratio]"
        f"{{../figures/{name}.pdf}}\\\\\n"
        f"{latex.escape(caption)}\n"
        "\\end{minipage}\\end{center}"
    )


def _figures(known: Mapping[str, str], words: Mapping[str, str], to: Path) -> list[tuple[str, str, str]]:
    """(what it shows, the picture as an address, why there is none) of each figure."""
    shown = []
    for name, why in known.items():
        file = to / "figures" / f"{name}.png"
        address = ""
        if not why and file.exists():
            address = f"data:image/png;base64,{base64.b64encode(read_plain(file)).decode()}"
        shown.append((words[name], address, why or "the picture is not in the folder"))
    return shown


def _pdf(document: Path, page: Path) -> tuple[list[Path], str]:
    """The PDF beside a LaTeX document: of it, or of the HTML page. If there is none, a sentence says why."""
    program = next(filter(shutil.which, (*TEX, *BROWSERS)), None)
    if program is None:
        return [], f"no PDF: none of {', '.join((*TEX, *BROWSERS))} is in PATH"
    made, log = document.with_suffix(".pdf"), document.with_suffix(".log")
    for earlier in (made, log):
        earlier.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        command = [program, *TEX[program], document.name] if program in TEX else [
            program, "--headless", "--disable-gpu", "--no-pdf-header-footer", f"--user-data-dir={profile}",
            *["--no-sandbox"] * (os.name == "posix" and os.geteuid() == 0),  # root has no sandbox
            f"--print-to-pdf={made.resolve()}", page.resolve().as_uri(),
        ]  # fmt: skip
        try:
            done = subprocess.run(command, cwd=document.parent, capture_output=True, timeout=300, check=False)
        except OSError as problem:
            return [], f"no PDF: {program} cannot be started ({problem.strerror})"
        except subprocess.TimeoutExpired:
            return [], f"no PDF: {program} was stopped after 300 seconds"
    if done.returncode == 0 and made.exists():
        for ending in BESIDE if program in TEX else ():
            document.with_suffix(ending).unlink(missing_ok=True)
        return [made], ""
    return [], f"no PDF: {program} ended with {done.returncode}{f', see {log}' if log.exists() else ''}"
