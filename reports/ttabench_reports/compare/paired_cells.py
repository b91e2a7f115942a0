"""The paired tests of a comparison: over which cells, on which bitmaps."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ttabench_reports.compare.one_sided_tests import ONES, Bits, cells_fell, mean_fell
from ttabench_reports.compare.sides import Side


class PairedTests:
    """Tests on matched cells (rows of `both`, counted from 0) whose images both sides scored one by one.

    A cell is testable where the same data and number of images were scored, and both sides store which
    were right. Bitmaps are unpacked to bytes once, and only where they differ.
    """

    def __init__(self, both: pd.DataFrame, before: Side, after: Side) -> None:
        self.sizes: NDArray[np.int64] = both["n_images_before"].fillna(0).to_numpy(np.int64)
        self.seeds = both["seed"].to_numpy(np.int64)
        self.held_out = both["held_out"].to_numpy(float) > 0
        self.testable = _testable(both, before, after)
        self.row = np.full(len(both), -1)  # of a cell in the stacks of its size; -1: nothing differs
        self.stacks: dict[int, tuple[Bits, Bits]] = {}
        ids = list(zip(both["cell_id_before"], both["cell_id_after"], strict=True))
        unequal: dict[int, list[int]] = {}
        for position in np.nonzero(self.testable)[0]:
            one, other = ids[position]
            if before.bitmaps[one] != after.bitmaps[other]:
                unequal.setdefault(int(self.sizes[position]), []).append(int(position))
        for size, positions in unequal.items():
            self.row[positions] = np.arange(len(positions))
            self.stacks[size] = (
                _stack(before, [ids[position][0] for position in positions], size),
                _stack(after, [ids[position][1] for position in positions], size),
            )

    @property
    def differs(self) -> NDArray[np.bool_]:
        """(cells,): some image was scored differently. Without one no test can reject."""
        differs: NDArray[np.bool_] = self.row >= 0
        return differs

    def cells(self) -> NDArray[np.float64]:
        """p of a fall of each cell; NaN where there is no test."""
        p = np.where(self.testable, 1.0, np.nan)
        for size, (old, new) in self.stacks.items():
            p[self.differs & (self.sizes == size)] = cells_fell(old, new)
        return p

    def changed(self) -> NDArray[np.int64]:
        """(cells,): images that only one side has right; 0 where there is no test."""
        changed = np.zeros(len(self.row), np.int64)
        for size, (old, new) in self.stacks.items():
            changed[self.differs & (self.sizes == size)] = ONES[old ^ new].sum(axis=1, dtype=np.int64)
        return changed

    def mean(self, positions: NDArray[np.int64]) -> float:
        """p of a fall of the mean over these cells; NaN unless all can be tested, on the same images.

        With held-out images, each seed has others.
        """
        sizes = set(self.sizes[positions].tolist())
        apart = self.held_out[positions].any() and len(np.unique(self.seeds[positions])) > 1
        if not self.testable[positions].all() or len(sizes) != 1 or apart:
            return math.nan
        rows, size = self.row[positions], sizes.pop()
        if (rows < 0).all():
            return 1.0
        # Cells without a difference count too, as zeros.
        pairs = [_with_zeros(stack, rows) for stack in self.stacks[size]]
        return mean_fell(pairs[0], pairs[1], size, self.seeds[positions])


def _with_zeros(stack: Bits, rows: NDArray[np.int64]) -> Bits:
    chosen = stack[rows]
    chosen[rows < 0] = 0
    return chosen


def _testable(both: pd.DataFrame, before: Side, after: Side) -> NDArray[np.bool_]:
    if not before.bitmaps or not after.bitmaps:
        return np.zeros(len(both), bool)
    testable = both["_merge"] == "both"
    for column in ("n_images", "fingerprint"):
        testable &= both[f"{column}_before"] == both[f"{column}_after"]
    testable &= both["cell_id_before"].isin(before.bitmaps.keys())
    testable &= both["cell_id_after"].isin(after.bitmaps.keys())
    return testable.to_numpy()


def _stack(side: Side, ids: list[str], n_images: int) -> Bits:
    """Bitmaps (cells, bytes)."""
    packed = b"".join(side.bitmaps[cell_id] for cell_id in ids)
    return np.frombuffer(packed, np.uint8).reshape(len(ids), -(-n_images // 8))
