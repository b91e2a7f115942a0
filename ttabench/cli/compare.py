"""``ttabench compare``: a gate on accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option


def register(app: typer.Typer) -> None:
    app.command()(compare)


def compare(
    baseline: Annotated[Path, Argument(metavar="BASELINE", help="A results folder or a cells.csv.")],
    candidate: Annotated[Path, Argument(metavar="CANDIDATE", help="A results folder or a cells.csv.")],
    max_drop: Annotated[float, Option(metavar="POINTS", help="How many points a cell may fall.")] = 1.0,
    max_mean_drop: Annotated[
        float, Option(metavar="POINTS", help="How many points a mean over corruptions and seeds may fall.")
    ] = 0.3,
    alpha: Annotated[
        float,
        Option(
            metavar="LEVEL",
            help="A fall fails only if a paired test confirms it at this level; 1 = without a test.",
        ),
    ] = 0.05,
    json: Annotated[bool, Option("--json", help="Print JSON instead of text.")] = False,
    github: Annotated[bool, Option("--github", help="Print annotations for GitHub Actions too.")] = False,
    junit: Annotated[Path | None, Option(help="Write JUnit XML to this file too.", metavar="FILE")] = None,
) -> None:
    """Print which accuracies changed, and what may be the cause.

    Exit code 1 if the accuracy of a cell or a mean fell by more than its bound, if a cell has no number any
    more, or if a cell is missing. The test of --alpha needs to know which images were right. A results folder
    stores that, a cells.csv does not: there, the bounds alone decide.
    """
    from rich.console import Console

    from ttabench.errors import UserError
    from ttabench.registry import view

    if json and github:
        raise UserError("--json and --github both print; choose one.")
    comparing = view("compare")
    outcome = comparing.compare(baseline, candidate, max_drop, max_mean_drop, alpha)
    if json:
        print(comparing.as_json(outcome))
    else:
        console = Console(highlight=False)
        if not console.is_terminal:
            console = Console(highlight=False, width=120)
        console.print(comparing.render(outcome))
    for line in comparing.github(outcome) if github else ():
        print(line)
    if junit:
        try:
            junit.write_text(comparing.junit(outcome), encoding="utf-8")
        except OSError as problem:
            raise UserError(f"{junit} cannot be written ({problem.strerror}); choose another file.") from None
    if outcome.failed:
        raise typer.Exit(1)
