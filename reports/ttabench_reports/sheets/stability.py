"""Stability of methods over long streams, one table per stream."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ttabench_reports.cells.grouped import grouped
from ttabench_reports.evidence.report import Report
from ttabench_reports.evidence.stability import COLLAPSED, TENTH, Stability, stabilities
from ttabench_reports.sheets import words
from ttabench_reports.sheets.sheet import Entry, Group, Head, Sheet
from ttabench_reports.words import naming

HEADS = (
    Head("", "l"), Head("Given", "l"), Head("Accuracy"), Head("Below Source"),
    Head("Last tenth \N{MINUS SIGN} Source"), Head("First collapse"),
)  # fmt: skip
FOOTER = (
    "Below Source: share of the windows of the stream in which the method is below Source (%). Last tenth: "
    f"points above Source in the last tenth of the windows; a dash: there are fewer than {TENTH} windows. "
    "First collapse: test images before the first window, of any seed, in which the accuracy is less than "
    f"{COLLAPSED:.0%} of Source's; a last window with less than half of the images does not count; a dash: "
    "there is no such window."
)


def sheets(report: Report) -> Iterator[Sheet]:
    for table in report.tables:
        listed = list(stabilities(table))
        if not listed:
            continue
        by_arch = grouped((naming.arch(one.row.arch), _line(one)) for one in listed)
        groups = [Group(arch, [lines]) for arch, lines in by_arch.items()]
        lengths = sorted({windows.length for one in listed for windows in one.row.windows.values()})
        lengths_text = " and ".join(f"{length:,}" for length in lengths)
        where = f"Stability on {table.heading}, in windows of {lengths_text} test images."
        caption = words.join(where, words.protocol(table))
        footer = words.join(FOOTER, words.remarks([table]), words.GIVEN)
        name = f"stability_{naming.slug(table.title)}"
        notes = dict(table.legend((), [one.row for one in listed]))
        yield Sheet(name, caption, footer, HEADS, groups, labels=2, notes=notes)


def _line(one: Stability) -> list[Entry]:
    collapse = "" if math.isnan(one.collapse) else f"{one.collapse:,.0f}{one.of_seeds}"
    return [
        words.label(one.row),
        words.short(one.row),
        Entry(words.number(one.row.value(one.column))),
        Entry(words.number(one.below)),
        words.known(words.signed(round(one.tail, 1))),
        words.known(collapse),
    ]
