from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ttabench.cell import Result
from ttabench.errors import UserError
from ttabench.store import COLUMNS, Store, load_frame

SWEEP = {"methods": ["tent"], "limit": 0}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "results", SWEEP)


def fill(store: Store, *results: Result) -> Path:
    writer = store.writer()
    for result in results:
        writer.append(result)
    writer.close()
    return writer.path


def test_what_is_written_comes_back(store: Store, result: Result, other: Result) -> None:
    fill(store, result)
    fill(store, other)
    latest = Store.at(store.root).latest()
    assert {r.result.cell.cell_id: r.result for r in latest.values()} == {
        result.cell.cell_id: result,
        other.cell.cell_id: other,
    }


def test_the_last_record_of_a_cell_wins(store: Store, result: Result) -> None:
    fill(store, result, replace(result, accuracy=75.0))
    assert store.latest()[result.cell.cell_id].result.accuracy == 75.0
    fill(store, replace(result, accuracy=25.0))
    assert store.latest()[result.cell.cell_id].result.accuracy == 25.0


@pytest.mark.parametrize("keep", [1, 20, -1])
def test_a_torn_last_line_is_ignored_and_nothing_else(
    store: Store, result: Result, other: Result, keep: int
) -> None:
    path = fill(store, result, other)
    whole, torn = path.read_bytes().rstrip(b"\n").rsplit(b"\n", 1)
    path.write_bytes(whole + b"\n" + torn[:keep])
    assert list(store.latest()) == [result.cell.cell_id]


@pytest.mark.parametrize("line", [b"hello", b"[1]", b'{"kind": "result"}', b"\x00\x00", b"\xff\xfe", b"7"])
def test_a_foreign_line_is_named(store: Store, result: Result, line: bytes) -> None:
    path = fill(store, result)
    path.write_bytes(line + b"\n" + path.read_bytes())
    with pytest.raises(UserError, match=rf"{path.name}, line 1, is not a record"):
        store.latest()


def test_a_full_disk_loses_nothing_stored(
    store: Store, result: Result, other: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = store.writer()
    writer.append(result)
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: real(fd, data[: len(data) // 2]))
        with pytest.raises(UserError, match="No space left"):
            writer.append(other)

    def refuse(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(UserError, match="same command again"):
            writer.append(other)
    assert list(store.latest()) == [result.cell.cell_id]
    writer.append(other)  # there is room again
    assert len(store.latest()) == 2


def test_a_really_full_disk(store: Store, result: Result, other: Result) -> None:
    """The same against the kernel: a file-size limit makes the write itself come up short."""
    fill(store, result)
    script = f"""
import pickle, resource, signal, sys
from pathlib import Path
from ttabench.store import Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
result = pickle.loads(sys.stdin.buffer.read())
writer = Store.at(Path({str(store.root)!r})).writer()
writer.append(result)
size = writer.path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, size + 40))
try:
    writer.append(result)
except Exception as problem:
    print(type(problem).__name__)
assert writer.path.stat().st_size == size
"""
    import pickle

    done = subprocess.run(
        [sys.executable, "-c", script], input=pickle.dumps(other), capture_output=True, check=False
    )
    assert done.stdout.split() == [b"UserError"], done.stderr.decode()
    assert len(store.latest()) == 2


def test_kill_9_while_writing_leaves_whole_records(store: Store, result: Result) -> None:
    script = f"""
import pickle, sys
from dataclasses import replace
from pathlib import Path
from ttabench.store import Store
result = pickle.loads(sys.stdin.buffer.read())
writer = Store.at(Path({str(store.root)!r})).writer()
seed = 0
while True:
    writer.append(replace(result, cell=replace(result.cell, seed=seed)))
    print(seed, flush=True)
    seed += 1
"""
    import pickle

    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(pickle.dumps(result))
        process.stdin.close()
        for _ in range(20):
            said = process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split()
        process.wait()
        last = int((rest or [said])[-1])
        seeds = {r.result.cell.seed for r in store.latest().values()}
        assert seeds >= set(range(last + 1)), "a record that was acknowledged is lost"


def test_another_sweep_is_refused_unless_extended(store: Store, result: Result) -> None:
    fill(store, result)
    with pytest.raises(UserError, match=r"holds another sweep \(methods: tent → eata\)"):
        Store.create(store.root, {"methods": ["eata"], "limit": 0})
    assert store.sweep() == SWEEP
    both = Store.create(store.root, {"methods": ["eata"], "limit": 0}, extend=True)
    assert both.sweep() == {"methods": ["tent", "eata"], "limit": 0}
    assert len(both.latest()) == 1


def test_the_same_sweep_is_welcome(store: Store) -> None:
    assert Store.create(store.root, dict(SWEEP)).sweep() == SWEEP


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="not a results folder"):
        Store.create(tmp_path, SWEEP)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(UserError, match=r"no sweep\.json"):
        load_frame(tmp_path)


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    with pytest.raises(UserError, match="--out"):
        Store.create(tmp_path / "results", SWEEP)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        Store.create(tmp_path / "file" / "results", SWEEP)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "other"}', '{"format": "ttabench-results"}'])
def test_a_foreign_manifest(store: Store, text: str) -> None:
    store.manifest.write_text(text)
    with pytest.raises(UserError, match=r"sweep\.json"):
        Store.at(store.root)


def test_a_newer_store_is_not_misread(store: Store) -> None:
    manifest = json.loads(store.manifest.read_text())
    store.manifest.write_text(json.dumps({**manifest, "version": 99}))
    with pytest.raises(UserError, match="newer"):
        Store.at(store.root)


def test_frame_and_bitmap(store: Store, result: Result, other: Result) -> None:
    failed = replace(other, status="failed", reason="NaN", accuracy=None, correct=b"", n_images=0)
    fill(store, result, failed)
    frame = store.frame().set_index("corruption")
    assert [*COLUMNS] == [*store.frame().columns]
    assert frame.loc["fog", "accuracy"] == 62.5
    assert np.isnan(frame.loc["snow", "accuracy"])
    assert frame.loc["snow", "reason"] == "NaN"
    correct = store.correct(result.cell.cell_id)
    assert correct.tolist() == [True, False, True, True, False, True, True, False]
    assert 100 * correct.mean() == result.accuracy


def test_results_made_with_other_code_are_stale(store: Store, result: Result) -> None:
    fill(store, result)
    assert not store.frame()["stale"].any()
    path = next(store.cells.glob("*.jsonl"))
    record = store.latest()[result.cell.cell_id]
    path.write_bytes(path.read_bytes().replace(record.source.encode(), b"0" * 64))
    assert store.frame()["stale"].all()
