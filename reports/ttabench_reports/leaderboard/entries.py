"""The lines of a leaderboard: groups that share images, weights and protocol, and ranks within them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ttabench.cell.protocol import Protocol
from ttabench_reports.cells.grouped import grouped
from ttabench_reports.evidence.gains_and_costs import device
from ttabench_reports.evidence.places import places, untested_against
from ttabench_reports.evidence.report import Report
from ttabench_reports.leaderboard.joined_folders import FOLDER
from ttabench_reports.page import overview, protocol_cards
from ttabench_reports.sheets.footnotes import TableNotes
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words import naming
from ttabench_reports.words.naming import MEAN

COSTS = (1.5, 3, 10, 30)
"""The bounds a reader can choose from: time over Source."""
COLUMNS = (
    "dataset", "severity", "arch", "checkpoint", "protocol", "rank", "of", "method", "accuracy", "low",
    "high", "sd", "corruptions", "increase", "source_data", "epochs_seen", "settings_chosen",
    "time_over_source", "seeds", "n_images", "state", "folders", "card",
)  # fmt: skip


@dataclass(frozen=True)
class RankedRow:
    """A method in its group.

    rank, of  1 for the best of the `of` ranked methods of its protocol and its ties; None where it is not
              ranked: a mean that is not complete or not tested, or no other method to compare with.
    cost      time over Source's, see :func:`_cost`; NaN where it is not known.
    folders   the results folders that its cells are from; page, the page with its card.
    tested    whether it could be tested against the methods that are ranked.
    """

    line: overview.MeasuredRow
    rank: int | None
    of: int
    cost: float
    folders: tuple[str, ...]
    page: str
    tested: bool = True

    @property
    def state(self) -> tuple[str, ...]:
        """Words such as ``stale``; ``not tested`` for a mean that no test compares with the ranked ones."""
        return (*self.line.state, *(("not tested",) if not self.tested else ()))

    @property
    def row(self) -> Row:
        return self.line.row


@dataclass(frozen=True)
class Ranking:
    """Methods that may be compared: the same images, weights and protocol. Source stands beside them.

    The compute ratio of a paced stream is measured for each method, so it is not part of this comparison.
    """

    table: Table
    arch: str
    checkpoint: str
    protocol: Protocol
    entries: tuple[RankedRow, ...]

    @property
    def heading(self) -> str:
        return f"{self.table.heading} · {naming.arch(self.arch)}"

    @property
    def caption(self) -> str:
        """The protocol in words."""
        text = protocol_cards.caption(self.protocol, self.table)
        if not self.protocol.pace:
            return text
        return f"{text.partition(' at compute ratio')[0]}, each method at its own compute ratio"


def groups(report: Report, pages: Mapping[str, str]) -> list[Ranking]:
    """All groups with a method, those with more methods first within a dataset and an architecture.

    pages  file of the page of each folder, in the order in which they count.
    """
    lines = {id(line.row): line for line in overview.lines(report, TableNotes())}
    listed = []
    for table in report.tables:
        for arch, rows in table.archs().items():
            ran = [row for row in rows if row.kind == "method" and row.about["measured"]]
            of_protocol = grouped(((row.about["checkpoint"], _common(row)), row) for row in ran)
            made = [
                _group(report, table, arch, *key, members, lines, pages)
                for key, members in of_protocol.items()
            ]
            listed += sorted(made, key=lambda group: -len(group.entries))
    return listed


def _common(row: Row) -> Protocol:
    """The protocol of a row without its own compute ratio."""
    return replace(protocol_cards.protocol(row), pace_ratio=Protocol().pace_ratio)


def _group(
    report: Report, table: Table, arch: str, checkpoint: str, protocol: Protocol, members: list[Row],
    lines: Mapping[int, overview.MeasuredRow], pages: Mapping[str, str],
) -> Ranking:  # fmt: skip
    untested = _untested(members, table)
    ranks = ranked([row for row in members if id(row) not in untested], table)
    of = len(ranks)

    def entry(row: Row) -> RankedRow:
        cells = report.cells_of(row)
        there = set(cells.loc[cells["accuracy"].notna(), FOLDER])
        names = tuple(name for name in pages if name in there)
        rank = ranks.get(id(row)) if of > 1 else None
        cost, tested = _cost(report, row), id(row) not in untested
        return RankedRow(lines[id(row)], rank, of, cost, names, pages[names[0]], tested)

    ordered = sorted(members, key=lambda row: (ranks.get(id(row), math.inf), row.falling))
    baselines = [row.printed_baseline for row in members]
    sources = list({id(row): row for row in baselines if row}.values())
    return Ranking(table, arch, checkpoint, protocol, tuple(map(entry, (*sources, *ordered))))


def _untested(rows: Sequence[Row], table: Table) -> set[int]:
    """Ids of the rows with a mean that are not ranked: those that cannot be tested against the others.

    The others are the most that can be tested against one of them; of as many, against the highest one. So
    a row with other seeds does not take the ranks of all the others, however high it is. Where no two rows
    can be tested, as on a long stream, it is all of them.
    """
    able = sorted((row for row in rows if row.complete(MEAN)), key=lambda row: row.falling)
    found: list[set[int]] = []
    for row in able:
        found.append(untested_against(row, able, table))
        if not found[-1]:
            break
    fewest = min(found, key=len, default=set())
    return {*map(id, able)} if 1 < len(able) == len(fewest) + 1 else fewest


def ranked(rows: Sequence[Row], table: Table) -> dict[int, int]:
    """id of row → rank of its mean. Rows of one protocol and the same weights.

    Rank 1 is the highest mean and every one that does not differ from it significantly (see
    :func:`places`). The next rank is found in the same way among the rest, and so on. A row without
    a complete mean has no rank.
    """
    rest = [row for row in rows if row.complete(MEAN)]
    ranks: dict[int, int] = {}
    while rest:
        best = [row for row, place in places(rest, table, MEAN) if place == "best"] or rest
        rank = len(ranks) + 1
        ranks |= {id(row): rank for row in best}
        rest = [row for row in rest if id(row) not in ranks]
    return ranks


def _cost(report: Report, row: Row) -> float:
    """Time of adaptation over that of Source's forward pass, as in tables of costs, if the cells hold it.

    Else the median over that of Source's cells: seconds compare on one machine only, so NaN unless both ran
    on the same one, and NaN where the row's own ran on several devices: their median is of neither.
    """
    if "," in device(row):
        return math.nan
    if not math.isnan(known := float(row.about["compute_ratio"])):
        return known
    if row.kind == "source":
        return 1.0
    if row.baseline is None:
        return math.nan
    both = (report.cells_of(each) for each in (row, row.baseline))
    cells, source = (one[one["accuracy"].notna()] for one in both)
    one = {*protocol_cards.machines(cells), *protocol_cards.machines(source)}
    seconds = float(source["seconds"].median())
    return float(cells["seconds"].median()) / seconds if len(one) == 1 and seconds else math.nan


def filters(groups: Sequence[Ranking]) -> list[dict[str, Any]]:
    """The choices a reader has, as :func:`overview.filters` gives them; all of them, also with one value."""
    return overview.choices({
        "table": {g.table.title: g.table.heading for g in groups},
        "arch": {g.arch: naming.arch(g.arch) for g in groups},
        "protocol": {g.caption: g.caption for g in groups},
        "source": {e.line.source: e.line.source for g in groups for e in g.entries},
    })  # fmt: skip


def table(groups: Sequence[Ranking]) -> Iterator[dict[str, Any]]:
    """The lines as rows of :data:`COLUMNS`."""
    for group in groups:
        for entry in group.entries:
            row, had, about = entry.row, entry.line.given, entry.row.about
            yield {
                **{name: group.table.key[name] for name in ("dataset", "severity")}, "arch": group.arch,
                "checkpoint": group.checkpoint, "protocol": group.caption, "rank": entry.rank,
                "of": entry.of, "method": row.method, "accuracy": row.value(MEAN),
                "low": entry.line.finding.interval[0], "high": entry.line.finding.interval[1],
                "sd": row.sd[MEAN], "corruptions": len(group.table.main), "increase": row.rise,
                "source_data": had.source, "epochs_seen": had.epochs,
                "settings_chosen": had.chosen, "time_over_source": entry.cost,
                "seeds": about["seeds"], "n_images": about["n_images"],
                "state": "; ".join(entry.state), "folders": "; ".join(entry.folders),
                "card": f"{entry.page}#{entry.line.card}",
            }  # fmt: skip
