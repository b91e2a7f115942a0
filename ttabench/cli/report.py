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
    results: Annotated[Path | None, Argument(metavar="[DIR]", help="A results folder.")] = None,
    format_: Annotated[
        str | None,
        Option(
            "--format",
            help="csv, latex, plots, ablation, published, or several. [each that the results allow]",
        ),
    ] = None,
    to: Annotated[Path | None, Option(help="Where to write. [DIR/report]")] = None,
    published: Annotated[
        bool, Option("--published", help="Put published numbers of the same setting beside ours.")
    ] = False,
    audit_published: Annotated[
        bool, Option("--audit-published", help="List the misprints of the published numbers; needs no DIR.")
    ] = False,
) -> None:
    """Write cells.csv, and the tables and plots made from it.

    Warns of source classifiers whose clean accuracy was far from what they are said to have.
    """
    from ttabench.errors import NothingToReport, UserError
    from ttabench.method_settings import split_list
    from ttabench.registry import report as find
    from ttabench.registry import view
    from ttabench.store import load_frame

    if audit_published:
        from rich.console import Console

        Console(highlight=False, soft_wrap=True).print(view("published").render_audit())
        if results is None:
            return
    if results is None:
        raise UserError("which results? Name a results folder: ttabench report DIR.")
    names = [*split_list(format_ or FORMATS), *(["published"] if published else [])]
    writers = {name: find(name) for name in names}
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
