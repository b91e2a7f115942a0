"""What each method was given, and how it was measured: one line for each way."""

from __future__ import annotations

from collections.abc import Sequence

from ttabench.errors import counted
from ttabench_reports.cells.frames import PROTOCOL
from ttabench_reports.evidence import given as had
from ttabench_reports.evidence.report import Report
from ttabench_reports.sheets import words
from ttabench_reports.sheets.sheet import Entry, Group, Head, Line, Sheet
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words import naming
from ttabench_reports.words import protocols as in_words


def given(report: Report) -> Sheet:
    lines: dict[tuple[str, ...], Line] = {}
    for row in had.rows_given(report.tables):
        facts = had.given(row.about)
        epochs = str(facts.epochs) if facts.epochs else "–"
        texts = (
            row.name.partition(" [")[0], facts.mode, str(facts.batch_size), epochs, facts.source,
            _settings(facts), facts.deviations,
        )  # fmt: skip
        lines.setdefault(texts, [Entry(text.replace("`", "")) for text in texts])
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


def protocols(report: Report) -> Sheet:
    """The protocol of every method, once for all tables: captions have the most common one alone."""
    groups = [Group(table.heading, [_protocol_lines(table)]) for table in report.tables]
    heads = [Head("Protocol", "p", width=0.42), Head("Methods", "p", width=0.54)]
    caption = "Table of protocols: how each method was measured. Captions name the most common protocol."
    paced = any(table.key["pace"] for table in report.tables)
    there = " that are not held out" if any(table.key["held_out"] for table in report.tables) else ""
    footer = words.join(
        "C: compute ratio, the time of a method over that of Source's forward pass." if paced else "",
        f"Offline, a method sees all images{there} before any is scored; it is never ranked against online "
        "ones.",
    )
    return Sheet("protocols", caption, footer, heads, groups, wide=True)


def _protocol_lines(table: Table) -> list[Line]:
    ran = [row for row in table.measured_rows if row.about["measured"]] or table.measured_rows  # as planned
    rows = [row for row in ran if row.kind == "method"] or ran  # Source adapts to no batch
    held: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        fields = {name: row.about[name] for name in PROTOCOL}
        text = in_words.of_row(fields, str(table.key["baseline"]))
        name = words.row_name(row)
        held.setdefault(text, {}).setdefault(name, []).append(row)
    return [
        [Entry(text), Entry(", ".join(_with_exceptions(name, same, table) for name, same in methods.items()))]
        for text, methods in held.items()
    ]


def _with_exceptions(name: str, rows: Sequence[Row], table: Table) -> str:
    """``TENT``; at a pace ``TENT (C 2.4)``; where methods have other numbers of seeds ``TENT (3 seeds)``.

    Where networks differ: ``TENT (C 2.4 on CCT, 3.2 on …)``.
    """
    parts = []
    if table.key["pace"]:
        parts.append("C " + _by_network({row.arch: f"{row.about['pace_ratio']:g}" for row in rows}))
    if " to " in table.seeds:
        parts.append(_by_network({row.arch: counted(row.about["seeds"], "seed") for row in rows}))
    return f"{name} ({'; '.join(parts)})" if parts else name


def _by_network(words: dict[str, str]) -> str:
    """What all networks share, or each of them: ``2.4 on CCT, 3.2 on …``."""
    if len(set(words.values())) == 1:
        return min(words.values())
    return ", ".join(f"{text} on {naming.arch(arch)}" for arch, text in words.items())
