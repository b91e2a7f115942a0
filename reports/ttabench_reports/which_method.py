"""Which method, when? The ranking of methods on each network, written as text from stored results.

Per network and mode: accuracy with its interval, distance from Source, corruptions won and lost, cost, what a
method needs, and where its predictions collapse. A summary in sentences stands above each ranking.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ttabench_reports import naming
from ttabench_reports.evidence import ALPHA, Finding, groups
from ttabench_reports.given import given
from ttabench_reports.markdown_text import escape, table_row
from ttabench_reports.naming import MEAN
from ttabench_reports.report import Report
from ttabench_reports.shape import Row, Table
from ttabench_reports.sheets import words
from ttabench_reports.stability import COLLAPSED, Stability, stabilities

CLOSE = 1.0  # points below the best, within which the cheapest method is named
FAMILIES = {  # by the first letters of a network's name
    "resnet": "convolutional, batch norm", "cct": "transformer with convolutions", "cvt": "transformer",
    "vit": "transformer",
}  # fmt: skip
HEADS = ("Method", "Accuracy", "95 % interval", "Above Source", "W/T/L", "Cost", "Needs", "Collapses")
ALIGNED = (":---", "---:", ":---:", "---:", ":---:", "---:", ":---", ":---")
TESTS = (2, 4)  # the columns that a long stream does not have
NO_TESTS = "A long stream has no intervals and tests: its images come again and again, so they are no sample."


def which_method(report: Report) -> str:
    """Markdown: a section per dataset and network, a ranking per mode, each with Source for comparison."""
    return "\n".join(line for table in report.tables for line in _of_table(report, table))


def _of_table(report: Report, table: Table) -> Iterator[str]:
    findings = report.findings(table)
    over = {id(one.row): one for one in stabilities(table)} if table.stream else {}
    for arch, rows in table.archs().items():
        yield from (f"## {escape(table.heading)}: {escape(naming.arch(arch))}{family(arch)}", "")
        for group in groups(rows):
            able = [row for row in group if not math.isnan(row.value(MEAN)) and MEAN not in row.partial]
            able.sort(key=lambda row: (-row.value(MEAN), row.name.lower()))
            if not any(row.kind == "method" for row in able):
                continue
            offline = next(row for row in able if row.kind == "method").offline
            mode = "Offline" if offline else "Online"
            yield from (f"**{mode}.** {summary(able, table, findings, over)}", "")
            for cells in (
                HEADS,
                ALIGNED,
                *(_cells(row, table, findings[id(row)], over.get(id(row))) for row in able),
            ):
                yield table_row([cell for n, cell in enumerate(cells) if not (table.stream and n in TESTS)])
            yield ""


def summary(
    rows: Sequence[Row], table: Table, findings: dict[int, Finding], over: Mapping[int, Stability]
) -> str:
    """What a ranking says, in sentences. `rows` are those of one mode with Source, the best first.

    over   the figures of rows on a long stream, by id; none for Source, and where windows are not stored.
    """
    methods = [row for row in rows if row.kind == "method"]
    best = methods[0]
    ties = [row for row in methods[1:] if findings[id(row)].p_best >= ALPHA]
    sentences = [f"{_named([best])} has the highest mean, {words.number(best.value(MEAN))}."]
    if ties:
        verb = "does" if len(ties) == 1 else "do"
        sentences.append(f"{_named(ties)} {verb} not differ from it significantly.")
    free = [row for row in methods if given(row.about).source == "nothing"]
    if free and free[0] is not best:
        sentences.append(
            f"Without source data, {_named(free[:1])} is the best, with {words.number(free[0].value(MEAN))}."
        )
    close = [row for row in methods if best.value(MEAN) - row.value(MEAN) <= CLOSE and cost(row) > 0]
    if close and (cheap := min(close, key=cost)) is not best:
        sentences.append(
            f"Within {CLOSE:g} point of the best, {_named([cheap])} costs least: {cost(cheap):.1f} times "
            "Source's forward pass."
        )
    worse = [row for row in methods if row.baseline and _is_worse(row, row.baseline, findings[id(row)])]
    if worse:
        sentences.append(f"Significantly below Source: {_named(worse)}.")
    if table.stream:
        low = [row for row in methods if id(row) in over and not math.isnan(over[id(row)].collapse)]
        if low:
            sentences.append(
                f"In some windows, the accuracy is below {100 * COLLAPSED:.0f} % of Source's: {_named(low)}."
            )
        sentences.append(NO_TESTS)
    elif fallen := [row for row in methods if collapses(row, table)]:
        sentences.append(f"Predictions collapse on some corruptions: {_named(fallen)}.")
    return " ".join(sentences)


def family(arch: str) -> str:
    """`` (transformer)``, or "" where the family is not known."""
    return next((f" ({words})" for name, words in FAMILIES.items() if arch.startswith(name)), "")


def collapses(row: Row, table: Table) -> list[str]:
    """The corruptions under which the predictions of a row use too few classes."""
    return [
        corruption for corruption in table.main
        if any("collapse:" in remark for remark in row.remarks.get(corruption, ()))
    ]  # fmt: skip


def _on_stream(one: Stability | None) -> str:
    """``from image 3,000; 37 % of windows below Source``"""
    if one is None:
        return ""
    since = "" if math.isnan(one.collapse) else f"from image {one.collapse:,.0f}; "
    return f"{since}{one.below:.0f} % of windows below Source"


def cost(row: Row) -> float:
    """Time to adapt and score over that of Source's forward pass, median over the cells; NaN if unknown."""
    return float(row.about.get("compute_ratio", math.nan))


def _is_worse(row: Row, base: Row, finding: Finding) -> bool:
    return row.value(MEAN) < base.value(MEAN) and finding.p_source < ALPHA


def _cells(row: Row, table: Table, finding: Finding, over: Stability | None) -> tuple[str, ...]:
    rise = row.printed(MEAN) - row.baseline.printed(MEAN) if row.baseline else math.nan
    number = words.number(row.value(MEAN))
    fallen = collapses(row, table)
    return (
        escape(row.plain_name),
        f"**{number}**" if (id(row), MEAN) in table.best() else number,
        words.interval(*finding.interval),
        words.signed(rise),
        finding.record,
        f"{cost(row):.1f}" if cost(row) > 0 else "",
        escape(_given(row) if row.kind == "method" else ""),
        escape(_on_stream(over) if table.stream else ", ".join(map(naming.title, fallen))),
    )


def _given(row: Row) -> str:
    facts = given(row.about)
    passes = f"{facts.epochs} epoch{'s' * (facts.epochs > 1)}" if facts.epochs else ""
    return "; ".join(filter(None, (facts.source, passes, "tuned" if facts.tuned else "")))


def _named(rows: Sequence[Row]) -> str:
    """``A, B and C``"""
    names = [escape(row.plain_name) for row in rows]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
