"""What `status` says of a results folder while others compute in it."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.unit import other_code
from tests.unit.conftest import Run
from tests.unit.stored_results import fill
from ttabench.cell import Cell, Result
from ttabench.cell.protocol import Protocol
from ttabench.cli._progress_of import Progress, seconds_left
from ttabench.cli._table import make_table
from ttabench.errors import UserError
from ttabench.store import Store
from ttabench.store.new_records import NewRecords, sizes
from ttabench.sweep.agenda import plan_rows
from ttabench.sweep.plan import Planned
from ttabench.system.work_claims import WorkClaims


def planned(cell: Cell, reason: str = "") -> dict[str, object]:
    (row,) = plan_rows([Planned(cell, reason)])
    return row


@pytest.fixture
def seeds(result: Result) -> list[Result]:
    return [replace(result, cell=replace(result.cell, seed=seed), seconds=60.0) for seed in range(6)]


@pytest.fixture
def store(tmp_path: Path, seeds: list[Result]) -> Store:
    """Six planned cells of a minute; one is done, one has failed."""
    store = Store.create(tmp_path / "results", {"methods": ["tent"]})
    store.write_plan(planned(one.cell) for one in seeds)
    fill(store, seeds[0], replace(seeds[1], status="failed", reason="NaN logits", accuracy=None, correct=b""))
    return store


def test_running_cells_with_where_since_when_and_how_far(
    store: Store, seeds: list[Result], ttabench: Run
) -> None:
    begun = time.time()
    with WorkClaims(store.root) as one, WorkClaims(store.root) as two:
        assert one.take(seeds[2].cell.cell_id)
        assert two.take(seeds[3].cell.cell_id)
        one.report(cell=str(seeds[2].cell), seen=400, total=1000, scored=400, right=100, doing="")
        one._beat()
        output = ttabench("status", store.root)
        assert output.code == 0, output.err
        assert "6: 1 done, 2 running, 1 failed, 0 stale, 2 missing, 0 n/a" in output.out
        assert "left          about 2:30 with 2 running workers" in output.out
        (line,) = (line for line in output.out.splitlines() if str(seeds[2].cell) in line)
        assert f":{os.getpid()}" in line
        assert "400/1000, 25.0 %" in line
        minutes, seconds = re.search(r"  (\d+):(\d\d)  ", line).groups()  # type: ignore[union-attr]
        assert 0 <= 60 * int(minutes) + int(seconds) <= time.time() - begun + 1
        assert any(str(seeds[3].cell) in line for line in output.out.splitlines())
        assert "NaN logits" in output.out
    output = ttabench("status", store.root)
    assert "6: 1 done, 1 failed, 0 stale, 4 missing, 0 n/a" in output.out
    assert "left          about 5:00 for one worker" in output.out
    assert "running now" not in output.out


def test_a_process_that_was_killed_runs_nothing(store: Store, seeds: list[Result], ttabench: Run) -> None:
    code = (
        "import sys; from pathlib import Path; from ttabench.system.work_claims import WorkClaims\n"
        "print(WorkClaims(Path(sys.argv[1])).take(sys.argv[2]), flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(store.root), seeds[2].cell.cell_id]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "True\n"
    assert "1 running" in ttabench("status", store.root).out
    process.kill()
    process.communicate()
    assert "running" not in ttabench("status", store.root).out


def test_a_silent_process_of_another_machine_is_said_to_be_silent(
    store: Store, seeds: list[Result], ttabench: Run
) -> None:
    folder = store.root / "running"
    folder.mkdir()
    lease = {
        "host": "node7",
        "pid": 7,
        "machine": "x",
        "started": 5,
        "since": 0.0,
        "beats": 1,
        "progress": {},
    }
    (folder / "far.json").write_text(json.dumps(lease))
    (folder / f"{seeds[2].cell.cell_id}@far").touch()
    assert "no sign" not in ttabench("status", store.root).out
    begun = time.time()
    os.utime(folder / "far.json", (begun - 300, begun - 300))
    output = ttabench("status", store.root)
    assert "node7:7" in output.out
    minutes, seconds = re.search(r"no sign for (\d+):(\d\d)", output.out).groups()  # type: ignore[union-attr]
    assert 300 <= 60 * int(minutes) + int(seconds) <= 301 + time.time() - begun


def test_progress_takes_in_what_is_stored_and_begun_meanwhile(store: Store, seeds: list[Result]) -> None:
    progress = Progress(store)
    (row,) = progress.rows()
    assert (row.counts["done"], row.counts["missing"], row.counts["running"]) == (1, 4, 0)
    writer = store.writer()
    writer.append(seeds[1])
    writer.append(seeds[2])
    with WorkClaims(store.root) as claims:
        assert claims.take(seeds[3].cell.cell_id)
        progress.refresh()
        (row,) = progress.rows()
        assert row.counts == {"done": 3, "running": 1, "missing": 2}
    store.write_plan([planned(seeds[5].cell, "no batch norm")], extend=True)
    progress.refresh()
    (row,) = progress.rows()
    assert row.counts == {"done": 3, "missing": 2, "n/a": 1}
    writer.append(seeds[4])
    writer.close()
    text = writer.path.read_bytes()
    writer.path.write_bytes(text[:-60] + b"x" + text[-59:])
    with pytest.raises(UserError, match="checksum"):
        progress.refresh()


def test_what_is_left_is_estimated_from_the_place_then_the_method_then_all(
    store: Store, seeds: list[Result]
) -> None:
    def left(**changed: object) -> tuple[float, bool]:
        cell = replace(seeds[0].cell, **changed)  # type: ignore[arg-type]
        store.write_plan([planned(cell)])
        rows = [row for row in Progress(store).rows() if row.counts["missing"]]
        return seconds_left(rows, 1) or (0.0, True)

    assert left(seed=9, fingerprint="new") == (120.0, True)  # and the failed cell of the same place
    assert left(arch="cct", fingerprint="new") == (60.0, True)
    assert left(method="eata", label="eata") == (60.0, False)
    busy = [replace(one, seconds=seconds) for one, seconds in zip(seeds[1:4], (60.0, 60.0, 1e5), strict=True)]
    writer = store.writer()
    for one in busy:
        writer.append(one)
    writer.close()
    assert left(arch="cct", fingerprint="new") == (60.0, True)


def test_watch_ends_when_nothing_is_left(store: Store, seeds: list[Result]) -> None:
    start = "from ttabench.cli import main; main()"
    command = [sys.executable, "-c", start, "status", "--watch", str(store.root)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert "6: 1 done, 1 failed" in process.stdout.readline()
    fill(store, *seeds[1:])
    rest, _ = process.communicate(timeout=300)
    assert "6: 6 done, 0 failed, 0 stale, 0 missing" in rest.splitlines()[-1]
    assert process.returncode == 0


def test_a_tail_gives_each_new_result_once_and_no_part_of_one(store: Store, seeds: list[Result]) -> None:
    tail = NewRecords(store.root, sizes(store.root))
    assert list(tail.look()) == []
    writer = store.writer()
    writer.append(seeds[3])
    ((key, _),) = tail.look()
    assert key == seeds[3].cell.cell_id
    assert tail.result(key) == seeds[3]
    whole = writer.path.read_bytes()
    writer.append(seeds[4])
    more = writer.path.read_bytes()[len(whole) :]
    writer.close()
    for cut in (1, 200, len(more) - 1):
        writer.path.write_bytes(whole + more[:cut])
        assert not tail.has(seeds[4].cell.cell_id)
    writer.path.write_bytes(whole + more)
    assert tail.has(seeds[3].cell.cell_id, seeds[4].cell.cell_id)
    assert not tail.has(seeds[0].cell.cell_id)  # stored before
    every = NewRecords(store.root, {})
    assert every.has(*(one.cell.cell_id for one in seeds[:2]))
    assert every.result(seeds[4].cell.cell_id) == seeds[4]


def test_a_tail_that_begins_while_a_line_is_written_has_this_line_whole(
    store: Store, seeds: list[Result]
) -> None:
    writer = store.writer()
    writer.append(seeds[3])
    whole = writer.path.read_bytes()
    writer.append(seeds[4])
    writer.close()
    more = writer.path.read_bytes()[len(whole) :]
    for cut in (1, more.index(b'"id":') - 1, len(more) - 1):
        writer.path.write_bytes(whole + more[:cut])
        tail = NewRecords(store.root, sizes(store.root))
        writer.path.write_bytes(whole + more)
        assert not tail.has(seeds[3].cell.cell_id)
        assert tail.has(seeds[4].cell.cell_id)
        assert tail.result(seeds[4].cell.cell_id) == seeds[4]


def test_a_tail_does_not_trust_the_size_that_a_network_folder_has_kept(
    store: Store, seeds: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS keeps what `stat` said of a file for seconds, but not of a file that is opened."""
    writer = store.writer()
    writer.append(seeds[2])
    kept = {str(path): path.stat() for path in store.cells.iterdir()}
    tail = NewRecords(store.root, sizes(store.root))
    writer.append(seeds[3])
    writer.close()
    monkeypatch.setattr(Path, "stat", lambda path, **options: kept.get(str(path)) or os.stat(path, **options))
    assert tail.has(seeds[3].cell.cell_id)
    now = NewRecords(store.root, sizes(store.root))
    assert not now.has(seeds[3].cell.cell_id)  # stored before this point in time


def test_the_options_are_those_of_the_cells(tmp_path: Path, result: Result, ttabench: Run) -> None:
    """A stream is reset otherwise than the rest of a sweep, and a folder may have several orders."""
    sweep = {"methods": ["tent"], "reset": "per_corruption", "order": "iid", "limit": 0, "pace": 0.0}
    store = Store.create(tmp_path / "results", sweep)
    protocols = (
        Protocol(),
        Protocol(order="dirichlet(0.1)"),
        Protocol(stream="gradual", reset="continual", limit=50),
    )
    fill(store, *(replace(result, cell=replace(result.cell, protocol=one)) for one in protocols[1:]))

    def shown() -> dict[str, str]:
        lines = ttabench("status", store.root).out.splitlines()
        return {line[:13].strip(): line[14:] for line in lines if line[:1].strip()}

    assert "digits-c" in shown()  # it has fog, which the sweep did not name
    assert shown()["reset"] == "per_corruption, continual"
    assert shown()["order"] == "iid, dirichlet(0.1)"
    assert shown()["limit"] == "all, 50"
    assert shown()["stream"] == "none, gradual"
    assert not {"pace", "held_out", "contamination"} & shown().keys()
    for shard in store.cells.iterdir():
        shard.unlink()
    cell = replace(result.cell, corruption="gradual", severity=0, protocol=protocols[2])
    fill(store, replace(result, cell=cell))
    assert "digits-c" not in shown()
    assert (shown()["reset"], shown()["stream"]) == ("continual", "gradual")
    store.write_plan([planned(replace(result.cell, protocol=protocols[0]))])
    assert shown()["reset"] == "per_corruption, continual"


def test_watch_ends_where_what_failed_is_left_and_no_sweep_is_at_work(
    store: Store, seeds: list[Result]
) -> None:
    progress = Progress(store)
    assert progress.is_open()  # cells are missing
    fill(store, *seeds[2:])
    with WorkClaims(store.root, "sweep"):
        progress.refresh()
        assert progress.is_open()  # it may compute the failed cell again
    assert [cell.state for cell in progress.cells()].count("failed") == 1
    assert not progress.is_open()


@pytest.mark.parametrize("width", [30, 60, 80])
def test_no_number_or_heading_is_cut_on_any_terminal(width: int) -> None:
    headings = ("method", "arch", "dataset", "done", "failed", "stale", "missing", "n/a", "left")
    row = ("quantile_paper", "resnet18_w16", "cifar100-c", "1200", "3000", "0", "14", "10", "1:23:45")
    console = Console(width=width, file=io.StringIO())
    console.print(make_table(headings, [row, row]))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    for number in row[3:]:
        assert len(re.findall(rf"(?<!\d){number}(?!\d)", text)) >= 2, number
    if width < 80:  # a row is a list, and each value stands beside its heading
        lines = [line.split() for line in text.splitlines() if line.strip()]
        assert lines == [list(pair) for pair in zip(headings, row, strict=True)] * 2


def test_headings_of_counts_are_whole_at_80_columns() -> None:
    headings = ("method", "arch", "dataset", "done", "running", "failed", "stale", "missing", "n/a", "left")
    row = ("quantile_paper", "resnet18_w16", "cifar100-c", "9", "2", "0", "0", "14", "0", "1:23")
    console = Console(width=80, file=io.StringIO())
    console.print(make_table(headings, [row]))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= 80
    for heading in headings[3:]:
        assert any(heading in line for line in lines), heading


def test_the_options_are_those_of_all_sweeps_of_the_folder(store: Store, ttabench: Run) -> None:
    (store.root / "sweep.toml").write_text('methods = ["tent"]\n')
    (store.root / "sweep-2.toml").write_text('methods = ["tent"]\nmode = "offline"\nepochs = 3\n')
    output = ttabench("status", store.root)
    assert "mode          native, offline\n" in output.out
    assert "epochs        each method's own, 3\n" in output.out
    assert "batch_size" not in output.out


def test_the_logs_of_a_cluster_are_named_with_their_number(store: Store, ttabench: Run) -> None:
    """Each sweep has a folder of its own."""
    for name in ("ttabench-1a2b3c4d/0.log", "ttabench-5e6f7a8b/13.log"):
        log = store.root / "tasks" / name
        log.parent.mkdir(parents=True)
        log.touch()
    out = ttabench("status", store.root).out.replace("\n", "")
    assert f"{store.root / 'tasks'}, of 2 tasks of Slurm or Ray" in out


def test_stale_cells_that_no_sweep_measures_again_are_counted(
    store: Store, seeds: list[Result], ttabench: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a new default of a setting: the same sweep then has other cells."""
    other_code.changed(monkeypatch)
    said = "in no sweep of this folder, so no sweep measures them again: tent (1)"
    assert said not in ttabench("status", store.root).out
    store.write_plan(planned(one.cell) for one in seeds[1:])
    output = ttabench("status", store.root).out
    assert "1 stale cell of tent" in output
    assert said in output
    store.write_plan([])  # a folder without a plan says nothing of its sweeps
    assert said not in ttabench("status", store.root).out
