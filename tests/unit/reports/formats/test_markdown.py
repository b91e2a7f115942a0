"""Markdown tables hold what the LaTeX ones do, and print signs as they are."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.made_cells import cells, spoil, with_correctness
from ttabench_reports.evidence.report import Report
from ttabench_reports.formats import markdown
from ttabench_reports.sheets import every


def test_every_row_has_every_column_and_every_sheet_is_there(tmp_path: Path) -> None:
    frame = with_correctness(cells(datasets=("cifar10-c", "cifar100-c"), seeds=(0, 1)), 60, {"tent": 0.9})
    frame = spoil(frame, "n/a", "no | <b>batch</b> *norm*", arch="cct", method="quantile")
    (path,) = markdown.write(frame, tmp_path)
    text = path.read_text()
    for sheet in every.sheets(Report(frame)):
        assert markdown.escape(sheet.caption) in text
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(counts) == 1
    assert r"no \| &lt;b&gt;batch&lt;/b&gt; \*norm\*" in text
    assert re.search(r"TENT \|.*\*\*\d\d\.\d\*\*", text)
    assert "Quantile<sup>a</sup>" in text


def test_a_reason_that_is_a_sentence_has_one_full_stop(tmp_path: Path) -> None:
    frame = spoil(cells(("source", "eata")), "failed", "no training images.", method="eata")
    (path,) = markdown.write(frame, tmp_path)
    assert "failed: no training images." in path.read_text()
    assert "images.." not in path.read_text()
