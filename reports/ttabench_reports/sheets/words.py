"""Words and numbers that several tables share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ttabench.cell.subset_names import everything
from ttabench_reports.cells.frames import PROTOCOL, USUAL
from ttabench_reports.cells.grouped import grouped
from ttabench_reports.evidence import given as had
from ttabench_reports.evidence import stats
from ttabench_reports.evidence.places import Place, untested
from ttabench_reports.sheets.sheet import Emphasis, Entry, Sheet, by_column
from ttabench_reports.tables.rows import DASH
from ttabench_reports.tables.table import LABEL, Row, Table
from ttabench_reports.words import naming, protocols
from ttabench_reports.words.unset_settings import defaults, without

RANKED = (
    "Bold: the best result of a model, and results that do not differ from it significantly (paired test, "
    "5\u00a0%, Holm-corrected). Underlined: the second best and its ties, if above Source."
)
PLAIN = (
    "Bold: the best result of a model, and results with the same printed number. Underlined: the second best "
    "and its ties, if above Source."
)
FEW_SEEDS = range(stats.LEAST_SEEDS, 6)
WEAK = "With so few seeds the test is weak: even a large difference may count as a tie."
SEPARATELY = "Online and offline rows (†) are ranked separately."
TOGETHER = "Rows of different batch sizes are ranked together."
AS_PRINTED = "Where nothing can be tested, as on a long stream, only equal printed numbers are ties."
NOT_TESTED = (
    "Some rows could not be tested against the best; they may be as good as the best, though not bold."
)
UNRANKED = "Published rows and numbers over fewer seeds are not ranked."
GIVEN = f"{had.LEGEND}."
NO_NUMBER = "A dash in a column of numbers: there is no such number."


def minus(text: str) -> str:
    return text.replace("-", "−")


def number(value: float) -> str:
    return "" if math.isnan(value) else minus(f"{value:.1f}")


def signed(value: float) -> str:
    """``+1.3``; zero is 0.0."""
    return "" if math.isnan(value) else minus(f"{value:+.1f}") if round(value, 1) else "0.0"


def p_value(p: float) -> str:
    return "" if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def interval(low: float, high: float, *, sign: bool = False) -> str:
    spell = signed if sign else number
    return "" if math.isnan(low) else f"[{spell(low)}, {spell(high)}]"


def known(text: str, *, small: bool = False, place: Emphasis = "") -> Entry:
    """What stands in a column of numbers: :data:`DASH` where there is none."""
    return Entry(text or DASH, small=small, place=place)


def with_dashes_said(sheet: Sheet) -> Sheet:
    """A sheet whose footer says what a dash in a column of numbers means, if there is one."""
    lines = [list(by_column(line)) for group in sheet.groups for line in group.lines]
    numbers = [n for n, head in enumerate(sheet.heads) if head.align == "r"]
    if not any(line[n].text == DASH for line in lines for n in numbers):
        return sheet
    brief = sheet.brief and join(sheet.brief, NO_NUMBER)
    return replace(sheet, footer=join(sheet.footer, NO_NUMBER), brief=brief)


def label(row: Row) -> Entry:
    """A method's name with its marks."""
    return Entry(row.plain_name, marks=row.flags + row.letters.get(LABEL, ""))


def short(row: Row) -> Entry:
    """What a method was given, in short."""
    return Entry(had.given(row.about).short, small=True) if row.measured else Entry()


def accuracy(row: Row, column: str, places: Mapping[tuple[int, str], Place], *, spread: bool) -> Entry:
    """A number, or the word in its place, with footnotes; with `spread`, the standard deviation."""
    value, marks = row.value(column), row.letters.get(column, "")
    if math.isnan(value):
        return Entry(row.words.get(column, ""), marks=marks, small=True)
    after = row.spread(column) if spread else ""
    return Entry(number(value), after, marks, places.get((id(row), column), ""))


def ranking(tables: Sequence[Table]) -> str:
    """What bold and underlined say, and what takes no part."""
    rows = [row for table in tables for row in table.rows]
    methods = [row for row in rows if row.kind == "method"]
    tests = [_is_tested(table) for table in tables if _measured(table)]
    weak = any(tests) and any(row.about.get("seeds") in FEW_SEEDS for row in methods)
    return join(
        RANKED if any(tests) else PLAIN,
        AS_PRINTED if any(tests) and not all(tests) else "",
        NOT_TESTED if any(map(untested, tables)) else "",
        WEAK if weak else "",
        SEPARATELY if any(row.offline for row in methods) else "",
        TOGETHER if any(map(_of_several_batch_sizes, tables)) else "",
        UNRANKED if any(row.kind == "published" or row.partial for row in rows) else "",
    )


def _measured(table: Table) -> list[Row]:
    return [row for row in table.rows if row.kind == "method" and row.about["measured"]]


def _is_tested(table: Table) -> bool:
    return any(row.correct for row in table.rows if row.kind == "method")


def _of_several_batch_sizes(table: Table) -> bool:
    """Whether rows that are ranked together have different batch sizes."""
    sizes: dict[tuple[str, bool], set[int]] = {}
    for row in _measured(table):
        sizes.setdefault((row.arch, row.offline), set()).add(row.about["batch_size"])
    return any(len(held) > 1 for held in sizes.values())


def bootstrap(tables: Sequence[Table]) -> str:
    """What intervals are over: two seeds are taken as given, see :mod:`ttabench_reports.evidence.stats`."""
    several = any(table.seeds for table in tables)
    return f"bootstrap over images{' and, from three seeds on, over seeds' if several else ''}"


def over(tables: Sequence[Table]) -> str:
    """What means are over: ``over the corruptions``; natural shifts and long streams have images alone."""
    if all(table.natural for table in tables):
        return "over the images"
    kinds = {"a long stream" if table.stream else "a natural shift" for table in tables if table.natural}
    return "over the corruptions" + (f", or the images of {' or '.join(sorted(kinds))}" if kinds else "")


def measured(tables: Sequence[Table], *, exceptions: bool = False) -> str:
    """The protocol that most rows of several tables have, and the seeds.

    Where no method was measured, it is what was planned; where there is only Source, it is that of Source.

    exceptions  whether to name those that have another one; else it says that a table has them.
    """
    rows = [(table, row) for table in tables for row in table.measured_rows]
    methods = [(table, row) for table, row in rows if row.kind == "method"] or rows
    said = {id(table): [n for n in PROTOCOL if not _in_heading(n, table, tables)] for table in tables}
    items: list[protocols.Item] = [
        (
            row_name(row),
            {name: row.about[name] for name in ("arch", *said[id(table)])},
        )
        for table, row in [pair for pair in methods if pair[1].about["measured"]] or methods
        if said[id(table)]
    ]
    parts = []
    if items:
        baselines = {str(table.key["baseline"]) for table in tables}
        images = everything(table.key["dataset"] for table in tables)
        full, brief = protocols.said(items, min(baselines) if len(baselines) == 1 else "", images)
        parts.append(f"Protocol: {full if exceptions else brief}.")
    seeds = {table.seeds for table in tables} - {""}
    if seeds:
        some = "" if all(table.seeds for table in tables) else ", where there are several"
        numbers = sorted({n for text in seeds for n in map(int, text.split(" to "))})
        parts.append(f"Mean ± standard deviation over {naming.span(numbers)} seeds{some}.")
    return " ".join(parts)


def row_name(row: Row) -> str:
    """A method and its settings, without its protocol."""
    return naming.method(without(str(row.about["method"]), row.unset), str(row.about["config"]))


def remarks(tables: Sequence[Table]) -> str:
    """What else a reader must know of several tables; of some of them with their headings."""
    parts = []
    said = grouped((remark, table.heading) for table in tables for remark in table.remarks)
    for remark, headings in said.items():
        where = "" if len(headings) == len(tables) else f"{'; '.join(headings)}: "
        parts.append(where + remark)
    return join(*parts, defaults(row for table in tables for row in table.measured_rows))


def _in_heading(name: str, table: Table, tables: Sequence[Table]) -> bool:
    """Whether the heading of a table says a field of its protocol, see :attr:`Table.difference`."""
    place = ("dataset", "severity")
    siblings = [other.key for other in tables if all(other.key[part] == table.key[part] for part in place)]
    return table.key.get(name, USUAL[name]) != USUAL[name] and len({key[name] for key in siblings}) > 1


def how_to_read(tables: Sequence[Table]) -> str:
    """What the marks of several tables say, what else a reader must know, and what `Given` means."""
    return join(ranking(tables), remarks(tables), GIVEN)


def protocol(table: Table, spread: str = "") -> str:
    """How the numbers of one table were measured; `spread` says where their standard deviation stands."""
    seeds = f"Mean over {table.seeds} seeds{spread}." if table.seeds else ""
    return join(f"Protocol: {table.brief}.", seeds)


def increase(rows: Sequence[Row]) -> str:
    sentence = "Increase: points above Source, the difference of the printed numbers."
    return sentence if any(row.kind == "increase" for row in rows) else ""


def join(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def archs(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by architecture, which is spelled as papers write it."""
    return grouped((naming.arch(row.arch), row) for row in rows)
