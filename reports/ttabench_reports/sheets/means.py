"""Tables of means over the corruptions: summary, drop, severities, statistics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from ttabench_reports import naming
from ttabench_reports.evidence import groups
from ttabench_reports.naming import MEAN
from ttabench_reports.notes import Notes
from ttabench_reports.report import Report
from ttabench_reports.shape import LABEL, LEGEND, Row, Table
from ttabench_reports.sheets import words
from ttabench_reports.sheets.sheet import Cell, Group, Head, Line, Place, Sheet

BASELINE = "Baseline: the source classifier, not adapted. Increase: the difference of the printed numbers."
WHOLE = "On clean images predictions are chosen from all classes."


def summary(report: Report) -> Sheet:
    """Baseline, accuracy, increase, corruptions won and lost, best published number."""
    parts, notes = [], TableNotes()
    beside = _BestPublished(report.published)
    for table in report.tables:
        findings = report.findings(table)
        blocks: list[list[Line]] = []
        for arch, rows in words.archs(measured_rows(table)).items():
            block: list[Line] = []
            for row in _without_source(rows):
                rise = row.printed(MEAN) - row.baseline.printed(MEAN) if row.baseline else math.nan
                finding = findings[id(row)]
                line = [
                    Cell(arch if not block else ""), notes.label(row), words.short(row),
                    Cell(words.number(row.baseline.value(MEAN)) if row.baseline else "–"),
                    notes.accuracy(row, table),
                    Cell(words.interval(*finding.interval), small=True),
                    Cell(words.signed(rise) or "–"),
                    Cell(finding.record or "–"),
                ]  # fmt: skip
                if report.published is not None:
                    line.append(beside(table, row.arch) if not block else Cell())
                block.append(line)
            blocks.append(block)
        parts.append(Group(table.heading, blocks))
    heads = [Head("Model", "l"), Head("Method", "l"), Head("Given", "l"), Head("Baseline"), Head("Accuracy"),
             Head("95\u00a0% interval"), Head("Increase"), Head("W/T/L")]  # fmt: skip
    if report.published is not None:
        heads.append(Head("Best published"))
    caption = words.join(f"Mean accuracy (%) {words.over(report.tables)}.", words.measured(report.tables))
    footer = words.join(
        BASELINE,
        f"95\u00a0% interval: bootstrap over images{_seeds_too(report.tables)}. W/T/L: corruptions won, tied "
        "and lost against Source (paired tests, Holm-corrected, 5\u00a0%).",
        beside.sources,
        words.ranking(report.tables),
        words.GIVEN,
    )
    brief = words.join(BASELINE, beside.sources, words.ranking(report.tables), words.GIVEN)
    return Sheet(
        "summary", caption, footer, heads, parts, labels=2, notes=notes.texts, spared=(5, 7), brief=brief
    )


def statistics(report: Report) -> Sheet:
    """Intervals, Holm-corrected p-values and mean ranks."""
    parts, notes = [], TableNotes()
    for table in report.tables:
        findings = report.findings(table)
        blocks: list[list[Line]] = []
        for arch, rows in words.archs(measured_rows(table)).items():
            block: list[Line] = []
            for row in rows:
                finding = findings[id(row)]
                rise = row.printed(MEAN) - row.baseline.printed(MEAN) if row.baseline else math.nan
                block.append([
                    Cell(arch if not block else ""), notes.label(row), words.short(row),
                    notes.accuracy(row, table),
                    Cell(words.interval(*finding.interval), small=True), Cell(words.signed(rise)),
                    Cell(words.interval(*finding.rise_interval, sign=True), small=True),
                    Cell(finding.record), Cell(words.p_value(finding.p_source)),
                    Cell(words.p_value(finding.p_best)),
                    Cell("" if math.isnan(finding.rank) else f"{finding.rank:.1f}"),
                ])  # fmt: skip
            blocks.append(block)
        parts.append(Group(table.heading, blocks))
    heads = [Head("Model", "l"), Head("Method", "l"), Head("Given", "l"), Head("Accuracy"),
             Head("95\u00a0% interval"), Head("Increase"), Head("95\u00a0% interval"), Head("W/T/L"),
             Head("p (Source)"), Head("p (best)"), Head("Rank")]  # fmt: skip
    caption = words.join(
        f"Mean accuracies (%) {words.over(report.tables)}, their intervals and tests.",
        words.measured(report.tables),
    )
    footer = words.join(
        f"95\u00a0% intervals: paired bootstrap over images{_seeds_too(report.tables)}. W/T/L: corruptions "
        "won, tied and lost against Source. p: paired tests of the mean against Source and against the best "
        "of the same mode. All tests are Holm-corrected within a model. Rank: mean over the "
        "corruptions, within a model and mode; descriptive, not tested.",
        words.ranking(report.tables),
        words.GIVEN,
    )
    return Sheet("statistics", caption, footer, heads, parts, labels=2, notes=notes.texts, wide=True)


def drops(report: Report) -> Iterator[Sheet]:
    """From clean to corrupted, datasets with a common architecture side by side; three of them in a sheet."""
    tables = [table for table in report.tables if any(_known_clean(row) for row in measured_rows(table))]
    similar: dict[object, list[Table]] = {}
    for table in tables:
        similar.setdefault((table.key["severity"], table.difference), []).append(table)
    families = list(similar.values()) if any(len(family) > 1 for family in similar.values()) else [tables]
    shared = [group for family in families for group in _with_common_archs(family)]
    parts = [group[k : k + 3] for group in shared for k in range(0, len(group), 3)]
    for number, part in enumerate(parts, 1):
        yield _drop(part, "drop" if number == 1 else f"drop_{number}")


def _with_common_archs(tables: Sequence[Table]) -> list[list[Table]]:
    """Each table in the first group that has one of its architectures: others would share no row."""
    groups: list[tuple[set[str], list[Table]]] = []
    for table in tables:
        archs = {row.arch for row in measured_rows(table)}
        for known, group in groups:
            if known & archs:
                known |= archs
                group.append(table)
                break
        else:
            groups.append((archs, [table]))
    return [group for _, group in groups]


def _drop(tables: Sequence[Table], name: str) -> Sheet:
    notes = TableNotes()
    names = [{(row.arch, row.method): row for row in measured_rows(table)} for table in tables]
    keys = list(dict.fromkeys(key for rows in names for key in rows))
    smallest = [_smallest(table) for table in tables]
    blocks: dict[str, list[Line]] = {}
    for arch, method in sorted(keys, key=lambda key: naming.arch_key(key[0])):
        block = blocks.setdefault(arch, [])
        rows = [rows.get((arch, method)) for rows in names]
        first = next(row for row in rows if row)
        line = [
            Cell(naming.arch(arch) if not block else ""),
            notes.label(*filter(None, rows)),
            words.short(first),
        ]
        for row, table, least in zip(rows, tables, smallest, strict=True):
            if row is None:
                line += [Cell("–"), Cell("–"), Cell("–")]
                continue
            clean = row.about["clean_accuracy"]
            fall = float(f"{clean:.1f}") - row.printed(MEAN) if _known_clean(row) else math.nan
            place: Place = "best" if id(row) in least else ""
            line += [
                Cell(words.number(clean) or "–"), notes.accuracy(row, table, ranked=False),
                Cell(words.number(fall) or "–", place=place),
            ]  # fmt: skip
        block.append(line)
    severities = {table.key["severity"] for table in tables}
    several = len({(table.key["dataset"], table.difference) for table in tables}) > len(
        {table.key["dataset"] for table in tables}
    )
    over: list[tuple[str, int]] = [("", 3)] if len(severities) > 1 or several else []
    heads = [Head("Model", "l"), Head("Method", "l"), Head("Given", "l")]
    for table in tables:
        dataset = str(table.key["dataset"])
        heads += [Head(naming.clean(dataset)), Head(naming.dataset(dataset)), Head("Drop")]
        if over:
            over.append((table.heading, 3))
    severity = "" if over else severities.pop()
    where = f" (severity {severity})" if severity else ""
    caption = words.join(
        "Drop in accuracy (%) from the source classifier on clean images to the mean "
        f"{words.over(tables)}{where}.",
        words.measured(tables),
    )
    footer = words.join(
        "Drop: the difference of the printed numbers. Bold: the smallest drop of a model, as printed; "
        "online and offline rows (†) separately.",
        WHOLE if any(row.about["scored_classes"] for rows in names for row in rows.values()) else "",
        words.GIVEN,
    )
    cuts = tuple(3 + 3 * k for k in range(1, len(tables)))
    return Sheet(name, caption, footer, heads, [Group("", list(blocks.values()))], over, 3, notes.texts, cuts)


def _known_clean(row: Row) -> bool:
    return not math.isnan(row.about["clean_accuracy"])


def _smallest(table: Table) -> set[int]:
    """Ids of the rows with the smallest drop of each architecture and mode: the best printed means."""
    ids: set[int] = set()
    for rows in table.archs().values():
        for group in groups(rows):
            able = [row for row in group if not math.isnan(row.value(MEAN)) and _known_clean(row)]
            falls = [round(row.about["clean_accuracy"] - row.printed(MEAN), 1) for row in able]
            if len(able) > 1:
                ids |= {id(row) for row, fall in zip(able, falls, strict=True) if fall == min(falls)}
    return ids


def severities(report: Report) -> Iterator[Sheet]:
    """Means over the corruptions by severity, where several were swept."""
    families: dict[tuple[str, str], list[Table]] = {}
    for table in report.tables:
        families.setdefault((table.key["dataset"], table.difference), []).append(table)
    for (dataset, difference), tables in families.items():
        if len(tables) > 1 and len({table.key["severity"] for table in tables}) == len(tables):
            yield _severity(dataset, difference, sorted(tables, key=lambda table: table.key["severity"]))


def _severity(dataset: str, difference: str, tables: Sequence[Table]) -> Sheet:
    notes = TableNotes()
    names = [{(row.arch, row.method): row for row in measured_rows(table)} for table in tables]
    keys = list(dict.fromkeys(key for rows in names for key in rows))
    blocks: dict[str, list[Line]] = {}
    for arch, method in sorted(keys, key=lambda key: naming.arch_key(key[0])):
        block = blocks.setdefault(arch, [])
        rows = [rows.get((arch, method)) for rows in names]
        first = next(row for row in rows if row)
        cells = [
            notes.accuracy(row, table) if row else Cell("–") for row, table in zip(rows, tables, strict=True)
        ]
        head = Cell(naming.arch(arch) if not block else "")
        block.append([head, notes.label(*filter(None, rows)), words.short(first), *cells])
    heads = [Head("Model", "l"), Head("Method", "l"), Head("Given", "l")]
    heads += [Head(f"Severity {table.key['severity']}") for table in tables]
    in_brackets = f" ({difference})" if difference else ""
    caption = words.join(
        f"Mean accuracy (%) over the corruptions of {naming.dataset(dataset)}{in_brackets} by severity.",
        words.measured(tables),
    )
    footer = words.join(words.ranking(tables), words.GIVEN)
    name = f"severity_{naming.slug(dataset + in_brackets)}"
    return Sheet(
        name, caption, footer, heads, [Group("", list(blocks.values()))], labels=2, notes=notes.texts
    )


# ---- what they share


class TableNotes:
    """Footnotes of several tables in one sheet: flags as they are, reasons under letters of their own."""

    def __init__(self) -> None:
        self._notes = Notes()
        self._legend = LEGEND

    @property
    def texts(self) -> dict[str, str]:
        letters = [chr(ord("a") + k) for k in range(len(self._notes.kinds))]
        return {**self._legend, **{letter: self._notes.text(letter) for letter in letters}}

    def mark(self, text: str) -> str:
        """The letter of a footnote."""
        return self._notes.letter(text)

    def label(self, *rows: Row) -> Cell:
        """The name of a method, with the marks of its rows."""
        flags = [mark for mark in self._legend if any(mark in row.flags for row in rows)]
        letters = {letter for row in rows for letter in self._raised(row, LABEL)}
        return Cell(rows[0].name, marks="".join([*flags, *sorted(letters)]))

    def accuracy(self, row: Row, table: Table, *, ranked: bool = True) -> Cell:
        cell = words.accuracy(row, MEAN, table.places if ranked else {}, spread=True)
        return replace(cell, marks=self._raised(row, MEAN))

    def _raised(self, row: Row, column: str) -> str:
        return "".join(sorted({self._notes.letter(text) for text in row.remarks.get(column, ())}))


def measured_rows(table: Table) -> list[Row]:
    return [row for row in table.rows if row.measured]


def _without_source(rows: Sequence[Row]) -> Sequence[Row]:
    """The methods; Source itself only where there is nothing else."""
    return [row for row in rows if row.kind == "method"] or rows


def _seeds_too(tables: Sequence[Table]) -> str:
    return " and, where there are several, over seeds" if any(table.seeds for table in tables) else ""


class _BestPublished:
    """The highest published mean on a dataset at a severity, on the same architecture."""

    def __init__(self, known: pd.DataFrame | None) -> None:
        self.used: dict[str, None] = {}
        self.known = None if known is None else known[known["corruption"] == MEAN]

    def __call__(self, table: Table, arch: str) -> Cell:
        if self.known is None:
            return Cell()
        key: Mapping[str, object] = table.key
        here = self.known[
            (self.known["dataset"] == key["dataset"]) & (self.known["severity"] == key["severity"])
            & (self.known["arch"] == arch) & (self.known["method"] != "source")
        ]  # fmt: skip
        if here.empty:
            return Cell("–")
        top = here.sort_values("accuracy").iloc[-1]
        self.used.setdefault(str(top["publication"]))
        who = naming.method(str(top["method"]))
        return Cell(words.number(float(top["accuracy"])), after=f"\u00a0({who})")

    @property
    def sources(self) -> str:
        """Where the numbers are from."""
        names = ", ".join(self.used)
        return f"Best published: the highest mean printed, whatever its setting ({names})." if names else ""
