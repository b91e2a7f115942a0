"""``ttabench attest``: show that a change of code changed no number."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

if TYPE_CHECKING:
    from ttabench.store import Store
    from ttabench.sweep.attest import Group, Way

REFUSED = 1
"""Exit code where stale cells remain; 2 is a mistake in the command, as everywhere."""


def attest(
    results: Annotated[Path, Argument(metavar="DIR", help="A results folder with stale cells.")],
    old: Annotated[
        Path | None, Option(metavar="CHECKOUT", help="The code before the change: run both side by side.")
    ] = None,
    accept_old: Annotated[
        bool,
        Option("--accept-old", help="With --old: accept that branches of the old code did not run."),
    ] = False,
    other_operations: Annotated[
        bool,
        Option(
            "--other-operations",
            help="With --old: the new code may do other torch operations; the stored bits decide.",
        ),
    ] = False,
    check: Annotated[
        bool, Option("--check", help="Show again what is attested already, and store nothing.")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="List which cells would be tried; run none.")] = False,
    json: Annotated[bool, Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Run a sample of stale cells again; where all bits are the same, the others count as fresh.

    A cell is stale after a change of the code that its number depends on. The sample has cells of each kind
    that the change reaches, and every changed function has to run in it with all its branches. What agrees
    is stored in DIR/attested.jsonl, and so is what disagrees: it is refused until the code changes. What did
    not run may be tried again. Only the kind of machine that measured the results may attest them, and no
    GPU. Where definitions refer to others than before, or a function has fewer branches, --old is needed.
    Branches that others replaced are seen with --old alone.

    With --old, the sample runs with the old and with the installed code on this machine, whichever it is.
    Both have to do the same torch operations with the same numbers. Branches of the old code that did not
    run are refused too; read them, and accept them with --accept-old if no stored cell takes them.

    Code that computes the same in another way, such as a faster one, does other operations. With --old and
    --other-operations, the sample runs with the installed code, and its bits have to be those that are
    stored. So only the kind of machine that measured the results may attest them. The old code shows what
    definitions referred to; its branches do not run.

    Whoever can write to DIR can forge a line of attested.jsonl. With --check, the sample is of the attested
    cells, as if they were stale. No line about them is believed, and nothing is stored.

    Exit code 0 if no stale cell with a number remains, or if --check shows all attested cells again; else 1.
    2 for a mistake in the command. A dry run ends with 0.
    """
    from contextlib import ExitStack
    from json import dumps

    from ttabench.errors import UserError
    from ttabench.store import Store
    from ttabench.sweep import attest as attesting

    if (accept_old or other_operations) and old is None:
        option = "--accept-old" if accept_old else "--other-operations"
        raise UserError(f"{option} needs the code before the change; give its checkout with --old.")
    if accept_old and other_operations:
        raise UserError("with --other-operations, the old code does not run; leave out --accept-old.")
    store = Store.at(results)
    groups = attesting.groups_of(store, attested=check)
    # After the code was read: what is edited before it is imported is found at the end, and refused.
    from ttabench.sweep.measured_again import MeasuredAgain
    from ttabench.sweep.side_by_side import side_by_side

    if not groups:
        empty = attesting.Outcome()
        found = attesting.listed_json((), empty) if dry_run else attesting.to_json(empty)
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
    from json import dumps

    from ttabench.sweep import attest as attesting
    from ttabench.sweep.progress.display import Display

    outcome = None
    with Display(len(groups), "cells", workers=1) as display:
        for event in attesting.attest(store, groups, way, keep=not check):
            if isinstance(event, attesting.Outcome):
                outcome = event
            elif isinstance(event, attesting.Shown):
                display.finished(str(event.cell), event.why or "same")
            else:
                display.running(event.cell, event.seen % (event.total + 1), event.total, event.doing)
    assert outcome is not None
    if json:
        print(dumps(attesting.to_json(outcome), indent=1, ensure_ascii=False))
    else:
        print("\n".join(attesting.summary(outcome, check)))
    if outcome.refused or outcome.left:
        raise typer.Exit(REFUSED)


def _list(groups: list[Group], way: Way, check: bool, json: bool) -> None:
    """Print what a way would try, and what it would not."""
    from json import dumps

    from ttabench.sweep import attest as attesting

    outcome = attesting.Outcome()
    todo = attesting.to_try(groups, way, outcome)
    if json:
        print(dumps(attesting.listed_json(todo, outcome), indent=1, ensure_ascii=False))
    else:
        print("\n".join([*attesting.listed(todo), *attesting.summary(outcome, check)]))
