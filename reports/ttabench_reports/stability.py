"""Stability over a long stream: how often, how far and since when a method is below Source."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ttabench_reports.frames import TABLE
from ttabench_reports.over_stream import Windows
from ttabench_reports.shape import Row, Table

COLLAPSED = 0.5
"""A window is collapsed if the accuracy is less than this share of Source's in the same window."""


@dataclass(frozen=True)
class Stability:
    """The figures of one method on one long stream, from its windows and those of Source.

    below     share of the windows in which the method is below Source, percent.
    tail      accuracy in the last tenth of the windows minus Source's there, points.
    collapse  images before the first collapsed window; NaN if there is none.
    """

    row: Row
    column: str
    below: float
    tail: float
    collapse: float


def stabilities(table: Table) -> Iterator[Stability]:
    """Of every method of a table whose windows are also there for Source."""
    for row in table.rows:
        source = row.baseline
        if row.kind != "method" or source is None:
            continue
        for column, own in row.windows.items():
            if (theirs := source.windows.get(column)) is not None and _alike(own, theirs):
                yield _stability(row, column, own, theirs)


def _alike(own: Windows, theirs: Windows) -> bool:
    return own.length == theirs.length and len(own.accuracy) == len(theirs.accuracy)


def _stability(row: Row, column: str, own: Windows, theirs: Windows) -> Stability:
    last = -(-len(own.accuracy) // 10)
    sizes = _sizes(own, int(row.about["n_images"]))[-last:]
    tail = np.average((own.accuracy - theirs.accuracy)[-last:], weights=sizes)
    collapsed = np.flatnonzero(own.accuracy < COLLAPSED * theirs.accuracy)
    return Stability(
        row=row,
        column=column,
        below=100 * float((own.accuracy < theirs.accuracy).mean()),
        tail=float(tail),
        collapse=float(own.length * collapsed[0]) if len(collapsed) else math.nan,
    )


def _sizes(own: Windows, images: int) -> NDArray[np.float64]:
    """Images in each window; the last may have fewer."""
    sizes = np.full(len(own.accuracy), float(own.length))
    rest = images - own.length * (len(sizes) - 1)
    sizes[-1] = rest if 0 < rest <= own.length else own.length
    return sizes


FIGURES = ("accuracy", "source", "below_source", "last_tenth_minus_source", "first_collapse")


def stability_frame(tables: Sequence[Table]) -> pd.DataFrame:
    """One line per method and long stream; see :class:`Stability`."""
    lines = [
        {
            **{name: table.key[name] for name in TABLE if name != "fingerprint"},
            "arch": one.row.arch, "method": one.row.method,
            "accuracy": one.row.value(one.column),
            "source": one.row.baseline.value(one.column) if one.row.baseline else math.nan,
            "below_source": one.below, "last_tenth_minus_source": one.tail,
            "first_collapse": one.collapse,
        }
        for table in tables
        for one in stabilities(table)
    ]  # fmt: skip
    columns = [*(name for name in TABLE if name != "fingerprint"), "arch", "method", *FIGURES]
    return pd.DataFrame(lines, columns=columns)


def curve_frame(tables: Sequence[Table]) -> pd.DataFrame:
    """The accuracy of every method and of Source in each window, mean over the seeds; one line per window.

    ``image`` is the number of images before the window.
    """
    keys = [name for name in TABLE if name != "fingerprint"]
    lines = [
        {
            **{name: table.key[name] for name in keys}, "arch": row.arch, "method": row.method,
            "window": number, "image": number * own.length, "length": own.length, "accuracy": float(value),
        }
        for table in tables
        for row in table.rows
        if row.measured
        for own in row.windows.values()
        for number, value in enumerate(own.accuracy)
    ]  # fmt: skip
    return pd.DataFrame(lines, columns=[*keys, "arch", "method", "window", "image", "length", "accuracy"])
