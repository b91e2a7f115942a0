"""Which stored cells are measured again: drawn by chance, and not by what a record says of itself."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ttabench.cell import Cell
from ttabench.errors import UserError, counted
from ttabench.store import Record, Store

Row = tuple[str, str, str, tuple[tuple[str, Any], ...]]
"""Label, mode, method and settings. The label alone is a text of the folder."""


@dataclass(frozen=True)
class Drawn:
    """The cells that are measured again, and from how many they were drawn.

    records  the drawn ones.
    methods  stored cells with a number by method, settings and mode.
    """

    records: tuple[Record, ...]
    methods: Mapping[Row, int]

    @property
    def of(self) -> int:
        """Cells of the folder with a number."""
        return sum(self.methods.values())

    def unmeasured(self, measured: Iterable[Cell]) -> tuple[str, ...]:
        """The methods that none of these cells belongs to."""
        seen = {row_of(cell) for cell in measured}
        names = [_name(row) for row in self.methods if row not in seen]
        return tuple(sorted(names))

    def left_out(self) -> str:
        """How many cells were not drawn, as a sentence; "" for none."""
        rest = self.of - len(self.records)
        were = "was" if rest == 1 else "were"
        return f"{counted(rest, 'cell')} of {self.of:,} {were} not drawn." if rest else ""


def draw(store: Store, sample: int, seed: int, every_method: bool = False) -> Drawn:
    """`sample` records with a number, drawn at random; all where there are fewer.

    Methods take turns: the second cell of one is drawn when all have a first one. Attested cells come first.

    every_method   at least one cell of each method, also where these are more than `sample`.

    Raises UserError where there is nothing to draw from.
    """
    chance = random.Random(seed)
    by_method: dict[Row, list[Record]] = {}
    held = sorted(store.latest().values(), key=lambda record: record.result.cell.cell_id)
    for record in held:
        if record.result.status == "ok":
            by_method.setdefault(row_of(record.result.cell), []).append(record)
    if not by_method:
        raise UserError(f"{store.root} has no cell that has a number; there is nothing to verify.")
    for records in by_method.values():
        chance.shuffle(records)
        records.sort(key=lambda record: not record.attested)
    turns = list(by_method.values())
    chance.shuffle(turns)
    turns.sort(key=lambda records: not records[0].attested)
    rounds = range(max(map(len, turns)))
    in_turn = [records[at] for at in rounds for records in turns if at < len(records)]
    count = max(sample, len(turns)) if every_method else sample
    return Drawn(tuple(in_turn[:count]), {row: len(records) for row, records in by_method.items()})


def row_of(cell: Cell) -> Row:
    """What a cell shares with the others of its method."""
    return cell.label, cell.protocol.mode, cell.method, cell.config


def _name(row: Row) -> str:
    label, mode, *_ = row
    return f"{label} · offline" if mode == "offline" else label
