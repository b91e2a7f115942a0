"""Stability over a long stream: how often, how far and since when a method is below Source."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ttabench_reports.cells.frames import TABLE
from ttabench_reports.cells.over_stream import Windows
from ttabench_reports.evidence.flat_rows import notes
from ttabench_reports.evidence.given import given
from ttabench_reports.tables.table import Row, Table

TENTH = 10
"""Windows that a stream needs to have a last tenth: of fewer, one window is more than that."""
COLLAPSED = 0.5
"""A window is collapsed if the accuracy is less than this share of Source's in the same window."""


@dataclass(frozen=True)
class Stability:
    """The figures of one method on one long stream, from its windows and those of Source, seed by seed.

    below      share of the windows, by their images, in which the method is below Source, percent; mean over
               the seeds.
    tail       accuracy in the last tenth of the windows minus Source's there, points; mean over the seeds;
               NaN with fewer than :data:`TENTH` windows.
    collapse   test images before the first collapsed window of any seed; NaN if there is none. The last may
               have a single image: with less than half of the others it does not count here.
    collapsed  the number of seeds with such a window, of `seeds`.
    """

    row: Row
    column: str
    below: float
    tail: float
    collapse: float
    collapsed: int
    seeds: int

    @property
    def of_seeds(self) -> str:
        """`` (1 of 3 seeds)``: those that collapse; "" where there is one seed, or no collapse."""
        return f" ({self.collapsed} of {self.seeds} seeds)" if self.collapsed and self.seeds > 1 else ""


def stabilities(table: Table) -> Iterator[Stability]:
    """Of every method of a table whose windows are also there for Source."""
    for row in table.rows:
        source = row.baseline
        if row.kind != "method" or source is None:
            continue
        for column, windows in row.windows.items():
            beside = source.windows.get(column)
            if beside is not None and _comparable(windows, beside):
                yield _stability(row, column, windows, beside)


def _comparable(windows: Windows, source_windows: Windows) -> bool:
    return windows.length == source_windows.length and len(windows.accuracy) == len(source_windows.accuracy)


def _stability(row: Row, column: str, windows: Windows, source_windows: Windows) -> Stability:
    """A mean over the seeds would hide the collapse of one. Where Source lacks a seed, its mean stands in."""
    ours = np.stack(list(windows.by_seed.values()))  # (seeds, windows)
    others = [source_windows.by_seed.get(seed, source_windows.accuracy) for seed in windows.by_seed]
    source = np.stack(others)
    below = (ours < source).mean(axis=0)
    last = -(-ours.shape[1] // 10)
    tail = np.average((ours - source)[:, -last:].mean(axis=0), weights=windows.sizes[-last:])
    enough = 2 * windows.sizes >= windows.length
    firsts = [np.flatnonzero(one & enough) for one in ours < COLLAPSED * source]
    collapses = [windows.length * first[0] for first in firsts if len(first)]
    return Stability(
        row=row,
        column=column,
        below=100 * float(np.average(below, weights=windows.sizes)),
        tail=float(tail) if ours.shape[1] >= TENTH else math.nan,
        collapse=float(min(collapses, default=math.nan)),
        collapsed=len(collapses),
        seeds=len(ours),
    )


SHOWN = tuple(name for name in TABLE if name not in ("fingerprint", "foreign"))
GIVEN = ("mode", "batch_size", "source_data", "epochs_seen", "settings", "settings_chosen")
FIGURES = (
    "accuracy", "source", "below_source", "last_tenth_minus_source", "first_collapse", "collapsed_seeds",
    "seeds",
)  # fmt: skip


def stability_frame(tables: Sequence[Table]) -> pd.DataFrame:
    """One line per method and long stream; see :class:`Stability`."""
    lines = [
        {
            "table": table.title, **{name: table.key[name] for name in SHOWN},
            "arch": one.row.arch, "method": one.row.method,
            "accuracy": one.row.value(one.column),
            "source": one.row.baseline.value(one.column) if one.row.baseline else math.nan,
            "below_source": one.below, "last_tenth_minus_source": one.tail,
            "first_collapse": one.collapse, "collapsed_seeds": one.collapsed, "seeds": one.seeds,
            **_given(one.row), "notes": notes(one.row),
        }
        for table in tables
        for one in stabilities(table)
    ]  # fmt: skip
    return pd.DataFrame(lines, columns=["table", *SHOWN, "arch", "method", *FIGURES, *GIVEN, "notes"])


def _given(row: Row) -> dict[str, Any]:
    """What a method was given, for a row that was measured."""
    return {"mode": row.about["mode"], "batch_size": row.about["batch_size"], **given(row.about).columns()}


def curve_frame(tables: Sequence[Table]) -> pd.DataFrame:
    """The accuracy of every method and of Source in each window, mean over the seeds; one line per window.

    ``image`` is the number of images before the window.
    """
    lines = [
        {
            "table": table.title, **{name: table.key[name] for name in SHOWN},
            "arch": row.arch, "method": row.method,
            "window": number, "image": number * windows.length, "length": int(size),
            "accuracy": float(value), **_given(row),
        }
        for table in tables
        for row in table.measured_rows
        for windows in row.windows.values()
        for number, (size, value) in enumerate(zip(windows.sizes, windows.accuracy, strict=True))
    ]  # fmt: skip
    return pd.DataFrame(lines)
