"""How two sets of results were made differently: the protocol cards of their matched cells."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from ttabench.errors import counted
from ttabench_reports.cells.frames import PROTOCOL
from ttabench_reports.compare.cards import Difference, differences
from ttabench_reports.compare.sides import Side, side
from ttabench_reports.compare.terminal import first_lines
from ttabench_reports.compare.verdicts import KEY, card_pairs, match

if TYPE_CHECKING:
    from rich.console import RenderableType

SAME_CELL = tuple(name for name in KEY if name not in (*PROTOCOL, "history"))


@dataclass(frozen=True)
class Diff:
    """differences of `matched` pairs of cells; how many cells only one of the two has."""

    names: tuple[str, str]
    differences: tuple[Difference, ...]
    matched: int
    only_first: int
    only_second: int

    @property
    def differs(self) -> bool:
        """Whether anything differs, the set of cells included."""
        return bool(self.differences or self.only_first or self.only_second)


def diff(first: pd.DataFrame | Path | str | Side, second: pd.DataFrame | Path | str | Side) -> Diff:
    """Compare the cards of two results folders or ``cells.csv`` files. Raises UserError for anything else.

    A cell is matched with the one of the same protocol, else with one of another.
    """
    one, other = side(first, "first results"), side(second, "second results")
    both, _ = match(one, other)
    alone = {word: both[both["_merge"] == word] for word in ("left_only", "right_only")}
    moved = alone["left_only"][[*SAME_CELL, "cell_id_before"]].merge(
        alone["right_only"][[*SAME_CELL, "cell_id_after"]], on=list(SAME_CELL)
    )
    moved = moved.drop_duplicates("cell_id_before").drop_duplicates("cell_id_after").assign(_merge="both")

    pairs = chain(card_pairs(both, one, other), card_pairs(moved, one, other))
    return Diff(
        names=(one.name, other.name),
        differences=tuple(differences(pairs, whole=one.whole and other.whole)),
        matched=int((both["_merge"] == "both").sum()) + len(moved),
        only_first=len(alone["left_only"]) - len(moved),
        only_second=len(alone["right_only"]) - len(moved),
    )


def diff_json(difference: Diff) -> str:
    """The whole difference as JSON."""
    return json.dumps(asdict(difference), indent=1, ensure_ascii=False)


def render_diff(difference: Diff, limit: int = 50) -> RenderableType:
    """For people: a line per difference, then how many cells were compared."""
    from rich.console import Group
    from rich.text import Text

    summary = f"{counted(difference.matched, 'cell')} in both"
    for name, count in zip(difference.names, (difference.only_first, difference.only_second), strict=True):
        summary += f"; {count} only in {name}" if count else ""
    if not difference.differences:
        summary += "; nothing recorded differs" if difference.matched else ""
    lines = first_lines(difference.differences, len(difference.differences), limit)
    return Group(*lines, Text(f"{summary}."))
