"""Output on a full disk: a sweep goes on without its messages, and a table that is lost is said so."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from ttabench import cli
from ttabench.store import Store

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


def ttabench(*arguments: str | Path, out: Path, err: Path) -> int:
    """The exit code of the command in a process of its own, as Python writes the rest of its output last."""
    run = (sys.executable, "-c", "from ttabench.cli import main; main()", *map(str, arguments))
    with out.open("w") as stdout, err.open("w") as stderr:
        return subprocess.run(run, stdout=stdout, stderr=stderr, check=False, timeout=500).returncode


def test_a_sweep_does_not_end_because_its_messages_cannot_be_written(tmp_path: Path) -> None:
    results, table = tmp_path / "results", tmp_path / "table"
    small = ("--methods", "bn_stats", "--archs", "resnet18", "--corruptions", "fog", "--limit", "20")
    assert ttabench("sweep", *small, "--workers", "0", "--out", results, out=table, err=FULL) == 0
    assert len(Store(results).latest()) == 2
    assert "fog" in table.read_text().lower()


def test_a_table_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    said = tmp_path / "said"
    assert ttabench("list", "datasets", out=FULL, err=said) == 2
    assert said.read_text() == (
        "ttabench: the output cannot be written (No space left on device); "
        "free some space, and run the same command again.\n"
    )


def test_a_mistake_keeps_its_exit_code(tmp_path: Path) -> None:
    assert ttabench("status", tmp_path / "absent", out=FULL, err=FULL) == 2


def test_where_the_copy_of_a_file_finds_no_space_the_copy_is_named() -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/theirs/a", None, "/mine/a")
    assert cli._about_path_or_disk(full).startswith("/mine/a cannot be written (No space left on device);")
