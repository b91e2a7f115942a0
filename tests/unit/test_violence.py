"""A full disk and a closed pipe, done for real to a sweep: what was stored is kept, and the sweep goes on."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.test_two_sweeps import GRID, NET, records
from ttabench.store import load_frame

CORRUPTIONS = ("--corruptions", "fog,snow,frost,contrast")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(NET)
    return tmp_path / "results"


def start(out: Path, largest_file: int = 0, workers: int = 1) -> subprocess.Popen[str]:
    """A sweep of 8 cells whose processes cannot write files larger than that, in bytes; 0 = any."""
    command = [sys.executable, "-c", "from ttabench.cli import main; main()", "sweep", *GRID, *CORRUPTIONS]
    command += ["--workers", str(workers), "--out", str(out)]

    def limit() -> None:
        if largest_file:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))

    path = os.pathsep.join([str(out.parent), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "PAUSE": "0.05", "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=out.parent, env=environment, stdout=pipe, stderr=pipe, text=True, preexec_fn=limit
    )


def test_a_disk_that_is_full_ends_the_sweep_with_a_sentence_and_it_goes_on_later(out: Path) -> None:
    undisturbed = start(out.parent / "undisturbed")
    _, err = undisturbed.communicate(timeout=200)
    assert undisturbed.returncode == 0, err  # what it generates and measures is now in the cache
    (shard,) = (out.parent / "undisturbed" / "cells").glob("*.jsonl")
    full = start(out, largest_file=shard.stat().st_size * 2 // 3)
    _, err = full.communicate(timeout=200)
    assert full.returncode == 2, err
    assert "cannot take another result" in err
    assert "Traceback" not in err
    kept = len(records(out))
    assert 0 < kept < 8
    again = start(out)
    _, err = again.communicate(timeout=200)
    assert again.returncode == 0, err
    assert f"{8 - kept} to run, {kept} done" in err
    assert records(out) == Counter(dict.fromkeys(records(out.parent / "undisturbed"), 1))
    then = load_frame(out.parent / "undisturbed").set_index("cell_id")["accuracy"]
    assert load_frame(out).set_index("cell_id")["accuracy"].sort_index().equals(then.sort_index())


def test_a_reader_that_goes_away_ends_the_sweep_and_loses_nothing(out: Path) -> None:
    process = start(out)
    assert process.stderr
    assert process.stdout
    while "[1/8]" not in process.stderr.readline():
        assert process.poll() is None
    process.stderr.close()
    process.stdout.close()
    assert process.wait(60) != 0
    assert len(records(out)) >= 1
    again = start(out)
    _, err = again.communicate(timeout=200)
    assert again.returncode == 0, err
    assert set(records(out).values()) == {1}
    assert len(records(out)) == 8
