"""Files are written whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ttabench.cores import available_cores
from ttabench.files import replace_file, replacing, user_path


def test_the_folder_is_made_and_nothing_else_is_left(tmp_path: Path) -> None:
    replace_file(tmp_path / "a" / "b", b"1")
    replace_file(tmp_path / "a" / "b", b"22")
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "a").iterdir()] == [("b", b"22")]


@pytest.mark.parametrize("problem", [KeyboardInterrupt, ValueError, OSError])
def test_an_error_while_writing_keeps_the_old_content(tmp_path: Path, problem: type[BaseException]) -> None:
    def interrupted() -> None:
        with replacing(tmp_path / "b") as part:
            part.write_bytes(b"half")
            raise problem

    replace_file(tmp_path / "b", b"old")
    with pytest.raises(problem):
        interrupted()
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("b", b"old")]


def test_the_bytes_are_on_the_disk_before_the_name_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    replace_file(tmp_path / "b", b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(tmp_path / "b", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("b", b"old")]


def test_readers_see_the_old_or_the_new_content_never_half(tmp_path: Path) -> None:
    replace_file(tmp_path / "b", b"old")
    with replacing(tmp_path / "b") as part:
        part.write_bytes(b"half")
        assert (tmp_path / "b").read_bytes() == b"old"
        part.write_bytes(b"whole")
    assert (tmp_path / "b").read_bytes() == b"whole"


def test_a_home_folder_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_path("~/x") == tmp_path / "x"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be taken away here")
def test_cores_that_are_taken_away_do_not_count() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert available_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
