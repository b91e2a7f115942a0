"""Output that nobody reads is left out; it stops no work, and the reader is told when it reads again."""

from __future__ import annotations

import io
import os
import pty
import select
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from ttabench.system import nonblocking
from ttabench.system.nonblocking import NonBlocking


class Waits:
    """Adds up the seconds in which output would wait for its reader, and lets none of them pass."""

    PIPE_BUF = select.PIPE_BUF

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def select(self, *files_and_seconds: Any) -> tuple[list[int], list[int], list[int]]:
        *files, seconds = files_and_seconds
        found = select.select(*files, 0)
        self.seconds += seconds if found == ([], [], []) else 0.0
        return found


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    made = Waits()
    monkeypatch.setattr(nonblocking, "time", made)
    monkeypatch.setattr(nonblocking, "select", made)
    return made


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    reader, writer = os.pipe()
    with open(writer, "w", encoding="utf-8") as stream:
        yield reader, stream
    os.close(reader)


def test_a_reader_that_does_not_read_is_waited_for_once(pipe: tuple[int, TextIO], waits: Waits) -> None:
    reader, stream = pipe
    patient = NonBlocking.over(stream)
    for _ in range(100):
        patient.write("äx" * 10_000)
    assert waits.seconds == nonblocking.PATIENCE
    os.read(reader, 1 << 20)
    patient.write("again\n")
    assert os.read(reader, 1 << 20).decode().endswith("nobody read them.\nagain\n")


def test_what_is_read_is_whole(pipe: tuple[int, TextIO]) -> None:
    reader, stream = pipe
    patient = NonBlocking.over(stream)
    print("ä" * 2000, file=patient)
    assert os.read(reader, 1 << 20).decode() == "ä" * 2000 + "\n"


def test_a_terminal_that_is_stopped_is_waited_for_once(waits: Waits) -> None:
    main, terminal = pty.openpty()
    with open(terminal, "w", encoding="utf-8") as stream:
        termios.tcflow(terminal, termios.TCOOFF)  # Ctrl-S
        patient = NonBlocking.over(stream)
        assert patient.isatty()
        for _ in range(2000):
            patient.write("x" * 99)
        assert waits.seconds == nonblocking.PATIENCE
        termios.tcflow(terminal, termios.TCOON)
    os.close(main)


def test_a_terminal_that_nobody_reads_is_waited_for_only_as_often_as_it_takes_something(waits: Waits) -> None:
    main, terminal = pty.openpty()
    with open(terminal, "w", encoding="utf-8") as stream:
        patient = NonBlocking.over(stream)
        for length in range(3000):
            patient.write("x" * (length % 97))
        assert 0 < waits.seconds < 10 * nonblocking.PATIENCE
        os.set_blocking(main, False)
        while True:  # a terminal waits for its reader when it is closed
            try:
                os.read(main, 1 << 16)
            except BlockingIOError:
                break
    os.close(main)


def test_a_reader_that_has_gone_is_an_error_only_where_it_is_needed(pipe: tuple[int, TextIO]) -> None:
    reader, stream = pipe
    os.dup2(os.open(os.devnull, os.O_RDONLY), reader)
    with pytest.raises(BrokenPipeError):
        NonBlocking(stream).write("x")
    assert NonBlocking(stream, needed=False).write("x") == 1


def test_files_and_other_streams_get_everything(tmp_path: Path) -> None:
    text = io.StringIO()
    NonBlocking(text).write("all")
    assert text.getvalue() == "all"
    with (tmp_path / "file").open("w") as stream:
        NonBlocking(stream).write("all")
    assert (tmp_path / "file").read_text() == "all"
