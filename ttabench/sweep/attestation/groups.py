"""What an attestation is about: groups of stored cells, what a sample of them shows, and how it is run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ttabench.cell import Cell
from ttabench.cell.told_apart import names_of_cells
from ttabench.errors import UserError
from ttabench.provenance.roots import NO_CODE, Code
from ttabench.provenance.staleness import code_of
from ttabench.run.progress_events import CellProgress
from ttabench.store import Record, Store
from ttabench.store.attestations import machine_of, stratum_of

Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Group:
    """Stored cells of one kind with one code, which the installed code is not.

    key      code of the results, installed code ("": nothing can be shown), stratum, machine.
    changed  the definitions that have another text now, as they are shown.
    records  cheapest first.
    """

    key: Key
    changed: frozenset[str]
    records: tuple[Record, ...]


@dataclass(frozen=True)
class Shown:
    """What one cell of the sample showed.

    why         why not: it differs, or it could not be run here; "" if it is the same.
    ran         whether it could be run.
    operations  a hash of what both codes computed, where they ran side by side.
    """

    cell: Cell
    why: str = ""
    ran: bool = True
    operations: str = ""


@dataclass
class Outcome:
    """What an attestation showed.

    same     groups whose numbers are the same.
    refused  group → why not.
    left     group → why it was not tried, or could not be.
    cells    (id, operations) of the cells that ran for groups that are the same; twice if they ran twice.
    accepted  see `Way`.
    """

    same: list[Group] = field(default_factory=list)
    refused: dict[Key, str] = field(default_factory=dict)
    left: dict[Key, str] = field(default_factory=dict)
    cells: list[tuple[str, str]] = field(default_factory=list)
    groups: dict[Key, Group] = field(default_factory=dict)
    accepted: Sequence[str] = ()

    @property
    def measured(self) -> list[str]:
        """The ids of the cells that ran for groups that are the same."""
        return list(dict.fromkeys(cell_id for cell_id, _ in self.cells))


class Way(Protocol):
    """How a cell of the sample shows that its number is the same.

    varies    whether a cell that runs again, in a later turn, runs more of the code.
    compares_images  whether it compares the images of all cells.
    accepted  what of the old code did not run, and was accepted.
    """

    name: str
    varies: bool
    compares_images: bool
    accepted: Sequence[str]

    def possible(self, groups: Sequence[Group], outcome: Outcome) -> list[Group]:
        """The groups to try, some of them joined; why others are not goes to `outcome`."""

    def watch(self, changed: frozenset[str]) -> dict[str, str]:
        """Note from now on what runs of these definitions; those of which nothing can be shown → why."""

    def run(self, records: Sequence[Record], turn: int) -> Iterator[Shown | CellProgress]:
        """Run cells of the sample; in turns after the first, some of the change did not run yet."""

    def missing(self) -> dict[str, str]:
        """The definitions that did not run as a whole in cells that agree → the first thing that did not."""

    def check_code(self) -> None:
        """Raises UserError where code changed since the start."""


def groups_of(store: Store, attested: bool = False) -> list[Group]:
    """The stale cells of a folder that have a number, or those that are attested, in groups."""
    found: dict[Key, list[Record]] = defaultdict(list)
    codes: dict[Key, Code] = {}
    for record in store.latest().values():
        if record.result.status != "ok" or not (record.attested if attested else record.changes):
            continue
        now = code_of(record.result.cell) if record.definitions else NO_CODE
        key = record.source, now.source, stratum_of(record.data["cell"]), machine_of(record.environment)
        found[key].append(record)
        codes[key] = now
    return [
        Group(
            key,
            frozenset(texts_of(codes[key].definitions, records[0].definitions)),
            tuple(sorted(records, key=lambda record: (record.result.seconds, record.cell_id))),
        )
        for key, records in sorted(found.items())
    ]


def names_in(groups: Sequence[Group]) -> dict[str, str]:
    """The name of each cell of these groups by its id; no two are called alike."""
    return names_of_cells(record.result.cell for group in groups for record in group.records)


def texts_of(now: Mapping[str, str], then: Mapping[str, str]) -> Iterator[str]:
    """The definitions of `now` that had another text in `then`, or are new with a text that nothing had."""
    before = set(then.values())
    return (
        name for name, text in now.items() if (then[name] != text if name in then else text not in before)
    )


def code_changed() -> UserError:
    return UserError("the code changed while it was attested; nothing is stored. Run the command again.")
