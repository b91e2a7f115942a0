"""Progress of many jobs at once: live bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Column
from rich.text import Text

from ttabench.errors import printable
from ttabench.sweep.progress.time_left import TimeLeft

EVERY = 20.0  # seconds between two plain lines about the same running item


class Shortened:
    """A text on one line; where it is too long, its middle is left out, and both ends can be read."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(shorten(self.text, options.max_width), no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, len(self.text))


def shorten(text: str, width: int) -> str:
    """``shorten("abcdefgh", 5)`` → ``ab…gh``"""
    if len(text) <= width:
        return text
    ends = max(0, width - 1)
    return text[: ends // 2] + "…" + text[len(text) - (ends - ends // 2) :]


class NameColumn(ProgressColumn):
    """What is running, in the room that the other columns leave."""

    def __init__(self) -> None:
        super().__init__(table_column=Column(ratio=1, no_wrap=True))

    def render(self, task: Task) -> Any:
        return Shortened(task.description)


class CountColumn(ProgressColumn):
    """``200/600``; nothing where the total is not known yet."""

    def __init__(self) -> None:
        super().__init__(table_column=Column(no_wrap=True, justify="right"))

    def render(self, task: Task) -> Text:
        return Text(f"{int(task.completed)}/{int(task.total)}" if task.total else "")


class Display:
    """One bar for the whole with rate and time left, and one per worker with the item that it runs.

    On a pipe it is one line per finished item.

    total     items, at least: with more, it is how many are done. Their names are shown as given.
    kinds     the kind of each item by its name, see :class:`ttabench.sweep.progress.time_left.TimeLeft`.
    relative  what kinds usually take beside others, see there.
    workers   items that run at once.
    """

    def __init__(
        self,
        total: int,
        unit: str,
        console: Console | None = None,
        kinds: Sequence[tuple[str, str]] = (),
        workers: int = 1,
        relative: Mapping[str, tuple[str, float]] | None = None,
    ) -> None:
        self.console = console or Console(file=sys.stderr, emoji=False, highlight=False)
        self.total, self.unit, self.done = total, unit, 0
        self.live = self.console.is_terminal
        self._kinds = dict(kinds)
        self._time_left = TimeLeft([kind for _, kind in kinds] or [""] * total, workers, relative)
        self._started = time.monotonic()
        self._tasks: dict[str, TaskID] = {}
        self._printed: dict[str, float] = {}
        self._bars = Progress(
            NameColumn(),
            BarColumn(bar_width=10),
            CountColumn(),
            TextColumn("{task.fields[note]}", markup=False, table_column=Column(no_wrap=True)),
            console=self.console,
            transient=True,
            expand=True,
            disable=not self.live,
        )
        self._whole = self._bars.add_task(unit, total=total, note="")

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._bars.stop()

    @property
    def rate(self) -> str:
        """``1.5 cells/s`` or ``12.0 cells/min``, since the start; "" before anything is done."""
        seconds = time.monotonic() - self._started
        if not self.done or seconds <= 0:
            return ""
        per_second = self.done / seconds
        if per_second >= 1:
            return f"{per_second:.1f} {self.unit}/s"
        return f"{60 * per_second:.1f} {self.unit}/min"

    @property
    def outlook(self) -> str:
        """The rate and the time left, as far as they are known."""
        return ", ".join(filter(None, (self.rate, self.time_left)))

    @property
    def time_left(self) -> str:
        """``1:20 left``; ``at least 1:20 left`` if a kind of item has not run yet; "" if nothing is known."""
        left = self._time_left.seconds_left(time.monotonic())
        text = clock_left(*left) if left else ""
        return f"{text} left" if text else ""

    def running(self, name: str, at: int, of: int, note: str = "", part: float | None = None) -> None:
        """An item is at `at` of `of` (0 = not known yet); `part` is the share of all its work."""
        now = time.monotonic()
        done = part if part is not None else at / of if of else 0.0
        self._time_left.running(name, self._kinds.get(name, ""), done, now)
        if self.live:
            if name not in self._tasks:
                self._tasks[name] = self._bars.add_task(f"  {name}", total=of or None, note="")
            self._bars.update(self._tasks[name], completed=at, total=of or None, note=note)
            self._bars.update(self._whole, note=self.outlook)
            return
        if now - self._printed.setdefault(name, now) >= EVERY:
            self._printed[name] = now
            count = f" {at}/{of}" if of else ""
            self.console.print(f"  … {name}:{count} {note}".rstrip(), soft_wrap=True, markup=False)

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self.console.print(printable(text), soft_wrap=True, markup=False)

    def finished(
        self, name: str, note: str, *, seconds: float = 0.0, keep: bool = False, counts: bool = True
    ) -> None:
        """An item is done; on a terminal only an item with `keep` leaves a line.

        seconds   what it took, for an item whose start was not reported.
        counts    whether it is one of `total`.
        """
        self.done += counts
        self.total = max(self.total, self.done)
        self._time_left.finished(name, self._kinds.get(name, ""), time.monotonic(), seconds)
        if name in self._tasks:
            self._bars.remove_task(self._tasks.pop(name))
        left = self.time_left if self.done < self.total else ""
        self._bars.update(self._whole, completed=self.done, total=self.total, note=self.outlook)
        if not self.live or keep:
            line = printable(f"[{self.done}/{self.total}] {name}: {note}")
            self.console.print(line + (f", {left}" if left else ""), soft_wrap=True, markup=False)


def clock(seconds: float) -> str:
    """``83`` → ``1:23``"""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def clock_left(seconds: float, known: bool) -> str:
    """``1:23``, or ``at least 1:23`` if not all of it is known; then "" for less than half a second."""
    if known:
        return clock(seconds)
    return f"at least {clock(seconds)}" if round(seconds) else ""


class Meter:
    """One thing at a time, at `done` of `total`: a bar on a terminal, a line every few seconds elsewhere.

    Called as ``meter(what, done, total)``; a total of 0 is unknown. unit "bytes" shows sizes and speed.
    """

    def __init__(self, unit: str) -> None:
        self.console = Console(file=sys.stderr, emoji=False, highlight=False)
        self._bytes = unit == "bytes"
        counts = (DownloadColumn(), TransferSpeedColumn()) if self._bytes else (MofNCompleteColumn(),)
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            *counts,
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._printed = time.monotonic()

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._bars.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(what, total=total or None)
        self._bars.update(self._tasks[what], completed=done, total=total or None)
        now = time.monotonic()
        if not self.console.is_terminal and now - self._printed >= EVERY / 4:
            self._printed = now
            scale, unit = (1e6, " MB") if self._bytes else (1, "")
            of = f"/{total / scale:,.0f}" if total else ""
            self.console.print(f"{what}: {done / scale:,.0f}{of}{unit}", soft_wrap=True, markup=False)
