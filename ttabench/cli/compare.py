"""``ttabench compare``: two sets of results side by side, and a gate on accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option


def compare(
    baseline: Annotated[Path, Argument(metavar="BASELINE", help="A results folder or a cells.csv.")],
    candidate: Annotated[Path, Argument(metavar="CANDIDATE", help="A results folder or a cells.csv.")],
    gate: Annotated[
        bool,
        Option(
            "--gate",
            help="End with exit code 1 if accuracy fell, a number was lost or a cell is missing.",
            show_default="set if CI is set, or one of the options below except --json",
        ),
    ] = False,
    subset: Annotated[
        bool, Option("--subset", help="The candidate may lack cells: the gate uses those that both have.")
    ] = False,
    max_drop: Annotated[
        float | None, Option(metavar="POINTS", help="How many points a cell may fall.", show_default="1")
    ] = None,
    max_mean_drop: Annotated[
        float | None,
        Option(
            metavar="POINTS",
            help="How many points a mean over corruptions and seeds may fall.",
            show_default="0.3",
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        Option(
            metavar="LEVEL",
            help="A fall fails only if a paired test confirms it at this level; 1 = without a test.",
            show_default="0.05",
        ),
    ] = None,
    json: Annotated[bool, Option("--json", help="Print JSON instead of text.")] = False,
    github: Annotated[bool, Option("--github", help="Print annotations for GitHub Actions too.")] = False,
    junit: Annotated[Path | None, Option(help="Write JUnit XML to this file too.", metavar="FILE")] = None,
) -> None:
    """Print the accuracies of two results side by side, and what may be the cause of a change.

    With --gate, it prints which accuracies fell. Exit code 1 if the accuracy of a cell or a mean fell by more
    than its bound, if a cell has no number any more, or if a cell is missing. The variable CI, and every
    option that only a gate has, have the same effect as --gate. The test of --alpha needs to know which
    images were right. A cells.csv does not store this, so there the bounds alone decide.
    """
    import os

    from ttabench.cli._table import REPORT, screen
    from ttabench.errors import UserError
    from ttabench.registry import view
    from ttabench.system.files import replace_file, writing

    if json and github:
        raise UserError("--json and --github both print; choose one.")
    comparing = view("compare")
    given = {"max_drop": max_drop, "max_mean_drop": max_mean_drop, "alpha": alpha}
    bounds = {name: value for name, value in given.items() if value is not None}
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    gating = gate or subset or github or junit or bounds or in_ci
    outcome = comparing.compare(baseline, candidate, **bounds, subset=subset)
    if json:
        print(comparing.as_json(outcome))
    else:
        shown = comparing.render if gating else comparing.side_by_side
        screen(REPORT).print(shown(outcome))
    for line in comparing.github(outcome) if github else ():
        print(line)
    if junit:
        with writing(junit, "choose another file"):
            replace_file(junit, comparing.junit(outcome).encode())
    if gating and outcome.failed:
        raise typer.Exit(1)
