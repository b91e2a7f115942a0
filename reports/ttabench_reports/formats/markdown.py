"""The tables as GitHub's Markdown: one file with all of them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ttabench_reports.evidence.report import Report
from ttabench_reports.formats.files import write_text
from ttabench_reports.sheets import every
from ttabench_reports.sheets.sheet import Entry, Sheet, by_column
from ttabench_reports.words.markdown_text import escape, table_row


def write(
    cells: pd.DataFrame, to: Path, *, increase: bool = True, report: Report | None = None
) -> list[Path]:
    """``tables.md`` in the folder `to`; its path."""
    report = report or Report(cells)
    parts = [
        f"## {escape(sheet.title)}\n\n{render(sheet)}" for sheet in every.sheets(report, increase=increase)
    ]
    return [write_text(Path(to) / "tables.md", "\n".join(parts))]


def render(sheet: Sheet) -> str:
    """Caption, table and footnotes. A group's heading is a line of its own."""
    lines = [f"**{escape(sheet.caption)}**", ""]
    heads = [escape(head.text) for head in sheet.heads]
    if sheet.over:
        over = [text for text, span in sheet.over for _ in range(span)]
        heads = [f"{escape(text)}: {head}" if text else head for text, head in zip(over, heads, strict=True)]
    rule = ["---:" if head.align == "r" else ":---" for head in sheet.heads]
    lines += [table_row(heads), table_row(rule)]
    for group in sheet.groups:
        if group.heading:
            lines.append(table_row([f"**{escape(group.heading)}**", *[""] * (len(heads) - 1)]))
        lines += [table_row(map(_cell, by_column(line))) for line in group.lines]
    notes = [f"<sup>{escape(mark)}</sup> {escape(text)}." for mark, text in sheet.used_notes]
    footer = " ".join(filter(None, [escape(sheet.footer), *notes]))
    return "\n".join([*lines, "", footer, ""])


def _cell(cell: Entry) -> str:
    text = escape(cell.text)
    if cell.place == "best":
        text = f"**{text}**"
    elif cell.place == "second":
        text = f"<u>{text}</u>"
    elif cell.small and text:
        text = f"<sub>{text}</sub>" if cell.text.startswith("±") else text
    marks = f"<sup>{escape(cell.marks)}</sup>" if cell.marks else ""
    return text + escape(cell.after) + marks
