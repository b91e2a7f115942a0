"""Output that nobody reads is left out; it stops no work, and the reader is told when it reads again."""

from __future__ import annotations

import io
import os
import pty
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from ttabench.system import nonblocking
from ttabench.system.nonblocking import NonBlocking


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, TextIO]]:
    monkeypatch.setattr(nonblocking, "PATIENCE", 0.2)
    reader, writer = os.pipe()
    with open(writer, "w", encoding="utf-8") as stream:
        yield reader, stream
    os.close(reader)


def test_a_reader_that_does_not_read_holds_nothing_up(pipe: tuple[int, TextIO]) -> None:
    reader, stream = pipe
    patient = NonBlocking.over(stream)
    started = time.monotonic()
    for _ in range(100):
        patient.write("äx" * 10_000)
    assert time.monotonic() - started < 1
    os.read(reader, 1 << 20)
    patient.write("again\n")
    assert os.read(reader, 1 << 20).decode().endswith("nobody read them.\nagain\n")


def test_what_is_read_is_whole(pipe: tuple[int, TextIO]) -> None:
    reader, stream = pipe
    patient = NonBlocking.over(stream)
    print("ä" * 2000, file=patient)
    assert os.read(reader, 1 << 20).decode() == "ä" * 2000 + "\n"


def test_a_terminal_that_is_stopped_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nonblocking, "PATIENCE", 0.2)
    main, terminal = pty.openpty()
    with open(terminal, "w", encoding="utf-8") as stream:
        termios.tcflow(terminal, termios.TCOOFF)  # Ctrl-S
        patient = NonBlocking.over(stream)
        assert patient.isatty()
        started = time.monotonic()
        for _ in range(2000):
            patient.write("x" * 99)
        assert time.monotonic() - started < 2
        termios.tcflow(terminal, termios.TCOON)
    os.close(main)


def test_a_terminal_that_nobody_reads_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nonblocking, "PATIENCE", 0.2)
    main, terminal = pty.openpty()
    with open(terminal, "w", encoding="utf-8") as stream:
        patient = NonBlocking.over(stream)
        started = time.monotonic()
        for length in range(3000):
            patient.write("x" * (length % 97))
        assert time.monotonic() - started < 2
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
