"""``ttabench diff``: how two results folders were made differently."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option


def diff(
    first: Annotated[Path, Argument(metavar="A", help="A results folder or a cells.csv.")],
    second: Annotated[Path, Argument(metavar="B", help="A results folder or a cells.csv.")],
    json: Annotated[bool, Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Print how two sets of results were measured differently.

    It compares settings, protocol, versions, source of the method, data and weights. Cells are matched by
    method, architecture, dataset, corruption, severity and seed. Exit code 1 if anything differs.
    """
    from ttabench.cli._table import REPORT, screen
    from ttabench.registry import view

    comparing = view("compare")
    differences = comparing.diff(first, second)
    if json:
        print(comparing.diff_json(differences))
    else:
        screen(REPORT).print(comparing.render_diff(differences))
    if differences.differs:
        raise typer.Exit(1)
