"""Progress of many jobs at once: live bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

EVERY = 20.0  # seconds between two plain lines about the same running item


class Display:
    """One bar for the whole and one per running item; on a pipe, one line per finished item.

    `total` items; their names are shown as given.
    """

    def __init__(self, total: int, unit: str, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stderr, highlight=False)
        self.total, self.unit, self.done = total, unit, 0
        self.live = self.console.is_terminal
        self.started = time.monotonic()
        self._tasks: dict[str, TaskID] = {}
        self._said: dict[str, float] = {}
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            transient=True,
            disable=not self.live,
        )
        self._whole = self._bars.add_task(unit, total=total, note="")

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    @property
    def time_left(self) -> str:
        """From the mean pace so far, e.g. ``1:20 left``; "" before the first item."""
        if not self.done:
            return ""
        seconds = (time.monotonic() - self.started) / self.done * (self.total - self.done)
        return f"{clock(seconds)} left"

    def running(self, name: str, at: int, of: int, note: str = "") -> None:
        """An item is at `at` of `of`."""
        if self.live:
            if name not in self._tasks:
                self._tasks[name] = self._bars.add_task(f"  {name}", total=of, note="")
            self._bars.update(self._tasks[name], completed=at, total=of, note=note)
            return
        now = time.monotonic()
        if now - self._said.setdefault(name, now) >= EVERY:
            self._said[name] = now
            self.console.print(f"  … {name}: {at}/{of} {note}".rstrip(), soft_wrap=True, markup=False)

    def finished(self, name: str, note: str, *, keep: bool = False) -> None:
        """An item is done; on a terminal only what is worth keeping (`keep`) leaves a line."""
        self.done += 1
        if name in self._tasks:
            self._bars.remove_task(self._tasks.pop(name))
        self._bars.update(self._whole, completed=self.done, note=self.time_left)
        if not self.live or keep:
            line = f"[{self.done}/{self.total}] {name}: {note}"
            left = f", {self.time_left}" if self.done < self.total else ""
            self.console.print(line + left, soft_wrap=True, markup=False)


def clock(seconds: float) -> str:
    """``83`` → ``1:23``"""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Meter:
    """One thing at a time, at `done` of `total`: a bar on a terminal, a line every few seconds elsewhere.

    Called as ``meter(what, done, total)``; a total of 0 is unknown. unit "bytes" shows sizes and speed.
    """

    def __init__(self, unit: str, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stderr, highlight=False)
        self._bytes = unit == "bytes"
        counts = (DownloadColumn(), TransferSpeedColumn()) if self._bytes else (MofNCompleteColumn(),)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            *counts,
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._said = time.monotonic()

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
        if not self.console.is_terminal and now - self._said >= EVERY / 4:
            self._said = now
            scale, unit = (1e6, " MB") if self._bytes else (1, "")
            of = f"/{total / scale:,.0f}" if total else ""
            self.console.print(f"{what}: {done / scale:,.0f}{of}{unit}", soft_wrap=True, markup=False)
