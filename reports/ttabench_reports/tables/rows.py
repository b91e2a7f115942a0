"""A measured row of a table: its numbers, words in place of numbers, and what footnotes say of it."""

from __future__ import annotations

import math
from typing import Any

from ttabench.errors import counted
from ttabench.provenance.staleness import stale_reasons
from ttabench_reports.cells.calibration import total
from ttabench_reports.cells.row_numbers import RowNumbers
from ttabench_reports.cells.unknown_classes import over as unknown_over
from ttabench_reports.tables.table import LABEL, OFFLINE, STALE, Row
from ttabench_reports.words import naming
from ttabench_reports.words.naming import MEAN, MEAN_EXTRA
from ttabench_reports.words.notes import kind

DASH = "–"


def row_of(member: dict[str, Any], numbers: RowNumbers, main: tuple[str, ...], extra: tuple[str, ...]) -> Row:
    """The row of a method, or of Source.

    main, extra  the corruptions of the table; a mean over each stands beside them.
    """
    number, source = member["row"], member["base"] == "source"
    whole = main if all(numbers.complete(number, column) for column in main) else ()
    row = Row(
        member["arch"],
        f"{member['method']} ({member['difference']})" if member["difference"] else member["method"],
        "source" if source else "method",
        dict(numbers.values[number]),
        dict(numbers.sd[number]),
        about={**member, "seed_names": numbers.seed_names[number]},
        correct=numbers.correct.get(number, {}),
        reliability=total(numbers.reliabilities.get(number, {}), whole),
        unknown=unknown_over(numbers.unknown.get(number, {}), whole),
        windows=numbers.windows.get(number, {}),
        order=numbers.orders.get(number, ()),
    )
    offline = member["mode"] == "offline" and member["measured"] and not source
    row.flags = (OFFLINE if offline else "") + (STALE if member["stale"] else "")
    if changed := numbers.changed.get(number):
        row.remark(LABEL, "; ".join(stale_reasons(changed, "since then {}")))
    for name, over in ((MEAN, main), (MEAN_EXTRA, naming.averaged(extra))):
        if over:
            row.values[name], row.sd[name] = numbers.mean(number, over)
    _explain(row, numbers, main, extra)
    if count := member["missing"]:
        row.remark(LABEL, f"{count} planned cell{'s are' if count > 1 else ' is'} missing")
    return row


def _explain(row: Row, numbers: RowNumbers, main: tuple[str, ...], extra: tuple[str, ...]) -> None:
    """Words in place of numbers, and what footnotes say."""
    number = row.about["row"]
    gaps = [c for c in (*main, *extra) if not numbers.complete(number, c)]
    row.words = {column: DASH for column in gaps if math.isnan(row.value(column))}
    for cell in numbers.troubles.get(number, ()):
        _explain_cell(row, cell)
    row.partial = frozenset(gaps) - row.words.keys()
    for column in gaps:
        if column in row.partial and column not in row.remarks:
            row.remark(column, "not measured in every seed; numbers are means of the others")
        elif column in row.words and row.words[column] == DASH:
            row.remark(column, "not measured")
    for name, over in ((MEAN, main), (MEAN_EXTRA, naming.averaged(extra))):
        if over and math.isnan(row.value(name)):
            words = {row.words.get(column, "") for column in over}
            row.words[name] = "n/a" if words == {"n/a"} else DASH
            if words not in ({"n/a"}, {"failed"}):
                unit = "corruptions" if numbers.seeds[number] == 1 else "corruptions in every seed"
                row.remark(name, f"no mean: {len({*over} - {*gaps})} of {len(over)} {unit}")
    _say_once(row, (*main, *extra))
    alarms = [any(text.startswith("alarm: ") for text in row.remarks.get(column, ())) for column in main]
    if any(alarms) and not math.isnan(row.value(MEAN)):
        row.remark(MEAN, f"alarm under {sum(alarms)} of {counted(len(main), 'corruption')}")


def _explain_cell(row: Row, cell: Any) -> None:
    """A cell that has no number, or an alarm."""
    column, status = cell.corruption, "n/a" if cell.status == "n/a" else "failed"
    reason = f"{status}: {cell.reason.rstrip('.') or 'no reason stored'}"
    if cell.ok:
        row.remark(column, f"alarm: {cell.alarm}")
        if "collapse:" in cell.alarm:
            row.collapsed |= {column}
    elif column in row.words:
        row.words[column] = status if row.words[column] in (DASH, status) else "failed"
        row.remark(column, reason)
    else:
        # Of a row that lacks the seed everywhere, tables of means say this beside a dash.
        row.remark(column, f"seed {cell.seed} {reason}; numbers are means of the other seeds")


def _say_once(row: Row, columns: tuple[str, ...]) -> None:
    """What is remarked of every column is remarked of the row."""
    kinds = [{kind(text) for text in row.remarks.get(column, ())} for column in columns]
    common = set.intersection(*kinds)
    for column in columns if common else ():
        for text in [text for text in row.remarks[column] if kind(text) in common]:
            row.remark(LABEL, text)
            row.remarks[column].remove(text)
