"""Sweeps and their results as tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttabench.errors import UserError, unknown

if TYPE_CHECKING:
    import pandas as pd

NAMED = {
    "archs": "a network of your own has the name package.module:callable",
    "methods": "a method of your own has the name of its entry point",
    "datasets": "images of your own have the path of their -C folder, or the name from data generate",
}


def load_results(folder: Path | str) -> pd.DataFrame:
    """The cells of a results folder, one row each; accuracies in percent. Raises UserError."""
    from ttabench.store import load_frame

    if not isinstance(folder, Path | str):
        raise UserError(f"load_results got a {type(folder).__name__}; expected the path of a results folder.")
    return load_frame(folder)


def run_sweep(
    methods: Sequence[str] | str | None = None,
    archs: Sequence[str] | str | None = None,
    *,
    config: Path | str | None = None,
    out: Path | str | None = None,
    extend: bool = False,
    **options: Any,
) -> pd.DataFrame:
    """Run a sweep as ``ttabench sweep`` does, and return its cells as a table.

    methods   names, also with settings such as ``tent[lr=0.01]``. Default: those of the file, or quantile and
              TENT.
    archs     names. Default: those of the file, or ``resnet18`` and ``cct``.
    config    a sweep file, as for ``--config``. Arguments of this function replace values of the file.
    out       the results folder. Default: that of the file, or ``results``.
    extend    add this sweep to the results folder of another one.
    options   those that a sweep file can have, with their defaults: datasets, corruptions, severities, seeds,
              mode, reset, order, limit, workers … Lists may be given as lists. ``set`` takes
              ``{"tent": {"lr": [0.01, 0.001]}}``, or texts such as ``["tent.lr=0.01,0.001"]``.

    Worker processes import the script that calls this function, so the call must stand under
    ``if __name__ == "__main__":``, unless ``workers=0``.

    Settings of torch that your program has changed, such as the precision of matrix products, have no effect.
    Progress, and which values of the file are replaced, are shown on stderr. If a sweep stopped, the same
    call goes on. Raises UserError for a mistake. A cell that fails is a row with the status ``failed`` and
    its reason.
    """
    from multiprocessing import current_process

    if getattr(current_process(), "_inheriting", False):  # a worker that starts runs the script once more
        raise UserError(
            "run_sweep was called while a worker process started; "
            'put it under `if __name__ == "__main__":`, or pass workers=0.'
        )
    from ttabench.measure.torch_defaults import default_kernels, default_modes
    from ttabench.sweep.conduct import run_cells
    from ttabench.sweep.option_table import DEFAULTS
    from ttabench.sweep.options_to_grid import make_grid
    from ttabench.sweep.sweep_file import overridden, read_sweep_file, setting_texts, with_flags

    for name, path in (("config", config), ("out", out)):
        if path is not None and not isinstance(path, str | PathLike):
            raise UserError(f"{name} is of type {type(path).__name__}; expected a path.")
    given: dict[str, Any] = {}
    for name, value in {"methods": methods, "archs": archs, "out": out, **options}.items():
        if name not in DEFAULTS:
            raise unknown("option of run_sweep", name, DEFAULTS)
        if value is None:
            continue
        if name == "set":
            given[name] = setting_texts(value)
        else:
            given[name] = _text(name, value)
    in_file = {} if config is None else read_sweep_file(Path(config))
    for sentence in overridden(in_file, given):
        print(f"ttabench: {sentence}", file=sys.stderr)
    chosen = with_flags(in_file, given)
    with default_modes(), default_kernels():
        finished = run_cells(make_grid(chosen), chosen, extend=extend)
    if finished.warning:
        print(finished.warning, file=sys.stderr)
    cells = finished.store.frame()
    return cells[cells["cell_id"].isin(finished.cells)].reset_index(drop=True)


def _text(name: str, value: Any) -> str:
    """The value of an option as the command line has it.

    Raises UserError for objects in place of the names of methods, architectures and datasets.
    """
    values = [value] if isinstance(value, str) or not isinstance(value, Sequence) else value
    for one in values if name in NAMED else ():
        if not isinstance(one, str | PathLike):
            what = f"the class {one.__name__}" if isinstance(one, type) else f"a {type(one).__name__}"
            raise UserError(f"{name} holds {what}; expected names; {NAMED[name]}.")
    return ",".join(map(str, values))
