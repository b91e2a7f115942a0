"""The paper's tables from a table of cells: which rows, which numbers, and which remarks.

A mean is given over a complete set of corruptions and seeds or not at all; what is not a number
says why; what was not measured the same way is never averaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ttabench.cell.subset_names import everything
from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench.errors import counted
from ttabench_reports.cells.environments import COLUMNS as ENVIRONMENT
from ttabench_reports.cells.environments import difference as environment_difference
from ttabench_reports.cells.frames import PROTOCOL, TABLE, USUAL, checked, one_per_cell, unusual
from ttabench_reports.cells.grouped import grouped
from ttabench_reports.cells.row_numbers import RowNumbers
from ttabench_reports.cells.set_by_users import SET
from ttabench_reports.published.beside import of_same_setting
from ttabench_reports.tables.increases import with_increases
from ttabench_reports.tables.remarks import (
    absent,
    missing_cells,
    of_classes,
    of_mean,
    of_other_orders,
    orders,
    several_orders,
)
from ttabench_reports.tables.rows import row_of
from ttabench_reports.tables.rows_of_cells import rows_of_cells
from ttabench_reports.tables.table import LABEL, PUBLISHED, Row, Table, with_stream
from ttabench_reports.words import naming, protocols
from ttabench_reports.words.naming import MEAN
from ttabench_reports.words.notes import Notes
from ttabench_reports.words.unset_settings import unset, without


def tables(cells: pd.DataFrame, published: pd.DataFrame | None = None) -> list[Table]:
    """Every per-corruption table in `cells`; `published` (see :mod:`published`) adds the papers' rows.

    Raises UserError where `cells` is empty or is not a table of cells.
    """
    stored = checked(cells)
    kept = one_per_cell(stored)
    left_out = of_other_orders(stored, kept)
    frame, rows = rows_of_cells(kept)
    rows["unset"] = unset(rows, cells.attrs.get(SET))
    keys = rows[list(TABLE)].drop_duplicates()
    keys["difference"] = unusual(keys, ["dataset", "severity"], TABLE[2:])

    numbers = RowNumbers(frame)
    records = [{str(name): value for name, value in row.items()} for row in rows.to_dict("records")]
    groups = grouped((tuple(row[name] for name in TABLE), row) for row in records)
    measured_in = frame[["row", *ENVIRONMENT, "accuracy"]]
    built = []
    for record in sorted(keys.to_dict("records"), key=_place_of_table):
        difference = with_stream(record.pop("difference"), str(record["stream"]))
        key = {str(name): value for name, value in record.items()}
        members = groups[tuple(key.values())]
        for member in members:
            member["missing"] = missing_cells(member, cells.attrs)
        here = measured_in[measured_in["row"].isin([member["row"] for member in members])]
        remarks = (absent(key, cells.attrs, rows), environment_difference(here))
        of_table = left_out.get(tuple(key.values()), 0)
        built.append(_build(key, difference, members, numbers, of_table, remarks, published))
    return built


def _place_of_table(key: Mapping[Any, Any]) -> tuple[object, ...]:
    """Of a dataset, long streams come last; of a severity, the table of the default protocol comes first."""
    other = any(key[name] != USUAL.get(name, "") for name in TABLE[3:])
    return key["dataset"], bool(key["stream"]), key["severity"], other, naming.natural(key["difference"])


def _build(
    key: dict[str, Any], difference: str, members: list[dict[str, Any]], numbers: RowNumbers,
    left_out: int, further: tuple[str, ...], published: pd.DataFrame | None,
) -> Table:  # fmt: skip
    swept = {c for member in members for c in numbers.measured[member["row"]]}
    main, extra = map(tuple, naming.split(swept))
    rows: list[Row] = []
    for arch in sorted({m["arch"] for m in members}, key=naming.arch_key):
        ours = sorted((m for m in members if m["arch"] == arch), key=_place)
        lines = [row_of(m, numbers, main, extra) for m in ours]
        rows += [*with_increases(lines, numbers, main, extra), *_published(published, key, lines, main)]
    notes = Notes()
    for row in rows:
        row.letters = {c: "".join(sorted(set(map(notes.letter, texts)))) for c, texts in row.remarks.items()}
    others = f"Left out: {counted(left_out, 'cell')} of continual runs in another order of corruptions."
    remarks = (
        of_mean(main),
        of_classes(key, members),
        others if left_out else "",
        orders(rows, (*main, *extra)),
        several_orders(rows, numbers),
        *further,
    )
    protocol, brief = protocols.said(fields(members), key["baseline"], everything([key["dataset"]]))
    said = tuple(filter(None, remarks))
    return Table(key, difference, protocol, _seeds(members), said, main, extra, tuple(rows), notes, brief)


def _seeds(members: list[dict[str, Any]]) -> str:
    """How many seeds the rows have, ``2 to 3``; "" where all have one."""
    adapted = [member for member in members if member["base"] != "source"] or members
    seeds = sorted({member["seeds"] for member in adapted})
    return "" if seeds[-1] == 1 else naming.span(seeds)


def fields(members: list[dict[str, Any]]) -> list[protocols.Item]:
    """Each measured method and its protocol, or where all failed, what was planned.

    Source only where nothing else is, since it adapts to no batch.
    """
    adapted = [member for member in members if member["base"] != "source"] or members
    used = [member for member in adapted if member["measured"]] or adapted
    return [
        (
            naming.method(without(m["method"], m["unset"]), str(m["config"])),
            {name: m[name] for name in ("arch", *PROTOCOL)},
        )
        for m in sorted(used, key=_place)
    ]


def _place(member: dict[str, Any]) -> tuple[object, ...]:
    offline = member["mode"] == "offline" and member["base"] != "source"
    shown = without(member["method"], member["unset"])
    by_name = naming.method_key(member["base"], shown, str(member["config"]))
    return member["checkpoint"], offline, *by_name, naming.natural(member["difference"])


def _published(
    known: pd.DataFrame | None, key: dict[str, Any], lines: list[Row], main: tuple[str, ...]
) -> Iterator[Row]:
    """Of the publications the rows of the same setting as the `lines` of a network.

    Their means are over the fifteen, and stand beside no other mean.
    """
    if known is None:
        return
    arch = lines[0].arch
    here = (known["dataset"] == key["dataset"]) & (known["severity"] == key["severity"])
    for (publication, method), group in known[here & (known["arch"] == arch)].groupby(
        ["publication", "method"], sort=False
    ):
        setting = of_same_setting(str(publication), str(method), [line.about for line in lines])
        if setting is None:
            continue
        values = {str(c): float(v) for c, v in zip(group["corruption"], group["accuracy"], strict=True)}
        row = Row(arch, f"{method} ({publication})", "published", values, flags=PUBLISHED)
        if setting:
            row.remark(LABEL, setting)
        if main != CORRUPTIONS and values.pop(MEAN, None) is not None:
            row.remark(MEAN, "the published mean is over all 15 corruptions")
        yield row
