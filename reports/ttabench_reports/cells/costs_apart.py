"""Times and memory that were measured apart from the accuracies, when nothing else ran on the machine.

A sweep with several workers, or beside other work, has the right accuracies and passes; its times are
those of a busy machine. A short sweep with one worker on quiet cores has the right times.
"""

from __future__ import annotations

import pandas as pd

from ttabench.errors import UserError

TIMES = ("compute_ratio", "ms_per_image", "host_mb", "device_mb")
SAME = ("dataset", "arch", "base", "config", "mode", "epochs", "batch_size", "precision", "device", "stream",
        "pace", "pace_ratio", "held_out", "reset")  # fmt: skip
"""What cells share whose times can stand for each other: all that a time depends on but the corruption.

At a pace a method leaves batches out, on a stream images are made, held-out images are not adapted to, and a
reset during a corruption takes time.
"""
APART = "costs_apart"
"""In the `attrs` of a table of cells: on which processors its times were measured apart, and what of it."""
OLD_CODE = "some of them with other code than is installed"


def per_gpu(cells: pd.DataFrame) -> float:
    """How many workers shared a GPU at most, as far as the cells say it; else 0."""
    known = cells.get("per_gpu", pd.Series(dtype=float)).dropna()
    return float(known.max()) if len(known) else 0.0


def recomputed(cells: pd.DataFrame) -> bool:
    """Whether the network of some cells computed its activations again in the backward pass."""
    return bool(cells.get("recomputed", pd.Series(dtype=float)).notna().any())


def with_costs(cells: pd.DataFrame, costs: pd.DataFrame) -> pd.DataFrame:
    """`cells` with times and memory of `costs`: the medians over the cells there with the same :data:`SAME`.

    Both are as :func:`load.read` gives them.

    A cell that has no such cells in `costs` has no times: two measurements never stand in one column.
    Raises UserError where `costs` has none for any cell, and where workers shared a GPU there or activations
    were computed again.
    """
    measured = costs[costs["accuracy"].notna()]
    if (shared := per_gpu(measured)) > 1:
        raise UserError(
            f"--costs was measured with {shared:g} workers on a GPU, whose times are longer; measure it with "
            "--workers 1, and without --per-gpu."
        )
    if recomputed(measured):
        raise UserError(
            "--costs was measured with --activations recompute, whose times are longer; measure it without."
        )
    medians = measured.assign(reset=_reset(measured)).groupby(list(SAME), dropna=False)[list(TIMES)].median()
    same = cells[list(SAME)].assign(reset=_reset(cells))
    found = same.merge(medians, how="left", left_on=list(SAME), right_index=True)
    if found["compute_ratio"].isna().all():
        raise UserError(
            "--costs has no cell of the same method, settings, network, data, mode, batch size, device, "
            "stream, reset and pace as a cell of the results; measure the costs with the options of their "
            "sweep and --workers 1, and at a pace with its --pace-ratio."
        )
    changed = cells.assign(**{name: found[name].to_numpy() for name in TIMES})
    where = ", ".join(sorted({*measured["processor"]} - {""}))
    changed.attrs = {**cells.attrs, APART: f"{where}, {OLD_CODE}" if measured["stale"].any() else where}
    return changed


def _reset(cells: pd.DataFrame) -> pd.Series[str]:
    """The reset during a corruption; one before it takes no time of its images."""
    return cells["reset"].replace("continual", "per_corruption")
