"""``ttabench report``: tables, LaTeX and plots of a results folder."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

FORMATS = "csv,latex,plots,ablation"


def register(app: typer.Typer) -> None:
    app.command()(report)


def report(
    results: Annotated[Path, Argument(metavar="DIR", help="A results folder.")],
    format_: Annotated[
        str | None,
        Option("--format", help="csv, latex, plots, ablation, or several. [each that the results allow]"),
    ] = None,
    to: Annotated[Path | None, Option(help="Where to write. [DIR/report]")] = None,
) -> None:
    """Write cells.csv, and the tables and plots made from it.

    Warns of source classifiers whose clean accuracy was far from what they are said to have.
    """
    from ttabench.errors import NothingToReport, UserError
    from ttabench.method_settings import split_list
    from ttabench.registry import report as find
    from ttabench.registry import view
    from ttabench.store import load_frame

    writers = {name: find(name) for name in split_list(format_ or FORMATS)}
    cells = load_frame(results)
    if cells.empty:
        raise UserError(f"{results} holds no results yet; run its sweep first.")
    odd = cells.loc[cells["warning"] != "", ["arch", "dataset", "warning"]].drop_duplicates()
    for arch, dataset, text in odd.itertuples(index=False):
        warnings.warn(f"{arch} on {dataset}: {text}", stacklevel=1)
    folder = to or results / "report"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = [view("cells")(cells, folder / "cells.csv")]
        for write in writers.values():
            try:
                written += write(cells, folder)
            except NothingToReport:
                if format_:
                    raise
    except OSError as problem:
        raise UserError(
            f"{folder} cannot be written ({problem.strerror}); choose another with --to."
        ) from None
    for path in dict.fromkeys(written):
        print(path)
