"""The open cells of a plan: without those that are stored, and those that cannot be run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from ttabench.cell import Cell, Result
from ttabench.cell.protocol import Protocol
from ttabench.run.cell_group import CellGroup, Chain
from ttabench.store import Record, Store
from ttabench.store.columns import COSTLY_SCORES
from ttabench.sweep.plan import Planned, sequence

LARGEST = 64  # cells of a group
SHARE = 4  # a group is at most this part of a worker's share of the cells that are left


@dataclass
class Agenda:
    """The cells of a sweep, sorted by what happens to them."""

    todo: list[Cell] = field(default_factory=list)
    done: list[Cell] = field(default_factory=list)
    failed: list[Cell] = field(default_factory=list)  # stored as failed, and not computed again
    not_applicable: list[Planned] = field(default_factory=list)
    stale: dict[str, set[str]] = field(default_factory=dict)  # method → what changed; its cells are in `todo`

    @property
    def total(self) -> int:
        return len(self.todo) + len(self.done) + len(self.failed) + len(self.not_applicable)


def make_agenda(
    planned: Sequence[Planned], store: Store | None, overwrite: str = "stale", scores: str = "cheap"
) -> Agenda:
    """Sort cells by their stored results. `overwrite` is one of `option_table.OVERWRITE`.

    With all `scores`, a result without the costly ones is computed again where a stale one would be.
    """
    held = {} if store is None or overwrite == "always" else store.latest(quick=True)
    agenda = Agenda(not_applicable=[item for item in planned if item.unmet])
    for cell in (item.cell for item in planned if not item.unmet):
        record = held.get(cell.cell_id) if cell.checkpoint else None
        if record is None or record.data["status"] == "n/a":
            agenda.todo += [cell]
        elif overwrite == "stale" and record.changes:
            agenda.todo += [cell]
            agenda.stale.setdefault(cell.method, set()).update(record.changes)
        elif overwrite == "stale" and scores == "all" and lacks_scores(record):
            agenda.todo += [cell]
        elif record.data["status"] == "ok":
            agenda.done += [cell]
        elif overwrite in ("failed", "stale"):
            agenda.todo += [cell]
        else:
            agenda.failed += [cell]
    return agenda


def lacks_scores(record: Record) -> bool:
    """Whether a result was stored without the costly label-free scores, which long streams do not have."""
    stored = record.result.details.get("unlabelled", {})
    return not record.result.cell.protocol.stream and not stored.keys() >= set(COSTLY_SCORES)


def make_groups(
    todo: Sequence[Cell], planned: Sequence[Planned], like: CellGroup, workers: int = 1
) -> list[CellGroup]:
    """Groups of cells of one classifier and dataset; the first ones are large, the last ones single cells.

    A group takes a fixed part of what is left for each worker, as in guided self-scheduling (Polychronopoulos
    and Kuck, 1987), so that all workers have work until the end whatever a cell takes.

    like   a group without cells: what all groups share.
    """
    of_network: defaultdict[tuple[str, ...], list[Chain]] = defaultdict(list)
    wanted = {cell.cell_id for cell in todo}
    for chain in make_chains(wanted, planned):
        of_network[chain[0].arch, chain[0].checkpoint, chain[0].dataset] += [chain]
    left = sum(len(chain) for chains in of_network.values() for chain in chains)
    groups: list[CellGroup] = []
    for chains in of_network.values():
        start = 0
        while start < len(chains):
            size = max(1, min(LARGEST, left // (SHARE * max(1, workers))))
            end, count = start + 1, len(chains[start])
            while end < len(chains) and count + len(chains[end]) <= size:
                count += len(chains[end])
                end += 1
            part, start, left = tuple(chains[start:end]), end, left - count
            done = frozenset(cell.cell_id for chain in part for cell in chain) - wanted
            groups.append(replace(like, chains=part, done=done))
    return groups


def make_chains(wanted: Collection[str], planned: Sequence[Planned]) -> list[Chain]:
    """One chain per cell; one per sequence of corruptions if the state continues from one to the next.

    wanted   ids of the cells that need a new result; each chain has one of them at least.
    """
    chains: defaultdict[Hashable, list[Cell]] = defaultdict(list)
    for cell in (item.cell for item in planned if not item.unmet):
        if cell.protocol.reset == "continual" or cell.cell_id in wanted:
            chains[sequence(cell)] += [cell]
    return [tuple(cells) for cells in chains.values() if any(cell.cell_id in wanted for cell in cells)]


def plan_rows(planned: Iterable[Planned]) -> Iterator[dict[str, Any]]:
    """What the store keeps of a plan, see `store.PLAN`."""
    protocols: dict[Protocol, dict[str, Any]] = {}  # few for many cells
    for item in planned:
        cell = item.cell
        if cell.protocol not in protocols:
            protocols[cell.protocol] = cell.protocol.to_json()
        yield {
            "id": cell.cell_id, "method": cell.label, "base": cell.method, "arch": cell.arch,
            "dataset": cell.dataset, "corruption": cell.corruption, "severity": cell.severity,
            "seed": cell.seed, "reason": item.unmet, "protocol": protocols[cell.protocol],
            **({"fixed": list(item.fixed)} if item.fixed else {}),
        }  # fmt: skip


def record_not_applicable(items: Sequence[Planned], store: Store, overwrite: str = "stale") -> None:
    """Store each cell that cannot be run with its reason, once.

    A failure, or a number of other code, is replaced where `overwrite` lets such cells be computed again.
    """
    held = store.latest(quick=True) if items else {}

    def stands(record: Record) -> bool:
        if record.data["status"] == "failed":
            return overwrite == "never"
        return record.data["status"] == "n/a" or not record.changes or overwrite in ("never", "failed")

    with closing(store.writer()) as writer:
        writer.extend(
            Result(cell=item.cell, status="n/a", reason=item.unmet)
            for item in items
            if (record := held.get(item.cell.cell_id)) is None or not stands(record)
        )
