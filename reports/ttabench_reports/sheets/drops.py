"""How far accuracy drops from clean images to corrupted ones, datasets side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ttabench.cell.subset_names import drawn_from
from ttabench_reports.cells.frames import TABLE
from ttabench_reports.cells.grouped import grouped
from ttabench_reports.evidence.groups import groups_of_table
from ttabench_reports.evidence.report import Report
from ttabench_reports.sheets import words
from ttabench_reports.sheets.footnotes import NAMES, TableNotes, side_by_side
from ttabench_reports.sheets.sheet import Head, Line, Sheet
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words import naming
from ttabench_reports.words.naming import MEAN

WHOLE = "On clean images predictions are chosen from all classes."
LIMITED = "The accuracy on clean images is over all test images; that under corruption is over some of them."


def drops(report: Report) -> Iterator[Sheet]:
    """From clean to corrupted, datasets with a common architecture side by side; three of them in a sheet."""
    tables = [
        table
        for table in report.tables
        if any(not math.isnan(row.about["clean_accuracy"]) for row in table.measured_rows)
    ]
    protocol = [name for name in TABLE if name not in ("dataset", "fingerprint", "foreign", "baseline")]
    similar = grouped((tuple(table.key[name] for name in protocol), table) for table in tables)
    families = list(similar.values()) if any(len(family) > 1 for family in similar.values()) else [tables]
    shared = [group for family in families for group in _with_common_archs(family)]
    parts = [group[k : k + 3] for group in shared for k in range(0, len(group), 3)]
    for number, part in enumerate(parts, 1):
        yield _drop(part, "drop" if number == 1 else f"drop_{number}")


def _with_common_archs(tables: Sequence[Table]) -> list[list[Table]]:
    """Each table in the first group that has one of its architectures: others would share no row."""
    groups: list[tuple[set[str], list[Table]]] = []
    for table in tables:
        archs = {naming.without_dataset(row.arch) for row in table.measured_rows}
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
    smallest = {row for table in tables for row in _smallest(table)}

    def cells(table: Table, row: Row, line: Sequence[Row]) -> Line:
        return [
            words.known(words.number(row.about["clean_accuracy"])),
            notes.accuracy(row, table, ranked=False, line=line),
            words.known(words.number(_fall(row)), place="best" if id(row) in smallest else ""),
        ]

    parts = [side_by_side(tables, notes, cells, 3)]
    over = _over(tables)
    where = "" if over else tables[0].key["severity"]
    caption = words.join(
        f"Accuracy drop (%) from clean images to the mean {words.over(tables)}"
        f"{f' (severity {where})' if where else ''}.",
        words.measured(tables),
    )
    heads = [*NAMES, *(head for table in tables for head in _heads(table))]
    cuts = tuple(3 + 3 * k for k in range(1, len(tables)))
    sheet = Sheet(name, caption, _footer(tables), heads, parts, over, 3, notes.texts, cuts, main=True)
    return words.with_dashes_said(sheet)


def _fall(row: Row) -> float:
    """The printed clean accuracy minus the printed mean, as it is printed; NaN where there is none."""
    return round(float(f"{row.about['clean_accuracy']:.1f}") - row.printed(MEAN), 1)


def _heads(table: Table) -> list[Head]:
    dataset = str(table.key["dataset"])
    return [Head(naming.clean(dataset)), Head(naming.dataset(dataset)), Head("Drop")]


def _over(tables: Sequence[Table]) -> list[tuple[str, int]]:
    """The line above the heads, where the name of a dataset does not tell two tables apart; else none."""
    datasets = {table.key["dataset"] for table in tables}
    one_severity = len({table.key["severity"] for table in tables}) == 1
    if one_severity and len({(table.key["dataset"], table.difference) for table in tables}) == len(datasets):
        return []
    return [("", 3), *((table.heading, 3) for table in tables)]


def _footer(tables: Sequence[Table]) -> str:
    limited = any(
        table.key["limit"]
        or table.key["held_out"]
        or drawn_from(table.key["dataset"]) != table.key["dataset"]
        for table in tables
    )
    return words.join(
        "Drop: the difference of the printed numbers. Bold: the smallest drop of a model, as printed; "
        "online and offline rows (†) separately.",
        WHOLE if any(row.about["scored_classes"] for table in tables for row in table.measured_rows) else "",
        LIMITED if limited else "",
        words.remarks(tables),
        words.GIVEN,
    )


def _smallest(table: Table) -> set[int]:
    """Ids of the rows with the smallest drop of each architecture and mode, as printed."""
    ids: set[int] = set()
    for group, marked in groups_of_table(table):
        falls = {id(row): fall for row in group if not math.isnan(fall := _fall(row))}
        if len(falls) > 1:
            ids |= {row for row, fall in falls.items() if fall == min(falls.values())} & marked
    return ids
