"""The cells of two sets of results, matched one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from ttabench_reports.cells import frames
from ttabench_reports.cells.frames import PROTOCOL
from ttabench_reports.compare.sides import Side
from ttabench_reports.words import naming

# The compute ratio of a pace is measured anew for each folder.
OF_PROTOCOL = tuple(name for name in PROTOCOL if name != "pace_ratio")
SAME_CELL = ("method", "arch", "dataset", "corruption", "severity", "seed")
"""What a cell keeps under another protocol."""
WEIGHTS = "weights"
"""The column that has the checkpoint, where both sides have several of a network on a dataset; else ""."""
KEY = (*SAME_CELL, *OF_PROTOCOL, "history", WEIGHTS)
_REAL_KEYS = ("held_out", "pace")
TWINS_DIFFER_IN = [*KEY, "config", "checkpoint", "fingerprint", "foreign"]
SHOWN = [
    *KEY, "accuracy", "status", "reason", "fingerprint", "foreign", "checkpoint", "config", "n_images",
    "cell_id", "pace_ratio",
]  # fmt: skip


def match(before: Side, after: Side) -> tuple[pd.DataFrame, tuple[int, int]]:
    """The cells of both sides with the same :data:`KEY` side by side; how many twins each side had.

    Of twins, the latest counts whose data, weights and settings the other side has too; else the latest.
    Cells of several weights that both sides have are no twins: each is matched with that of its own weights.
    """
    left, right = _with_weights(*(frames.with_hashes(one.cells) for one in (before, after)))
    left, right = _best(left), _best(right)
    left = _last(left, right)
    right = _last(right, left)
    left_twins, right_twins = len(before.cells) - len(left), len(after.cells) - len(right)
    left, right = left[SHOWN], right[SHOWN]
    both = left.merge(right, how="outer", on=list(KEY), suffixes=("_before", "_after"), indicator=True)
    both["change"] = both["accuracy_after"] - both["accuracy_before"]
    order = list(dict.fromkeys(["dataset", "severity", "arch", "method", "corruption", *KEY]))
    both = both.sort_values(order, key=naming.in_order, ignore_index=True)
    return both, (left_twins, right_twins)


def in_other_protocols(both: pd.DataFrame) -> pd.DataFrame:
    """Cells that only one side has, paired one to one with those of the other side under another protocol.

    The pairs that differ in the fewest columns of the protocol come first, so that online stays with online.
    The rest of :data:`KEY` and the ids have the suffixes ``_before`` and ``_after``.
    """
    may_differ = KEY[len(SAME_CELL) :]
    sides = [
        both.loc[both["_merge"] == word, [*KEY, cell_id]]
        for word, cell_id in (("left_only", "cell_id_before"), ("right_only", "cell_id_after"))
    ]
    pairs = sides[0].merge(sides[1], on=list(SAME_CELL), suffixes=("_before", "_after"))
    unlike = sum((pairs[f"{name}_before"] != pairs[f"{name}_after"]).astype(int) for name in may_differ)
    nearest = pairs.assign(_unlike=unlike).sort_values("_unlike", kind="stable")
    partner: dict[str, str] = {}
    taken: set[str] = set()
    for one, other in zip(nearest["cell_id_before"], nearest["cell_id_after"], strict=True):
        if one not in partner and other not in taken:
            partner[one] = other
            taken.add(other)
    return pairs[pairs["cell_id_before"].map(partner) == pairs["cell_id_after"]]


def card_pairs(both: pd.DataFrame, before: Side, after: Side) -> Iterator[Any]:
    """(method, architecture, data set) and the two cards of each cell that both sides have."""
    paired = both[both["_merge"] == "both"]
    places = zip(paired["method"], paired["arch"], paired["dataset"], strict=True)
    ids = zip(paired["cell_id_before"], paired["cell_id_after"], strict=True)
    for place, (one, other) in zip(places, ids, strict=True):
        yield place, before.card(one), after.card(other)


def _with_weights(*sides: pd.DataFrame) -> list[pd.DataFrame]:
    """The cells of both sides with :data:`WEIGHTS`."""
    network = ["dataset", "arch"]
    left, right = (side.loc[side["checkpoint"] != "", [*network, "checkpoint"]] for side in sides)
    shared = left.drop_duplicates().merge(right.drop_duplicates()).groupby(network).size()
    several = set(shared.index[shared > 1])
    return [
        side.assign(**{WEIGHTS: [
            checkpoint if (dataset, arch) in several else ""
            for dataset, arch, checkpoint in side[[*network, "checkpoint"]].itertuples(index=False, name=None)
        ]})
        for side in sides
    ]  # fmt: skip


def _best(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per key, data, weights and settings: the latest.

    A number stands before a later failure with the same settings, weights and data, as at another compute
    ratio; but not before one with others: the candidate has lost that number.
    """
    frame = frame.round(dict.fromkeys(_REAL_KEYS, 4))  # as older cells.csv have them
    return frames.latest_last(frame).drop_duplicates(TWINS_DIFFER_IN, keep="last")


def _last(frame: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """One row per key: the latest whose data, weights and settings the other side has too; else the latest.

    A latest one without a number always counts: it is a loss.
    """
    theirs = other[TWINS_DIFFER_IN].drop_duplicates().assign(_shared=True)
    marked = frame.merge(theirs, how="left", on=TWINS_DIFFER_IN).sort_values("written", kind="stable")
    lost = marked["accuracy"].isna() & ~marked.duplicated(list(KEY), keep="last")
    marked["_first"] = marked["_shared"].notna() | lost
    marked["_lost"] = lost
    return marked.sort_values(["_first", "_lost"], kind="stable").drop_duplicates(list(KEY), keep="last")
