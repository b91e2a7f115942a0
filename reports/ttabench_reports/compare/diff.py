"""How two sets of results were made differently: the protocol cards of their matched cells."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from ttabench.errors import counted
from ttabench_reports.compare.card_differences import Difference, differences
from ttabench_reports.compare.matching import card_pairs, in_other_protocols, match
from ttabench_reports.compare.sides import Side, side
from ttabench_reports.compare.terminal import first_lines
from ttabench_reports.compare.unlike import other_orders, other_settings

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Diff:
    """differences of `matched` pairs of cells; how many cells only one of the two has.

    other_settings  sentences on cells that both have, but with other settings.
    other_orders    sentences on `matched` cells of continual runs with other orders of corruptions.
    """

    names: tuple[str, str]
    differences: tuple[Difference, ...]
    matched: int
    only_first: int
    only_second: int
    other_settings: tuple[str, ...] = ()
    other_orders: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether anything differs, the set of cells included."""
        return bool(self.differences or self.other_orders or self.only_first or self.only_second)


def diff(first: pd.DataFrame | Path | str | Side, second: pd.DataFrame | Path | str | Side) -> Diff:
    """Compare the cards of two results folders or ``cells.csv`` files. Raises UserError for anything else.

    A cell is matched with the one of the same protocol, else with one of another: :func:`in_other_protocols`.
    """
    one, other = side(first, "first results"), side(second, "second results")
    both, _ = match(one, other)
    moved = in_other_protocols(both).assign(_merge="both")
    pairs = chain(card_pairs(both, one, other), card_pairs(moved, one, other))
    names = (one.name, other.name)
    return Diff(
        names=names,
        differences=tuple(differences(pairs, whole=one.whole and other.whole)),
        matched=int((both["_merge"] == "both").sum()) + len(moved),
        only_first=int((both["_merge"] == "left_only").sum()) - len(moved),
        only_second=int((both["_merge"] == "right_only").sum()) - len(moved),
        other_settings=tuple(other_settings(both, names)),
        other_orders=tuple(other_orders(moved)),
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
    if difference.matched and not (difference.differences or difference.other_orders):
        summary += f"; nothing recorded differs{' in those of both' if difference.differs else ''}"
    lines = first_lines(difference.differences, len(difference.differences), limit)
    sentences = (*difference.other_orders, *difference.other_settings)
    return Group(*lines, *map(Text, sentences), Text(f"{summary}."))
