"""A real LaTeX, for the tests of reports."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

NEEDED = os.environ.get("TTABENCH_TEX") == "required"


def missing(what: str) -> None:
    """Skip a test, or fail where TeX may not be missing."""
    (pytest.fail if NEEDED else pytest.skip)(what)


def compiled(folder: Path, document: str) -> str:
    """The text of the compiled document, page by page; nothing is overfull, no sign is missing."""
    for tool in ("pdflatex", "pdftotext"):
        if shutil.which(tool) is None:
            missing(f"{tool} is not installed")
    for style in ("booktabs.sty", "lmodern.sty"):
        result = subprocess.run(["kpsewhich", style], capture_output=True, text=True, check=False)
        if not result.stdout.strip():
            missing(f"this TeX has no {style}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", f"{document}.tex"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, errors="replace", check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout[-2000:]
    log = (folder / f"{document}.log").read_text(errors="replace")
    for trouble in ("Overfull", "too large for page", "Missing character", "Font shape", "multiply defined"):
        assert trouble not in log, re.findall(rf".*{trouble}.*\n?.*", log)[:3]
    subprocess.run(["pdftotext", f"{document}.pdf"], cwd=folder, check=True, timeout=60)
    return (folder / f"{document}.txt").read_text()


def font_sizes(folder: Path, document: str) -> list[float]:
    """The size of the text in each table of a document, in points: wide ones are made to fit."""
    path = folder / f"{document}.tex"
    tell = (
        r"\let\fit\resizebox\renewcommand\resizebox[3]"
        r"{\sbox0{#3}\typeout{Table: \the\wd0, \the\linewidth}\fit{#1}{#2}{#3}}"
    )
    path.write_text(path.read_text().replace(r"\begin{document}", tell + "\n" + r"\begin{document}"))
    compiled(folder, document)
    found = re.findall(r"Table: ([\d.]+)pt, ([\d.]+)pt", (folder / f"{document}.log").read_text("latin-1"))
    return [8 * min(1, float(room) / float(width)) for width, room in found]
