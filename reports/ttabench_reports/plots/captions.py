"""Sentences that the captions of several plots share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ttabench_reports.sheets import words
from ttabench_reports.tables.table import Row, Table, legend_of


def protocol(*tables: Table) -> str:
    """How the numbers were measured, those of the last table; and what is remarked of each."""
    return words.join(words.protocol(tables[-1]), words.remarks(tables))


def marks(rows: Iterable[Row], columns: Sequence[str]) -> str:
    """What the marks mean that these rows carry; ends with a space, if there is any."""
    chosen = list(rows)
    sentences = []
    words = {word for row in chosen for column in columns if (word := row.words.get(column))}
    if words & {"n/a", "failed", "–"}:
        sentences.append(
            "Gray: no number (n/a: the method does not apply; fail: it failed; –: not measured)."
        )
    if any(row.letters.get(column) for row in chosen for column in columns if column not in row.words):
        sentences.append("A dot: an alarm, or a seed without a number; see the table's footnotes.")
    return flags(chosen) + "".join(f"{sentence} " for sentence in sentences)


def flags(rows: Iterable[Row]) -> str:
    """What the flags of these rows mean; ends with a space, if there is any."""
    return "".join(f"{mark} {text}. " for mark, text in legend_of(rows).items())
