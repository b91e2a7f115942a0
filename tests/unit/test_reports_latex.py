"""The LaTeX compiles as it stands, whatever the labels and reasons hold."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ttabench
import ttabench_methods
from tests.unit.made_cells import cells, spoil
from ttabench.corruptions.names import CORRUPTIONS, EXTRA_CORRUPTIONS
from ttabench_reports import latex, published, tables

NASTY = r"50% of batch_5 & {δ} \ ~^#$ <a> [b] “ü” → ∞ 中 x̂ ½ 10⁻⁵ Αλέξης ‖θ₀‖"


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    frame = cells(
        ("source", "tent", "tent[norms=all,lr=0.0005]", "quantile"),
        datasets=("my_data%", "cifar10-c"),
        corruptions=(*CORRUPTIONS, *EXTRA_CORRUPTIONS),
        seeds=(0, 1),
    )
    frame = spoil(frame, "n/a", "no batch norm", arch="cct", method="tent")
    return spoil(frame, "failed", NASTY, arch="cct", method="quantile", corruption="fog")


def unescaped(text: str) -> str:
    """`text` without what LaTeX escapes or what starts a command."""
    return re.sub(r"\\[\\%&#_{}$]|\\[A-Za-z]+", "", text)


@settings(deadline=None)  # busy machines
@given(st.text())
def test_escaped_text_has_no_special_left(text: str) -> None:
    left = unescaped(latex.escape(text))
    plain = re.sub(r"\$[^$]*\$", "", left)  # carets belong in formulas
    assert not set(plain) & set("%&#_~^$\\")
    assert left.count("{") == left.count("}")


def test_escaping_keeps_plain_words() -> None:
    assert latex.escape("quantile, batch size 128.") == "quantile, batch size 128."
    assert latex.escape("lr=0.1_a") == r"lr=0.1\_a"
    assert latex.escape("δ = é") == r"$\delta$ = é"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("d_margin 0.05 < 1/√C", r"d\_margin 0.05 \textless{} 1/$\surd$C"),
        ("−1 ≤ x ± 2·y × z ≥ λ", r"$-$1 $\le$ x $\pm$ 2$\cdot$y $\times$ z $\ge$ $\lambda$"),
        ("Ω ς ο Α µ", r"$\Omega$ $\varsigma$ o A $\mu$"),
        ("10⁻⁵ m² θ₀ ½ š",
         r"10\textsuperscript{$-$}\textsuperscript{5} m\textsuperscript{2} $\theta$\textsubscript{0} 1/2 s"),
        ("中 한 🙂 ϛ", "U+4E2D U+D55C U+1F642 U+03DB"),
    ],
)  # fmt: skip
def test_signs_are_printed_or_named(text: str, expected: str) -> None:
    assert latex.escape(text) == expected


@settings(deadline=None)
@given(st.text(st.characters(exclude_characters="?")))
def test_nothing_becomes_a_question_mark(text: str) -> None:
    assert "?" not in latex.escape(text)


@pytest.mark.parametrize("package", [ttabench, ttabench_methods], ids=lambda package: package.__name__)
def test_all_signs_of_our_own_sentences_are_printed(package: ModuleType) -> None:
    for file in Path(package.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value:
                assert "U+" not in latex.escape(node.value.replace("U+", "")), (file.name, node.value)


def test_environments_close_and_every_row_has_every_column(frame: pd.DataFrame, tmp_path: Path) -> None:
    for path in latex.write(frame, tmp_path):
        text = path.read_text()
        opened, closed = (re.findall(rf"\\{word}{{([a-z*]+)}}", text) for word in ("begin", "end"))
        assert sorted(opened) == sorted(closed)
        assert unescaped(text).count("{") == unescaped(text).count("}")
        for align, body in re.findall(r"\\begin{tabular}{([lr]+)}(.*?)\\end{tabular}", text, re.DOTALL):
            rows = [line for line in body.splitlines() if line.endswith(r"\\")]
            assert rows
            for row in rows:
                assert len(re.findall(r"(?<!\\)&", row)) == len(align) - 1, row
            for rule in ("toprule", "midrule", "bottomrule"):
                assert f"\\{rule}" in body


def test_all_tex_inputs_every_fragment_and_labels_are_unique(frame: pd.DataFrame, tmp_path: Path) -> None:
    *fragments, document = latex.write(frame, tmp_path)
    assert document.name == "all.tex"
    assert re.findall(r"\\input{(.*?)}", document.read_text()) == [path.name for path in fragments]
    labels = re.findall(r"\\label{(.*?)}", "".join(path.read_text() for path in fragments))
    assert len(set(labels)) == len(labels) >= len(fragments)


def test_the_best_of_an_architecture_is_bold_and_the_caption_is_the_protocol() -> None:
    values = {"source": 61.5, "tent": 72.5, "quantile": 93.5}
    (table,) = tables.tables(cells(archs=("resnet18",), accuracy=lambda row: values[row["base"]]))
    (piece,) = latex.per_corruption(table)
    text = piece.render("x")
    assert text.count(r"\textbf{93.5}") == len(CORRUPTIONS) + 1
    assert text.count(r"\textbf") == len(CORRUPTIONS) + 1
    assert "+32.0" in text
    assert "online, batch size 200, iid order, reset per corruption, all images" in text


def test_falls_have_a_proper_minus() -> None:
    (table,) = tables.tables(cells(("source", "tent"), accuracy=lambda r: 50.0 - 3 * (r["base"] == "tent")))
    (piece,) = latex.per_corruption(table)
    assert "$-$3.0" in piece.render("x")


def test_long_tables_continue_on_the_next_page(tmp_path: Path) -> None:
    methods = ("source", *(f"tent[lr={n}]" for n in range(60)))
    (table,) = tables.tables(cells(methods, corruptions=("fog",)))
    (piece,) = latex.per_corruption(table)
    text = piece.render("x")
    bodies = re.findall(r"\\midrule(.*?)\\bottomrule", text, re.DOTALL)
    rows = [body.count(r"\\") - body.count(r"\\_") for body in bodies]
    assert max(rows) <= latex.MOST_ROWS
    assert sum(rows) == len(table.rows)
    assert text.count(r"\begin{table*}") == len(bodies) > 1


def test_it_compiles(frame: pd.DataFrame, tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    latex.write(frame, tmp_path, published.load())
    signs = latex.escape(" ".join(latex._SPECIAL))
    document = tmp_path / "all.tex"
    document.write_text(document.read_text().replace(r"\end{document}", signs + "\n" + r"\end{document}"))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False
    )
    if "booktabs.sty' not found" in done.stdout:
        pytest.skip("this TeX has no booktabs")
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert "Missing character" not in (tmp_path / "all.log").read_text(errors="replace")
