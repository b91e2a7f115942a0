"""What happens in a sweep, as it is shown while cells run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ttabench.cell import Cell, Result
from ttabench.cell.told_apart import names_of_cells
from ttabench.errors import counted
from ttabench.run.cell_group import CellGroup
from ttabench.run.failed_at import reason_and_place
from ttabench.run.progress_events import CellProgress, Waiting
from ttabench.sweep.loggers import Loggers
from ttabench.sweep.progress.display import Display
from ttabench.sweep.typical_costs import passes, typical_ratio


def follow(
    events: Iterable[Result | CellProgress | Waiting],
    groups: Sequence[CellGroup],
    workers: int,
    loggers: Loggers,
) -> list[Cell]:
    """Show what happens in a sweep; returns the cells that fail."""
    failed: list[Cell] = []
    cells = [cell for group in groups for cell in group.cells]
    names = names_of_cells(cells)
    kinds = [(names[cell.cell_id], kind(cell)) for cell in cells]
    usual = {kind(cell): ratio for cell in cells if (ratio := _beside_source(cell))}
    epochs = {cell.cell_id: passes(cell) for cell in cells}
    again = {key for group in groups for key in group.done}
    with Display(len(kinds) - len(again), "cells", kinds=kinds, workers=workers, relative=usual) as display:
        for event in events:
            if isinstance(event, CellProgress):
                _show(display, names.get(event.key, event.cell), event, epochs.get(event.key, 0))
            elif isinstance(event, Waiting):
                where = ", ".join(event.where)
                display.say(
                    f"Waiting for {counted(event.cells, 'cell')} that other processes compute: {where}."
                )
            else:
                key = event.cell.cell_id
                _print_result(display, names.get(key, str(event.cell)), event, counts=key not in again)
                loggers.add(event)
                failed += [event.cell] if event.status == "failed" else []
    return failed


def kind(cell: Cell) -> str:
    """What cells that take about as long share: method with settings, network, dataset."""
    return f"{cell.label} {cell.arch} {cell.dataset}"


def _beside_source(cell: Cell) -> tuple[str, float] | None:
    """The kind of the Source cells beside a cell, and how many times as long it usually takes."""
    ratio = typical_ratio(cell)
    return None if ratio is None or cell.method == "source" else (f"source {cell.arch} {cell.dataset}", ratio)


def _show(display: Display, name: str, event: CellProgress, epochs: int) -> None:
    """`epochs`: the passes that an offline method makes, as far as its settings say it; 0 = not known."""
    if event.doing:
        display.running(name, 0, 0, event.doing)
    elif event.scored:
        note = f"{100 * event.right / event.scored:.1f} % so far"
        display.running(name, event.seen, event.total, note)
    else:
        # An epoch of a method may be several passes: its part of the work is not known.
        done, at = divmod(event.seen, event.total)
        of = f", pass {done + 1} of {epochs}" if done < epochs else ""
        display.running(name, at, event.total, f"adapting{of}", part=0.0)


def _print_result(display: Display, name: str, result: Result, *, counts: bool) -> None:
    """`counts`: whether the cell was to do, or ran again for those after it in a continual run."""
    if result.status == "ok":
        note = f"{result.accuracy:.1f} % ({result.seconds:.1f} s)"
        alarm = str(result.details.get("alarm", ""))
        note = f"{note}, {alarm}" if alarm else note
        display.finished(name, note, seconds=result.seconds, counts=counts)
    else:
        reason = reason_and_place(result.reason, result.details).rstrip(".")
        display.finished(name, f"failed: {reason}", keep=True, counts=counts)
