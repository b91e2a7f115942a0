"""Sweeps and their results as tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttabench.errors import unknown

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load_results", "run_sweep"]


def load_results(folder: Path | str) -> pd.DataFrame:
    """The cells of a results folder, one row each; accuracies in percent. Raises UserError."""
    from ttabench.store import load_frame

    return load_frame(folder)


def run_sweep(
    methods: Sequence[str] | str = ("quantile", "tent"),
    archs: Sequence[str] | str = ("resnet18", "cct"),
    *,
    out: Path | str = "results",
    extend: bool = False,
    **options: Any,
) -> pd.DataFrame:
    """What ``ttabench sweep`` does; returns the cells of the sweep as a table.

    options   those of the command, with its defaults: datasets, corruptions, severities, seeds, mode, reset,
              order, limit, workers … Lists may be given as lists. ``set`` takes method.key=value texts.

    Progress is shown on stderr. Run again, it goes on where it stopped. Raises UserError for a mistake; a
    cell that fails is a row whose status is ``failed``, with its reason.
    """
    from ttabench.cli._sweep import run_cells
    from ttabench.sweep.options import DEFAULTS, make_grid

    chosen: dict[str, Any] = {**DEFAULTS, "methods": _text(methods), "archs": _text(archs), "out": str(out)}
    for name, value in options.items():
        if name not in DEFAULTS:
            raise unknown("option of run_sweep", name, DEFAULTS)
        if name == "set":
            chosen[name] = [value] if isinstance(value, str) else list(value)
        else:
            chosen[name] = _text(value)
    finished = run_cells(make_grid(chosen), chosen, extend=extend)
    cells = finished.store.frame()
    return cells[cells["cell_id"].isin(finished.cells)].reset_index(drop=True)


def _text(value: Any) -> str:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return str(value)
    return ",".join(map(str, value))
