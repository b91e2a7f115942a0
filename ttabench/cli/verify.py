"""``ttabench verify``: stored numbers made again."""

from __future__ import annotations

from collections.abc import Iterable
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from ttabench.cell import Cell
from ttabench.cell.told_apart import names_of_cells

if TYPE_CHECKING:
    from ttabench.sweep.agreement import Check
    from ttabench.sweep.verify_sample import Drawn

SAME, DIFFERS, OTHER_WEIGHTS, NOT_HERE, UNMEASURED = 0, 1, 3, 4, 5
"""Exit codes; 2 is a mistake in the command, as everywhere."""


def verify(
    results: Annotated[Path, Argument(metavar="DIR", help="A results folder.")],
    sample: Annotated[
        int, Option(metavar="COUNT", help="How many cells are drawn; if there are fewer, all.", min=1)
    ] = 8,
    seed: Annotated[int, Option(metavar="NUMBER", help="The seed with which cells are drawn.", min=0)] = 0,
    at_most: Annotated[
        float,
        Option(
            metavar="SECONDS",
            help="Stop a cell that runs longer, and draw at least one cell of each method; 0 = no limit.",
            min=0,
        ),
    ] = 0.0,
    workers: Annotated[
        str, Option(metavar="COUNT", help="auto = one per core or GPU; 0 = this process.")
    ] = "auto",
    device: Annotated[
        str, Option(metavar="DEVICE", help="cpu, cuda, cuda:1 …", show_default="as stored")
    ] = "",
    json: Annotated[bool, Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Draw some stored cells, run them again with the installed code, and compare.

    On the same kind of machine with the same versions, every number must be the same bit for bit. On another
    kind of machine, and on a GPU, up to 1 % of a cell's images, or one image, may differ in whether they are
    right. Below each cell, verify prints what changed since it was stored.

    Exit code 0: all cells agree. 1: a cell differs. 2: a mistake in the command. 3: no cell differs, but some
    could not be compared, because the recipe trains other weights on this kind of machine or on a GPU. 4: no
    cell differs, but some were not run, because their data, weights, method or network are not on this
    machine. 5, with --at-most: no cell differs, but no cell of some method was measured; these methods are
    named.
    """
    from ttabench.errors import UserError, counted
    from ttabench.run.executors import Limits
    from ttabench.run.executors.workers import pick_executor, pick_workers
    from ttabench.store import Store
    from ttabench.sweep import reproduce
    from ttabench.sweep.agreement import Check
    from ttabench.sweep.available import find_available, sweeps_of
    from ttabench.sweep.progress.display import Display
    from ttabench.sweep.verify_sample import draw
    from ttabench.system.environment import pick_device

    store = Store.at(results)
    drawn = draw(store, sample, seed, every_method=at_most > 0)
    records = drawn.records
    available = find_available(records, sweeps_of(store))
    on = pick_device(device) if device else ""
    place = on or reproduce.device_of(r for r in records if not available[r.result.cell.cell_id].lacks)
    count = pick_workers(workers, place, len(records))
    if at_most and not count:
        raise UserError("--at-most stops worker processes; set --workers to 1 or more.")
    executor = pick_executor(count, place, Limits(seconds=at_most))
    checks: list[Check] = []
    cells = [record.result.cell for record in records]
    names = _names(cells)
    kinds = [(names[cell.cell_id], f"{cell.label} {cell.arch}") for cell in cells]
    try:
        with Display(len(records), "cells", kinds=kinds, workers=count) as display:
            display.console.print(f"{counted(len(records), 'cell')} of {drawn.of:,}.", markup=False)
            for event in reproduce.run(store, records, available, on, executor, count):
                if isinstance(event, Check):
                    checks.append(event)
                    display.finished(names[event.cell.cell_id], event.verdict)
                else:
                    name = names.get(event.key, event.cell)  # of one before it in a continual run
                    display.running(name, event.seen % (event.total + 1), event.total, event.doing)
    except (KeyboardInterrupt, SystemExit):
        if not json:  # JSON of some cells would be taken for that of all
            _print(checks, drawn, seed, of=len(records))
        raise
    _report(checks, results, drawn, seed, at_most, json)
    if code := _exit_code(checks, drawn, at_most):
        raise typer.Exit(code)


def _report(checks: list[Check], results: Path, drawn: Drawn, seed: int, at_most: float, json: bool) -> None:
    from ttabench.sweep.agreement import BOUND

    if json:
        report = {
            "results": str(results), "seed": seed, "bound": BOUND,
            "agrees": _exit_code(checks, drawn, at_most) == SAME, "not_drawn": drawn.of - len(drawn.records),
            "unmeasured_methods": _unmeasured(checks, drawn), "checks": [check.to_json() for check in checks],
        }  # fmt: skip
        print(dumps(report, indent=1, ensure_ascii=False))
    else:
        _print(checks, drawn, seed)


def _names(cells: Iterable[Cell]) -> dict[str, str]:
    """The name of each cell by its id; an offline one says so."""
    return names_of_cells(cells, lambda cell: f"{cell}{' · offline' * (cell.protocol.mode == 'offline')}")


def _exit_code(checks: list[Check], drawn: Drawn, at_most: float) -> int:
    verdicts = {check.verdict for check in checks}
    if verdicts & {"differs", "failed"}:
        return DIFFERS
    if at_most and _unmeasured(checks, drawn):
        return UNMEASURED
    return OTHER_WEIGHTS if "other weights" in verdicts else NOT_HERE if "not here" in verdicts else SAME


def _unmeasured(checks: list[Check], drawn: Drawn) -> tuple[str, ...]:
    return drawn.unmeasured(check.cell for check in checks if check.measured)


def _print(checks: list[Check], drawn: Drawn, seed: int, of: int = 0) -> None:
    """Print the checks and their summary; `of`: how many there would be, had nobody interrupted them."""
    from ttabench.errors import counted, first_of, one_line

    if not checks:
        return
    names = _names(check.cell for check in checks)
    for check in checks:
        now = "" if check.now is None else f", {check.now:.2f} % now"
        text = f"{check.stored:.2f} % stored{now}"
        if check.differing:
            text += f", the correctness of {check.differing} of {check.n_images} images differs"
        print(f"{check.verdict:<13} {names[check.cell.cell_id]}: {text}")
        for note in check.notes:
            print(f"{'':<13}   {one_line(note)}")
    counts = {verdict: sum(c.verdict == verdict for c in checks) for verdict in _WORDS}
    verdicts = [f"{n} {verdict if n == 1 and verdict == 'differs' else _WORDS[verdict]}"
                for verdict, n in counts.items() if n]  # fmt: skip
    what = counted(len(checks), "cell")
    if of > len(checks):
        verb = "was" if len(checks) == 1 else "were"
        what = f"{len(checks)} of {of} cells {verb} checked before the interruption"
    if rest := drawn.left_out():
        print(rest)
    if methods := _unmeasured(checks, drawn):
        of_all = f"{len(methods)} of {counted(len(drawn.methods), 'method')}"
        print(f"Nothing was measured of {of_all}: {first_of(methods, 8)}.")
    print(f"{what}: {', '.join(verdicts)}. Drawn with --seed {seed}.")


_WORDS = {
    "same": "the same bit for bit",
    "within": "within the bound for another kind of machine or a GPU",
    "differs": "differ",
    "failed": "failed",
    "other weights": "not comparable, with other weights here",
    "not here": "not run, without their data, weights or code",
    "stopped": "not run to the end, slower than --at-most",
}
