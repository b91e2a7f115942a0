"""What each method was given: one line for each way of giving."""

from __future__ import annotations

from ttabench_reports import given as had
from ttabench_reports.report import Report
from ttabench_reports.sheets.sheet import Cell, Group, Head, Line, Sheet


def given(report: Report) -> Sheet:
    lines: dict[tuple[str, ...], Line] = {}
    for row in had.rows_given(report.tables):
        facts = had.given(row.about)
        epochs = str(facts.epochs) if facts.epochs else "–"
        texts = (
            row.name.partition(" [")[0], facts.mode, str(facts.batch_size), epochs, facts.source,
            _settings(facts), facts.deviations,
        )  # fmt: skip
        lines.setdefault(texts, [Cell(text) for text in texts])
    heads = [
        Head("Method", "l"), Head("Mode", "l"), Head("Batch"), Head("Epochs"),
        Head("Source data", "p", width=0.14), Head("Settings and their origin", "p", width=0.2),
        Head("Differs from paper or official code", "p", width=0.34),
    ]  # fmt: skip
    caption = (
        "What each method was given: how it sees the test images, how much of the source data, its settings "
        "and how they were chosen, and where its code differs from its paper or official code."
    )
    footer = "Epochs: passes over the test images before they are scored; online, each batch is seen once."
    ordered = sorted(lines.values(), key=lambda line: (line[1].text == "offline",))
    return Sheet("given", caption, footer, heads, [Group("", [ordered])], wide=True)


def _settings(facts: had.Given) -> str:
    """``lr=0.01; otherwise: official``: an origin is that of the defaults."""
    origin = facts.chosen.removeprefix("Defaults: ").rstrip(".")
    if facts.in_label and origin:
        return f"{facts.settings}; otherwise: {origin}"
    return "; ".join(filter(None, (facts.settings, origin)))
