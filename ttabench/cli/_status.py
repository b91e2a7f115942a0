"""What ``ttabench status`` shows: once, or again and again."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from ttabench.cell.stream_spec import ALL_STREAMS
from ttabench.cli._progress_of import STATES, Progress, Row, State, apart, seconds_left
from ttabench.cli._table import make_table, screen
from ttabench.corruptions.corruption_names import NATURAL, NO_SEVERITY
from ttabench.errors import counted, printable
from ttabench.provenance.staleness import stale_cells
from ttabench.run.executors.cluster import FOLDER
from ttabench.store import Store
from ttabench.store.attestations import Attestations
from ttabench.store.record import PROTOCOL
from ttabench.sweep.grid import RULES
from ttabench.sweep.progress.display import clock, clock_left
from ttabench.sweep.sweep_file import kept
from ttabench.system.work_claims import SILENT, Running

NOT_GIVEN = {"contamination": "none", "held_out": "none", "limit": "all", "stream": "none", "pace": "none"}
MEASURED_AS = ("reset", "order", "precision", *NOT_GIVEN)
"""Options that are fields of the protocol as they are; cells of one folder can differ in them."""
OF_SWEEPS = {"mode": "native", "batch_size": 0, "epochs": 0}
"""Options that the sweeps of one folder can differ in and no stored cell has, with their defaults."""
EVERY = 2.0  # seconds between two looks
PLAIN = 20.0  # seconds between two lines without a terminal
MOST = 20  # rows of a table on the screen of --watch


def print_status(progress: Progress) -> None:
    """Everything, once."""
    for part in (*_options(progress), *_state(progress), *_measured(progress)):
        screen().print(part, soft_wrap=isinstance(part, Text))


def watch_status(progress: Progress) -> None:
    """The state, until nothing is left: on a terminal in place, elsewhere one line after the other.

    Failed and stale cells are left for another sweep where none is at work.
    """
    console, printed = screen(), -PLAIN
    live = Live(console=console, auto_refresh=False, screen=False)
    with live if console.is_terminal else nullcontext():
        while True:
            if console.is_terminal:
                live.update(Group(*_state(progress, MOST)), refresh=True)
            elif time.monotonic() - printed >= PLAIN or not progress.is_open():
                printed = time.monotonic()
                text = "; ".join(_lines(progress, progress.rows()).values())
                print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)
            if not progress.is_open():
                return
            time.sleep(EVERY)
            progress.refresh()


def _options(progress: Progress) -> Iterator[Text]:
    """The options of the sweep, and the corruptions of datasets that have others."""
    options = progress.store.sweep()
    options |= {key: _of_sweeps(progress.store, key, options.get(key, OF_SWEEPS[key])) for key in OF_SWEEPS}
    in_force = {key: progress.in_force(key, options.get(key, PROTOCOL[key])) for key in MEASURED_AS}
    for key, value in {**options, **in_force}.items():
        if key in in_force:
            if value != [PROTOCOL[key]] or PROTOCOL[key]:
                yield _line(key, ", ".join(str(one or NOT_GIVEN[key]) for one in value))
        elif key not in RULES and value not in ("", 0, []):
            yield _line(key, ", ".join(map(str, value)) if isinstance(value, list) else str(value))
    if rules := [name for name in RULES if options.get(name)]:
        yield _line("rules", f"{', '.join(rules)}; see sweep.toml there")
    logs = progress.store.root / FOLDER
    if count := sum(1 for _ in logs.rglob("*.log")):
        yield _line("logs", f"{logs}, of {counted(count, 'task')} of Slurm or Ray")
    corruptions: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for cell in progress.cells():
        if cell.corruption not in ALL_STREAMS:
            corruptions[cell.place[2]][cell.corruption] = None
    for dataset in sorted(corruptions):
        if other := [name for name in corruptions[dataset] if name not in options.get("corruptions", ())]:
            natural = other == [NATURAL]
            text = "a natural shift, without corruptions and severities"
            yield _line(dataset, text if natural else f"has {', '.join(other)}")


def _of_sweeps(store: Store, key: str, first: Any) -> Any:
    """What all sweeps of a folder have for an option, separated by commas; that of the only one as it is."""
    values = dict.fromkeys([str(first), *(str(sweep.get(key, OF_SWEEPS[key])) for sweep in kept(store.root))])
    if len(values) == 1:
        return first
    return ", ".join("each method's own" if value == "0" else value for value in values)


def _measured(progress: Progress) -> Iterator[RenderableType]:
    """What is stored: methods × protocols with their days, the code and the machines."""
    contents = progress.contents
    for name, found in (("code", contents.code), ("machine", contents.machines)):
        if found:
            yield _line(name, "; ".join(text if len(found) < 2 else f"{text} ({counted(n, 'cell')})"
                                        for text, n in found.most_common()))  # fmt: skip
    if rows := list(contents.rows()):
        yield from _table(("method", "arch", "dataset", "protocol", "stored", "on (UTC)"), rows, 0)


def _state(progress: Progress, most: int = 0) -> Iterator[RenderableType]:
    """Counts, running cells, incomplete rows and failures; at most so many rows of each, 0 = all."""
    places = progress.rows()
    for name, text in _lines(progress, places).items():
        yield _line(name, text)
    if attested := sum(cell.attested for cell in progress.cells()):
        evidence = Attestations.read(progress.store.root)
        steps, measured = counted(evidence.steps, "step"), counted(evidence.cells, "cell")
        yield _line("attested", f"{attested:,} of the done cells ({steps}, {measured} run again)")
    stale = Counter((cell.base, cell.reason) for cell in progress.cells() if cell.state == "stale")
    for (base, why), count in sorted(stale.items()):
        yield _line("stale", stale_cells(count, base, why.split("; ")))
    if left := progress.left_behind():
        which = ", ".join(f"{method} ({count})" for method, count in sorted(left.items()))
        yield _line("stale", f"in no sweep of this folder, so no sweep measures them again: {which}")
    if progress.running:
        names = progress.names()
        rows = [_running(names.get(one.cell or one.key, ""), one) for one in progress.running]
        yield from _table(("running now", "where", "for", "progress"), rows, most)
    if incomplete := [row for row in places if not row.complete]:
        states = [state for state in STATES if state != "running" or progress.running]
        table = [_row(row, states) for row in incomplete]
        yield from _table(("method", "arch", "dataset", *states, "left"), table, most)
    if failed := [cell for cell in progress.cells() if cell.state == "failed"]:
        headings = ("method", "arch", "dataset", "corruption", "severity", "seed", "reason")
        yield from _table(headings, [*map(_failed, failed, apart(failed))], most)


def _lines(progress: Progress, rows: Sequence[Row]) -> dict[str, str]:
    """How many cells there are in each state, and how much time is left."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts.update(row.counts)
    states = [state for state in STATES if state != "running" or counts[state]]
    if not counts:
        return {"cells": "none yet: a sweep trains networks first; the same sweep command goes on"}
    lines = {"cells": f"{counts.total()}: {', '.join(f'{counts[state]} {state}' for state in states)}"}
    workers = len(progress.running)
    if left := seconds_left(rows, workers):
        seconds, known = left
        about = clock_left(seconds, known) or "less than a second"
        text = f"about {about}" if known else about
        if workers:
            lines["left"] = f"{text} with {counted(workers, 'running worker')}"
        else:
            lines["left"] = f"{text} for one worker, estimated from the finished cells; no worker runs now"
    return lines


def _running(name: str, one: Running) -> tuple[str, str, str, str]:
    """A running cell, called `name`: where it runs, for how long, and how far it is."""
    report = one.progress
    images = ""
    if report.get("total"):
        images = f"{report.get('seen', 0)}/{report['total']}"
        if report.get("scored"):
            images += f", {100 * report['right'] / report['scored']:.1f} %"
    silent = f"no sign for {clock(one.silent)}" if one.silent > SILENT else ""
    text = ", ".join(filter(None, (str(report.get("doing", "")), images, silent)))
    return name, one.where, clock(max(0.0, time.time() - one.since)), text


def _row(row: Row, states: Sequence[str]) -> tuple[str, ...]:
    left = clock_left(row.seconds, row.known) if row.seconds else ""
    return (*row.place, *(str(row.counts[state]) for state in states), left)


def _failed(cell: State, apart: str) -> tuple[str, ...]:
    severity = "–" if cell.severity == NO_SEVERITY else str(cell.severity)
    return (*cell.place, f"{cell.corruption}{apart}", severity, str(cell.seed), cell.reason)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], most: int) -> Iterator[RenderableType]:
    shown = rows[:most] if most else rows
    yield Text("")
    yield make_table(headings, shown)
    if len(rows) > len(shown):
        yield Text(f"and {len(rows) - len(shown)} more")


def _line(name: str, text: str) -> Text:
    return Text(f"{name:<13} {printable(text)}")
