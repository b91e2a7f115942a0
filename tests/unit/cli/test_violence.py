"""A full disk and a closed pipe, done for real to a sweep: what was stored is kept, and the sweep goes on."""

from __future__ import annotations

import os
import resource
import runpy
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cases import each
from tests.unit.sweep_processes import GRID, NET, environment, records, wait_for
from ttabench.store import load_frame

CORRUPTIONS = ("--corruptions", "fog,snow,frost,contrast")


@pytest.fixture
def out(net_out: Path) -> Path:
    return net_out


@pytest.fixture
def finished() -> Callable[[Path], str]:
    """Runs the sweep to its end; what it says."""

    def run(folder: Path) -> str:
        process = start(folder)
        _, err = process.communicate(timeout=500)
        assert process.returncode == 0, err
        return err

    return run


def start(
    out: Path, largest_file: int = 0, workers: int = 1, pipe: int = subprocess.PIPE, pause: float = 0
) -> subprocess.Popen[str]:
    """A sweep of 8 cells whose processes cannot write files larger than that, in bytes; 0 = any.

    pipe   for its output. pause: seconds of each forward pass.
    """
    command = [sys.executable, "-c", "from ttabench.cli import main; main()", "sweep", *GRID, *CORRUPTIONS]
    command += ["--workers", str(workers), "--out", str(out)]

    def limit() -> None:
        if largest_file:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))

    return subprocess.Popen(
        command, cwd=out.parent, env=environment(out.parent, pause), stdout=pipe, stderr=pipe, text=True,
        preexec_fn=limit,
    )  # fmt: skip


@pytest.mark.slow
def test_a_disk_that_is_full_ends_the_sweep_with_a_sentence_and_it_goes_on_later(
    out: Path, finished: Callable[[Path], str]
) -> None:
    finished(out.parent / "undisturbed")  # what it generates and measures is now in the cache
    (shard,) = (out.parent / "undisturbed" / "cells").glob("*.jsonl")
    full = start(out, largest_file=shard.stat().st_size * 2 // 3)
    _, err = full.communicate(timeout=500)
    assert full.returncode == 2, err
    assert "cannot take another result" in err
    assert "Traceback" not in err
    kept = len(records(out))
    assert 0 < kept < 8
    err = finished(out)
    assert f"{8 - kept} to run, {kept} done" in err
    assert records(out) == Counter(dict.fromkeys(records(out.parent / "undisturbed"), 1))
    then = load_frame(out.parent / "undisturbed").set_index("cell_id")["accuracy"]
    assert load_frame(out).set_index("cell_id")["accuracy"].sort_index().equals(then.sort_index())


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_the_sweep_and_loses_nothing(
    out: Path, finished: Callable[[Path], str]
) -> None:
    process = start(out, pause=0.05)
    assert process.stderr
    assert process.stdout
    while "[1/8]" not in process.stderr.readline():
        assert process.poll() is None
    process.stderr.close()
    process.stdout.close()
    assert process.wait(300) != 0
    assert len(records(out)) >= 1
    finished(out)
    assert set(records(out).values()) == {1}
    assert len(records(out)) == 8


def full_pipe() -> tuple[int, int]:
    """(reader, writer) of a pipe that takes nothing more."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    return reader, writer


@pytest.mark.slow
def test_a_reader_that_never_reads_does_not_hold_a_sweep_up(out: Path) -> None:
    reader, writer = full_pipe()
    process = start(out, pipe=writer)
    os.close(writer)
    wait_for(lambda: (out / "sweep.json").exists() and len(records(out)) == 8)
    text = b""  # the table waits for the reader; all is stored by then
    while part := os.read(reader, 1 << 16):
        text += part
    assert process.wait(300) == 0
    assert b"bn_stats" in text
    assert b"Traceback" not in text
    os.close(reader)


@pytest.mark.slow
def test_a_sweep_that_nobody_reads_ends_after_sigterm(out: Path) -> None:
    reader, writer = full_pipe()
    process = start(out, pipe=writer, pause=0.5)
    os.close(writer)
    wait_for(lambda: (out / "sweep.json").exists() and len(records(out)) >= 1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 143  # 5 s, and more on a busy machine
    os.close(reader)
    kept = len(records(out))
    assert kept < 8
    again = start(out)
    _, err = again.communicate(timeout=500)
    assert again.returncode == 0, err
    assert f"{8 - kept} to run, {kept} done" in err
    assert set(records(out).values()) == {1}


@pytest.mark.slow
def test_head_reads_one_line_of_the_table_and_nothing_is_lost(out: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", "from ttabench.cli import main; main()", "sweep", *GRID, *CORRUPTIONS]
    done = subprocess.run(
        [*command, "--workers", "1", "--out", str(out)], cwd=out.parent, stdout=writer, timeout=500,
        env=environment(out.parent, pause=0), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(writer)
    assert set(records(out).values()) == {1}
    assert len(records(out)) == 8
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


BAD = (
    NET
    + """
held = []
class Bad(Net):
    how = ""
    def forward(self, x):
        if multiprocessing.parent_process():
            if self.how == "crashes":
                os.kill(os.getpid(), 11)
            while self.how == "hangs":
                time.sleep(1)
            while self.how == "grows" and len(held) < 40:
                held.append(bytearray(b"x") * 100_000_000)
                time.sleep(0.2)
            if self.how == "nan" and len(x) == 20:  # the images of a cell, not those that find the last layer
                x = x * float("nan")
        return super().forward(x)
def bad(how):
    def build_bad(num_classes):
        net = Bad(*build(num_classes))
        net.how = how
        return net
    return build_bad
crashes, hangs, grows, nan = map(bad, ("crashes", "hangs", "grows", "nan"))
"""
)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_cells_that_crash_hang_or_grow_are_recorded_and_cost_no_other(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    out = tmp_path / "results"
    command = [sys.executable, "-c", "from ttabench.cli import main; main()"]
    archs = "bad:build,bad:crashes,bad:hangs,bad:grows,bad:nan"
    sweep = ["sweep", "--archs", archs, "--methods", "source", "--corruptions", "fog", "--limit", "20"]
    limits = ["--cell-timeout", "20", "--cell-memory", "1.5", "--workers", "2"]
    done = subprocess.run(
        [*command, *sweep, *limits, "--out", str(out)], cwd=tmp_path, env=environment(tmp_path),
        capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    cells = load_frame(out).set_index(["arch", "corruption"])
    assert len(cells) == 5
    assert set(cells.loc["bad:build", "status"]) == {"ok"}
    reasons = {arch: set(cells.loc[arch, "reason"]) for arch in archs.split(",")}
    assert reasons == {
        "bad:build": {""},
        "bad:crashes": {
            "the worker process was killed by SIGSEGV (a crash in native code), twice, the second time alone"
        },
        "bad:hangs": {"it ran longer than 20 s and was stopped"},
        "bad:grows": {"the worker process grew beyond 1.5 GB of memory, twice, the second time alone"},
        "bad:nan": {"batch 1: the model returned NaN logits"},
    }
    output = subprocess.run(
        [*command, "status", str(out)], env=environment(tmp_path), capture_output=True, text=True, check=True
    ).stdout
    assert "5: 1 done, 4 failed" in output
    assert "SIGSEGV" in output


def test_ctrl_c_while_the_command_is_imported_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def __getattr__(self, name: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "ttabench.cli", Interrupted())
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # Ctrl-C still ends these tests
    with pytest.raises(SystemExit) as left:
        runpy.run_module("ttabench", run_name="__main__")
    assert left.value.code == 130


LEAVES = """
import os, signal, sys, threading, time
from ttabench import cli
from ttabench.__main__ import main

def again() -> None:
    while threading.main_thread().is_alive():  # until Python waits for this thread
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(300)

def interrupted() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=again).start()
    sys.exit(130)

cli.main = interrupted
main()
"""


def test_ctrl_c_once_more_ends_the_command_at_once_and_without_a_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", LEAVES], capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stderr) == (130, "")


TWICE = """
import atexit, os, signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from ttabench import cli
from ttabench.__main__ import main

def press(times: int) -> None:
    for _ in range(times):
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

def computing() -> None:
    with ThreadPoolExecutor(1) as pool:  # as --workers 0 does, which waits for the batch
        pool.submit(time.sleep, 300)
        threading.Thread(target=press, args=(2,), daemon=True).start()
        time.sleep(300)

signal.signal(signal.SIGINT, signal.default_int_handler)
cli._main = computing
atexit.register(print, "Python is taken down")
main()
"""


def test_a_second_ctrl_c_takes_nothing_down_around_a_batch_that_is_computed() -> None:
    """Python forgets a thread if Ctrl-C ends the wait for it; torch in this thread then aborts Python."""
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


IMPORTS = """
import os, signal, sys
from importlib.abc import MetaPathFinder
from ttabench.__main__ import main

class CtrlC(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "numpy.exceptions":
            sys.meta_path.remove(self)
            os.kill(os.getpid(), NUMBER)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, CtrlC())
sys.argv[1:] = ["sweep", "--archs", "resnet18", "--methods", "source", "--limit", "10", "--dry-run"]
main()
"""


@each("number, code, said", [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "ended by SIGTERM")])
def test_a_signal_while_torch_imports_numpy_ends_the_command(
    number: int, code: int, said: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", IMPORTS.replace("NUMBER", str(int(number)))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"ttabench: {said}.\n")


def test_a_closed_stream_of_errors_changes_no_exit_code() -> None:
    command = f"{sys.executable} -m ttabench status nowhere 2>&-"
    assert subprocess.run(command, shell=True, capture_output=True, timeout=200).returncode == 2
