"""Known and unknown classes, one table per contaminated stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ttabench.store.columns import UNKNOWN
from ttabench_reports.evidence.report import Report
from ttabench_reports.sheets import words
from ttabench_reports.sheets.sheet import Entry, Group, Head, Sheet
from ttabench_reports.tables.rows import DASH
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words import naming
from ttabench_reports.words.naming import MEAN

CERTAINTIES = {"softmax": "Maximum softmax", "energy": "Energy", "own": "Own certainty"}
FIGURES = {"auroc": "AUROC", "fpr95": "FPR95", "h": "H"}
FOOTER = (
    "Test images have known classes, foreign images unknown ones. AUROC: chance that a test image has a "
    "higher certainty than a foreign one. FPR95: foreign images accepted at the threshold that accepts "
    "95\u00a0% of the test images; lower is better. H: harmonic mean of the test images that are accepted "
    "and right, and the foreign images that are rejected, at this threshold. Percent{}. A dash: the method "
    "has no certainty of its own."
)


def sheets(report: Report) -> Iterator[Sheet]:
    for table in report.tables:
        if rows := [row for row in table.rows if row.unknown]:
            yield _sheet(table, rows)


def _sheet(table: Table, rows: list[Row]) -> Sheet:
    groups = [Group(arch, [[_line(row) for row in ours]]) for arch, ours in words.archs(rows).items()]
    images = sorted({f"{row.unknown['foreign_images']:,.0f}" for row in rows})
    single = table.natural or table.main == (naming.MIXED,)
    caption = words.join(
        f"Known and unknown classes (%) on {table.heading}, with {' or '.join(images)} foreign images "
        f"{'in the stream' if single else 'per corruption'}.",
        words.protocol(table),
    )
    footer = FOOTER.format("" if single else "; means over the corruptions")
    figures = [Head(FIGURES[name.partition("_")[0]]) for name in UNKNOWN]
    heads = [Head("", "l"), Head("Given", "l"), Head("Accuracy"), *figures]
    whole = Sheet(
        f"unknown_{naming.slug(table.title)}",
        caption,
        words.join(footer, words.remarks([table]), words.GIVEN),
        heads,
        groups,
        over=[("", 3), *((text, len(FIGURES)) for text in CERTAINTIES.values())],
        labels=2,
        notes=dict(table.legend((MEAN,), rows)),
    )
    sheet = whole.without_empty(range(3, len(heads)))
    return replace(sheet, cuts=tuple(range(6, len(sheet.heads), 3)))


def _line(row: Row) -> list[Entry]:
    accuracy = Entry(words.number(row.value(MEAN)) or DASH, marks=row.letters.get(MEAN, ""))
    numbers = [words.known(words.number(row.unknown[name])) for name in UNKNOWN]
    return [words.label(row), words.short(row), accuracy, *numbers]
