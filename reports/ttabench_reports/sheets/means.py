"""Tables of means over the corruptions: summary, statistics, and by severity."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench_reports.evidence.intervals_and_tests import Finding, findings
from ttabench_reports.evidence.report import Report
from ttabench_reports.published.beside import of_same_setting
from ttabench_reports.published.catalog import catalog
from ttabench_reports.sheets import words
from ttabench_reports.sheets.footnotes import NAMES, TableNotes, groups, side_by_side
from ttabench_reports.sheets.sheet import Entry, Head, Line, Sheet
from ttabench_reports.tables.families import Family, families
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words import naming
from ttabench_reports.words.naming import MEAN

BASELINE = "Baseline: the source classifier, not adapted. Increase: the difference of the printed numbers."
INTERVAL = "95\u00a0% interval"


def summary(report: Report) -> Sheet:
    """Baseline, accuracy, increase, corruptions won and lost, best published number."""
    notes = TableNotes()
    beside = _BestPublished(report.published, notes)

    def line(table: Table, row: Row, first: bool) -> Line:
        finding = findings(table)[id(row)]
        published = [] if beside.known is None else [beside(table, row.arch) if first else Entry()]
        return [
            *notes.names([row], model=first),
            words.known(words.number(row.baseline.value(MEAN)) if row.baseline else ""),
            notes.accuracy(row, table),
            words.known(words.interval(*finding.interval), small=True),
            words.known(words.signed(row.printed_rise)),
            words.known(finding.record),
            *published,
        ]

    parts = groups(report.tables, line, _without_source)
    heads = [*NAMES, *map(Head, ("Baseline", "Accuracy", INTERVAL, "Increase", "W/T/L"))]
    if beside.known is not None:
        heads.append(Head("Best published"))
    caption = words.join(f"Mean accuracy (%) {words.over(report.tables)}.", words.measured(report.tables))
    all_findings = _findings(report)
    how = words.join(beside.sources, words.how_to_read(report.tables))
    footer = words.join(
        BASELINE,
        f"{INTERVAL}: {words.bootstrap(report.tables)}." if _intervals(all_findings) else "",
        "W/T/L: corruptions won, tied and lost against Source (paired tests, Holm-corrected, 5\u00a0%)."
        if any(one.record for one in all_findings)
        else "",
        how,
    )
    sheet = Sheet(
        "summary", caption, footer, heads, parts, labels=2, notes=notes.texts, spared=(5, 7),
        brief=words.join(BASELINE, how), main=True,
    )  # fmt: skip
    return words.with_dashes_said(sheet.without_empty((5, 7)))


def statistics(report: Report) -> Sheet:
    """Intervals, Holm-corrected p-values and mean ranks."""
    notes = TableNotes()

    def line(table: Table, row: Row, first: bool) -> Line:
        finding = findings(table)[id(row)]
        return [
            *notes.names([row], model=first),
            notes.accuracy(row, table),
            words.known(words.interval(*finding.interval), small=True),
            words.known(words.signed(row.printed_rise)),
            words.known(words.interval(*finding.rise_interval, sign=True), small=True),
            words.known(finding.record),
            words.known(words.p_value(finding.p_source)),
            words.known(words.p_value(finding.p_best)),
            words.known(words.number(finding.rank)),
            words.known(words.number(row.reliability.error if row.reliability else math.nan)),
        ]

    parts = groups(report.tables, line)
    titles = ("Accuracy", INTERVAL, "Increase", INTERVAL, "W/T/L", "p (Source)", "p (best)", "Rank", "ECE")
    heads = [*NAMES, *map(Head, titles)]
    all_findings = _findings(report)
    intervals, won = _intervals(all_findings), any(one.record for one in all_findings)
    tested = any(not (math.isnan(one.p_source) and math.isnan(one.p_best)) for one in all_findings)
    what = ", their intervals and tests" if intervals or won or tested else ""
    caption = words.join(
        f"Mean accuracies (%) {words.over(report.tables)}{what}.", words.measured(report.tables)
    )
    mean = "" if all(table.natural for table in report.tables) else ", mean over the corruptions"
    footer = words.join(
        f"{INTERVAL}s: paired {words.bootstrap(report.tables)}." if intervals else "",
        "W/T/L: corruptions won, tied and lost against Source, Holm-corrected over the corruptions of a row."
        if won
        else "",
        "p: paired tests of the mean against Source, Holm-corrected within a model, and against the best of "
        "the same mode, which may be Source, Holm-corrected within a model and mode."
        if tested
        else "",
        f"Rank: within a model and mode{mean}; descriptive, not tested.",
        f"ECE: expected calibration error (%){mean}."
        if any(row.reliability for table in report.tables for row in table.rows)
        else "",
        words.how_to_read(report.tables),
    )
    sheet = Sheet("statistics", caption, footer, heads, parts, labels=2, notes=notes.texts, wide=True)
    return words.with_dashes_said(sheet.without_empty((4, 6, 7, 8, 9, 11)))


def severities(report: Report) -> Iterator[Sheet]:
    """Means over the corruptions by severity, where several were swept."""
    for family in families(report.tables):
        if len(family.tables) > 1:
            yield _severity(family)


def _severity(family: Family) -> Sheet:
    tables, notes = family.tables, TableNotes()

    def cells(table: Table, row: Row, line: Sequence[Row]) -> Line:
        return [notes.accuracy(row, table, line=line)]

    parts = [side_by_side(tables, notes, cells, 1)]
    heads = [*NAMES, *(Head(f"Severity {table.key['severity']}") for table in tables)]
    caption = words.join(
        f"Mean accuracy (%) {words.over(tables)} of {family.heading} by severity.", words.measured(tables)
    )
    name = f"severity_{naming.slug(family.title)}"
    footer = words.how_to_read(tables)
    sheet = Sheet(name, caption, footer, heads, parts, labels=2, notes=notes.texts, main=True)
    return words.with_dashes_said(sheet)


def _findings(report: Report) -> list[Finding]:
    """What is known of every row of the tables."""
    return [finding for table in report.tables for finding in findings(table).values()]


def _intervals(findings: Sequence[Finding]) -> bool:
    """Whether any row has an interval. Long streams have none, nor results without correctness."""
    return any(not math.isnan(one.interval[0]) for one in findings)


def _without_source(rows: Sequence[Row]) -> Sequence[Row]:
    """The methods; Source itself only where there is nothing else."""
    return [row for row in rows if row.kind == "method"] or rows


def _is_proposed(publication: str, method: str) -> bool:
    """Whether a publication proposes a method (by its label here)."""
    return publication in catalog() and method in catalog()[publication].here.values()


class _BestPublished:
    """The highest published mean of the same setting as a table, on the same architecture.

    Where a row is the method that a publication proposes, its numbers of that method are left out: the
    column says what there was beside it. Footnotes say where a number is from, and what may differ.
    """

    def __init__(self, known: pd.DataFrame | None, notes: TableNotes) -> None:
        self.used: dict[str, None] = {}
        self.notes = notes
        self.known = None if known is None else known[known["corruption"] == MEAN]

    def __call__(self, table: Table, arch: str) -> Entry:
        """Only where there are published numbers, and ours is a mean over the same corruptions."""
        assert self.known is not None
        if table.main != CORRUPTIONS:
            return words.known("")
        key = table.key
        here = self.known[
            (self.known["dataset"] == key["dataset"]) & (self.known["severity"] == key["severity"])
            & (self.known["arch"] == arch) & (self.known["method"] != "source")
        ]  # fmt: skip
        rows = [row.about for row in table.measured_rows if row.arch == arch]
        bases = {about["base"] for about in rows}
        pairs = list(zip(here["publication"], here["method"], strict=True))
        own = [_is_proposed(*pair) and pair[1].partition("[")[0] in bases for pair in pairs]
        here = here.assign(remark=[of_same_setting(*pair, rows) for pair in pairs])
        here = here.loc[here["remark"].notna() & ~np.array(own, bool)]
        if here.empty:
            return words.known("")
        top = here.sort_values("accuracy").iloc[-1]
        name = str(top["publication"])
        self.used.setdefault(name)
        who = naming.method(str(top["method"]))
        said = [f"published in {name}: {catalog()[name].where}" if name in catalog() else "", top["remark"]]
        marks = "".join(sorted({self.notes.mark(text) for text in said if text}))
        return Entry(words.number(float(top["accuracy"])), after=f"\u00a0({who})", marks=marks)

    @property
    def sources(self) -> str:
        """Where the numbers are from."""
        names = ", ".join(self.used)
        return f"Best published: the highest mean published of the same setting ({names})." if names else ""
