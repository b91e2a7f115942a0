"""Text streams that do not wait for their reader, so that work does not stop with its output."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from typing import Any, TextIO

PATIENCE = 1.0  # seconds in which a reader may take some of a text
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a disk, and of a quota, without space."""


class NonBlocking:
    """A text stream over another one that leaves out what its reader does not take within :data:`PATIENCE`.

    A pipe that nobody reads is full after some kB, and a stopped terminal (Ctrl-S) takes nothing. A write
    then waits for ever, and the process with it. After the first text that was left out, no write waits until
    the reader reads again; it is then told. Files are written as usual. A full disk does not take a text
    either, and is no error.

    needed   whether an error, such as BrokenPipeError of a reader that has gone, is raised or ignored.
    """

    def __init__(self, stream: TextIO, needed: bool = True) -> None:
        self._stream, self._needed = stream, needed
        self._file = _own_file(stream)
        self._stalled = False

    @classmethod
    def over(cls, stream: TextIO, needed: bool = True) -> Any:
        """The same, for type checkers: it serves as `stream` does."""
        return cls(stream, needed)

    def write(self, text: str) -> int:
        try:
            if self._file is None:
                self._stream.write(text)
            elif not self._stalled or self._send("\n… some lines were left out: nobody read them.\n", 0.0):
                self._stalled = not self._send(text, PATIENCE)
        except OSError as problem:
            self._ignore(problem)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as problem:
            self._ignore(problem)

    def _ignore(self, problem: OSError) -> None:
        if self._needed and problem.errno not in FULL:
            raise problem

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _send(self, text: str, patience: float) -> bool:
        """Whether the reader took the text; it has `patience` seconds for each part."""
        assert self._file is not None
        data = text.encode(self._stream.encoding or "utf-8", "backslashreplace")
        until = time.monotonic() + patience
        while data:
            try:
                ready = select.select([], [self._file], [], max(0.0, until - time.monotonic()))[1]
                count = os.write(self._file, data[: select.PIPE_BUF]) if ready else 0
            except BlockingIOError:  # a terminal is ready for less than this
                time.sleep(0.01)
                count = 0
            if count:
                data, until = data[count:], time.monotonic() + patience
            elif time.monotonic() >= until:
                return False
        return True


def _own_file(stream: TextIO) -> int | None:
    """A descriptor of the pipe or terminal of a stream, for this object alone; None where it is neither.

    On Linux it is opened anew, so that it can be non-blocking without a change for other processes.
    """
    try:
        number = stream.fileno()
        mode = os.fstat(number).st_mode
        if not stat.S_ISFIFO(mode) and not os.isatty(number):
            return None
        select.select([], [number], [], 0)  # Windows has this for sockets only
    except (OSError, ValueError, AttributeError):
        return None
    try:
        return os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return os.dup(number)
