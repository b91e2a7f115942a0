"""``ttabench attest``: show that a change of code changed no number."""

from __future__ import annotations

from contextlib import ExitStack
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

if TYPE_CHECKING:
    from ttabench.store import Store
    from ttabench.sweep.attestation import Group, Way

REFUSED = 1
"""Exit code where stale cells remain; 2 is a mistake in the command, as everywhere."""


def attest(
    results: Annotated[Path, Argument(metavar="DIR", help="A results folder with stale cells.")],
    old: Annotated[
        Path | None,
        Option(metavar="CHECKOUT", help="The code before the change. Both codes run side by side."),
    ] = None,
    accept_old: Annotated[
        bool,
        Option("--accept-old", help="With --old: accept branches of the old code that did not run."),
    ] = False,
    other_operations: Annotated[
        bool,
        Option(
            "--other-operations",
            help="With --old: allow other torch operations, and compare with the stored bits.",
        ),
    ] = False,
    check: Annotated[
        bool, Option("--check", help="Check the attested cells again, and store nothing.")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="List the cells to run, and run nothing.")] = False,
    json: Annotated[bool, Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Run a sample of stale cells again. If all their bits are as stored, the others count as fresh.

    A cell is stale after a change of the code that its number depends on. The sample has cells of each kind
    that the change affects. Every changed function must run in the sample, with all its branches. If cells
    agree, DIR/attested.jsonl stores this. If cells disagree, it stores this too, and they are refused until
    the code changes again. If code did not run, you may try again. Without --old, this works only on the kind
    of machine that measured the results, and not for results of a GPU. --old is needed if definitions refer
    to others than before, or if a function has fewer branches. Replaced branches are noticed only with --old.

    With --old, the sample runs with the old and with the installed code, on any machine. Both must do the
    same torch operations with the same numbers. Branches of the old code that did not run are refused too.
    Read them, and accept them with --accept-old if no stored cell takes them.

    Code that computes the same result in another way, such as faster code, does other operations. With --old
    and --other-operations, the sample runs with the installed code, and its bits must be the stored ones. So
    this works only on the kind of machine that measured the results. The old code only shows what definitions
    referred to; it does not run.

    Everyone who can write to DIR can forge a line of attested.jsonl. --check runs a sample of the attested
    cells as if they were stale. It ignores the lines about them, and stores nothing.

    Exit code 0 if no stale cell with a number remains, or if --check confirms all attested cells; else 1. 2
    for a mistake in the command. A dry run ends with 0.
    """
    from ttabench.errors import UserError
    from ttabench.store import Store
    from ttabench.sweep import attestation

    if (accept_old or other_operations) and old is None:
        option = "--accept-old" if accept_old else "--other-operations"
        raise UserError(f"{option} needs the code before the change; give its checkout with --old.")
    if accept_old and other_operations:
        raise UserError("with --other-operations, the old code does not run; leave out --accept-old.")
    store = Store.at(results)
    groups = attestation.groups_of(store, attested=check)
    # After the code was read: what is edited before it is imported is found at the end, and refused.
    from ttabench.sweep.attestation.measured_again import MeasuredAgain
    from ttabench.sweep.attestation.side_by_side import side_by_side

    if not groups:
        empty = attestation.Outcome()
        found = attestation.listed_json((), empty) if dry_run else attestation.to_json(empty)
        which = "attested cell; there is nothing to check"
        which = which if check else "stale cell that has a number; there is nothing to attest"
        nothing = f"{results} has no {which}."
        print(dumps(found, indent=1) if json else nothing)
        return
    with ExitStack() as stack:
        way: Way = MeasuredAgain(store)
        if old is not None:
            codes = way = stack.enter_context(side_by_side(store, old, accept_old))
            if other_operations:
                way = MeasuredAgain(store, codes.changed_now)
        if dry_run:
            _list(groups, way, check, json)
        else:
            _attest(store, groups, way, check, json)


def _attest(store: Store, groups: list[Group], way: Way, check: bool, json: bool) -> None:
    """Run the sample, store and print what it shows."""
    from ttabench.sweep import attestation
    from ttabench.sweep.progress.display import Display

    outcome, names = None, attestation.names_in(groups)
    with Display(len(groups), "cells", workers=1) as display:
        for event in attestation.attest(store, groups, way, keep=not check):
            if isinstance(event, attestation.Outcome):
                outcome = event
            elif isinstance(event, attestation.Shown):
                display.finished(names[event.cell.cell_id], event.why or "same")
            else:
                name = names.get(event.key, event.cell)  # of one before it in a continual run
                display.running(name, event.seen % (event.total + 1), event.total, event.doing)
    assert outcome is not None
    if json:
        print(dumps(attestation.to_json(outcome), indent=1, ensure_ascii=False))
    else:
        print("\n".join(attestation.summary(outcome, check)))
    if outcome.refused or outcome.left:
        raise typer.Exit(REFUSED)


def _list(groups: list[Group], way: Way, check: bool, json: bool) -> None:
    """Print what a way would try, and what it would not."""
    from ttabench.sweep import attestation

    outcome = attestation.Outcome()
    todo = attestation.to_try(groups, way, outcome)
    if json:
        print(dumps(attestation.listed_json(todo, outcome), indent=1, ensure_ascii=False))
    else:
        print("\n".join([*attestation.listed(todo), *attestation.summary(outcome, check)]))
