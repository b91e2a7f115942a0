"""What stands behind each number, as JSON that the page's script reads when a number is pointed at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from ttabench_reports.cells.grouped import grouped
from ttabench_reports.evidence import stats
from ttabench_reports.evidence.given import given
from ttabench_reports.evidence.intervals_and_tests import Finding, findings
from ttabench_reports.evidence.report import Report
from ttabench_reports.page import protocol_cards
from ttabench_reports.sheets import costs
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words import naming

FINDING = tuple(f.name for f in fields(Finding))


def details(report: Report, *, cells: bool = True, pages: Mapping[int, str] | None = None) -> dict[str, Any]:
    """``texts`` that many share; ``columns``: names of corruptions; ``rows`` by number, each with its cells.

    cells  whether rows have their cells; a page with means alone needs none.
    pages  file of the page with the card of each row; None where it is on this one.

    A cell is [seed, accuracy, low, high, seconds, start of the id, when, settings of the machine, code, why
    not]; a long stream has no interval.
    """
    texts = _Texts()
    columns = {c: naming.title(c) for table in report.tables for c in table.columns}
    stored = _stored(report, texts) if cells else []
    rows = [
        _row(table, row, report, stored, texts) | {"page": (pages or {}).get(report.numbers[id(row)], "")}
        for table in report.tables
        for row in table.measured_rows
    ]
    return {"columns": columns, "rows": rows, "texts": list(texts)}


class _Texts(dict[str, int]):
    """Texts with their numbers, each kept once."""

    def number(self, text: str) -> int:
        return self.setdefault(text, len(self))


def _stored(report: Report, texts: _Texts) -> list[tuple[str, list[Any]]]:
    """(corruption, what the page knows) of each cell."""
    cells = report.kept
    images = np.maximum(cells["n_images"].to_numpy(), 1)
    low, high = stats.wilson(cells["accuracy"].to_numpy(), images)
    streams = cells["stream"] != ""  # no sample: the images come again and again
    low, high = (np.where(streams, math.nan, end) for end in (low, high))
    machines = protocol_cards.machines(cells)
    columns = zip(
        cells["corruption"], cells["seed"], cells["accuracy"], low, high, cells["seconds"], cells["cell_id"],
        cells["written"], machines, cells["code"], cells["status"], cells["reason"], cells["alarm"],
        cells["stale_because"], strict=True,
    )  # fmt: skip
    listed = []
    for corruption, seed, accuracy, below, above, seconds, cell_id, when, machine, code, *outcome in columns:
        status, reason, alarm, stale = outcome
        why = [f"{status}: {reason or 'no reason stored'}"] if math.isnan(accuracy) else []
        why += [f"alarm: {alarm}"] if alarm else []
        why += [f"stale: {stale or 'made with other code'}"] if stale else []
        listed.append((corruption, [
            int(seed), _number(accuracy), _number(below, 2), _number(above, 2), _number(seconds, 3),
            cell_id[: protocol_cards.DIGITS],
            _number(when, 0), texts.number(machine), texts.number(code), texts.number("; ".join(why)),
        ]))  # fmt: skip
    return listed


def _row(
    table: Table, row: Row, report: Report, stored: list[tuple[str, list[Any]]], texts: _Texts
) -> dict[str, Any]:
    about = row.about
    had = given(about)
    cells = grouped(stored[place] for place in report.places(row)) if stored else {}
    finding = findings(table)[id(row)]
    facts = {
        "protocol": protocol_cards.caption(protocol_cards.protocol(row), table),
        "config": about["config"], "source": had.source,
        "weights": about["checkpoint"], "data": table.key["fingerprint"],
        "images": f"{about['n_images']:,}", "cost": costs.in_words(row),
    }  # fmt: skip
    return {
        "name": texts.number(row.name),
        "arch": texts.number(naming.arch(row.arch)),
        "table": texts.number(table.heading),
        "card": texts.number(protocol_cards.card_id(row)),
        "facts": {name: texts.number(str(value)) for name, value in facts.items()},
        "sd": {c: _number(row.sd[c]) for c in table.columns if not math.isnan(row.sd.get(c, math.nan))},
        "values": {c: _number(row.value(c)) for c in table.columns if c not in cells},
        "mean": {name: _known(getattr(finding, name)) for name in FINDING},
        "cells": cells,
    }


def _number(value: float, decimals: int = 4) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else round(float(value), decimals)


def _known(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_number(part) for part in value]
    if isinstance(value, float):
        return _number(value, 12)
    return value
