"""``ttabench compare``: a gate on accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option


def register(app: typer.Typer) -> None:
    app.command()(compare)


def compare(
    baseline: Annotated[Path, Argument(help="A results folder or a cells.csv.")],
    candidate: Annotated[Path, Argument(help="A results folder or a cells.csv.")],
    max_drop: Annotated[float, Option(help="How many points a cell or a mean may fall.", min=0.0)] = 1.0,
) -> None:
    """Print what moved; exit code 1 if a cell or a mean fell by more than the bound or is missing."""
    from rich.console import Console

    from ttabench.registry import view

    comparing = view("compare")
    outcome = comparing.compare(baseline, candidate, max_drop=max_drop)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120)
    console.print(comparing.render(outcome))
    if outcome.failed:
        raise typer.Exit(1)
