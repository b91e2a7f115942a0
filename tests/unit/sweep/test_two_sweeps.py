"""Two sweeps on one results folder: each cell is computed once, and what a killed sweep had is taken over."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit import other_code
from tests.unit.conftest import Output, Run
from tests.unit.stored_results import fill
from tests.unit.sweep_processes import GRID, environment, records, wait_for
from ttabench.cell import Cell
from ttabench.data import catalog
from ttabench.data.catalog import dataset
from ttabench.store import Store, load_frame, results_folder
from ttabench.sweep import compute_ratio, draft
from ttabench.sweep.sweep_file import keep
from ttabench.system.work_claims import ID, WorkClaims


def start(out: Path, *options: str, pause: float = 0.02) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from ttabench.cli import main; main()", "sweep", *GRID, *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*command, "--out", str(out)], cwd=out.parent, env=environment(out.parent, pause),
        stdout=pipe, stderr=pipe, text=True,
    )  # fmt: skip


def while_it_waits(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """Let something happen whenever the sweep of this process waits for another one."""
    real = time.sleep

    def sleep(seconds: float) -> None:
        if seconds in (0.5, 0.2):  # for cells, or for what one process does alone
            meanwhile()
        real(seconds)

    monkeypatch.setattr(time, "sleep", sleep)


def claimed(out: Path) -> int:
    """How many cells are claimed; a sweep claims its plan too, before it has a worker."""
    return len(list((out / "running").glob("?" * ID + "@*")))


@pytest.mark.slow
def test_two_sweeps_share_the_cells_and_both_end_with_all_of_them(here: Path) -> None:
    one = start(here, "--workers", "1", pause=0.15)  # so slow that the second one finds cells to compute
    wait_for(lambda: claimed(here) >= 1)
    two = start(here, "--workers", "1")
    for process in (one, two):
        _, err = process.communicate(timeout=500)
        assert process.returncode == 0, err
        assert "30 cells, 0 failed" in err
    assert "Another sweep runs in this folder" in err
    assert set(records(here).values()) == {1}
    assert len(records(here)) == 30
    assert os.listdir(here / "running") == []


def test_the_cells_of_a_killed_sweep_are_taken_over_by_one_that_waits(
    ttabench: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = start(here, "--workers", "1", "--corruptions", "fog", pause=600)  # it is killed
    wait_for(lambda: claimed(here) >= 1)
    waited: list[int] = []

    def is_killed() -> None:
        if not waited:
            waited.append(len(records(here)))
            slow.kill()
            slow.communicate()

    while_it_waits(monkeypatch, is_killed)
    output = ttabench("sweep", *GRID, "--corruptions", "fog", "--workers", "0", "--out", here)
    assert output.code == 0, output.err
    assert re.search(r"Waiting for 1 cell .*other processes compute: \S+:\d+\.", output.err)
    assert waited == [1]
    assert set(records(here).values()) == {1}
    assert set(load_frame(here)["status"]) == {"ok"}


def test_a_cell_that_another_process_stores_is_waited_for_and_not_computed(
    ttabench: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = ("sweep", *GRID, "--corruptions", "fog,snow", "--workers", "0", "--out")
    assert ttabench(*usual, here.parent / "alone").code == 0
    alone = Store.at(here.parent / "alone").latest()
    key, record = next(iter(alone.items()))
    Store.create(here, Store.at(here.parent / "alone").sweep())
    with WorkClaims(here) as other:
        assert other.take(key)
        waited: list[int] = []

        def stores() -> None:
            if not waited:
                waited.append(len(records(here)))
                fill(Store.at(here), record.result)
                other.release(key)

        while_it_waits(monkeypatch, stores)
        output = ttabench(*usual, here)
    assert output.code == 0, output.err
    assert waited == [3]
    assert records(here) == Counter(dict.fromkeys(alone, 1))
    assert "[4/4]" in output.err


@pytest.mark.parametrize(("overwrite", "said"), [("stale", True), ("always", True), ("never", False)])
def test_a_cell_that_another_sweep_measured_with_other_code_is_told(
    ttabench: Run, here: Path, monkeypatch: pytest.MonkeyPatch, overwrite: str, said: bool
) -> None:
    usual = ("sweep", *GRID, "--corruptions", "fog", "--workers", "0", "--overwrite", overwrite, "--out")
    assert ttabench(*usual, here).code == 0
    key, record = next(iter(Store.at(here).latest().items()))
    (here / "cells").rename(here.parent / "measured")
    with WorkClaims(here) as other:
        assert other.take(key)

        def stores() -> None:
            if other.where(key):
                with monkeypatch.context() as patch:
                    other_code.changed(patch)
                    Store.at(here).writer().append(record.result)
                other.release(key)

        while_it_waits(monkeypatch, stores)
        output = ttabench(*usual, here)
    warning = "1 of these cells was measured with other code, by another sweep or before files changed;"
    assert (output.code, warning in output.err) == (int(said), said)
    last = ttabench(*usual, here)
    assert (last.code, "measured with other code" in last.err) == (0, False)
    assert Store.at(here).latest()[key].stale is not said


@pytest.mark.parametrize("killed", [False, True])
def test_a_continual_run_that_began_before_a_sweep_is_waited_for_and_starts_again_if_its_process_dies(
    ttabench: Run, here: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    usual = ("sweep", *GRID, "--corruptions", "fog,snow,frost", "--reset", "continual", "--workers", "0")
    assert ttabench(*usual, "--out", here.parent / "alone").code == 0
    results = [record.result for record in Store.at(here.parent / "alone").records()]
    chain = [result for result in results if result.cell.method == "bn_stats"]
    writer = Store.create(here, Store.at(here.parent / "alone").sweep()).writer()
    writer.append(chain[0])
    with WorkClaims(here) as other:
        assert other.take(chain[0].cell.cell_id)
        left = [[chain[1]], [] if killed else [chain[2]]]

        def goes_on() -> None:
            writer.extend(left.pop(0))
            if not left:
                other.release(chain[0].cell.cell_id)

        while_it_waits(monkeypatch, goes_on)
        output = ttabench(*usual, "--out", here)
    assert output.code == 0, output.err
    assert "Waiting for 2 cells that other processes compute" in output.err
    assert "[5/5]" in output.err
    assert "/6]" not in output.err
    again = Counter(result.cell.cell_id for result in chain[:2] if killed)
    assert records(here) == Counter(result.cell.cell_id for result in results) + again


def test_compute_ratios_are_measured_by_one_sweep_of_a_folder(
    ttabench: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = ("sweep", *GRID, "--corruptions", "fog", "--pace", "1", "--workers", "0", "--out")
    measured: list[float] = []
    monkeypatch.setattr(compute_ratio, "measured", lambda cell, device: measured.append(2.0) or 2.0)
    assert ttabench(*usual, here.parent / "other").code == 0
    Store.create(here, Store.at(here.parent / "other").sweep())
    with WorkClaims(here) as other:
        assert other.take("pace")

        def measures() -> None:
            if other.where("pace") and not (here / compute_ratio.FILE).exists():
                text = (here.parent / "other" / compute_ratio.FILE).read_text()
                (here / compute_ratio.FILE).write_text(text.replace("2.0", "3.0"))
                other.release("pace")

        while_it_waits(monkeypatch, measures)
        output = ttabench(*usual, here)
    assert output.code == 0, output.err
    assert re.search(r"Waiting for \S+:\d+: it measures compute ratios\.", output.err)
    assert measured == [2.0]
    ratios = {row.result.cell.protocol.pace_ratio for row in Store.at(here).latest().values()}
    assert ratios == {1.0, 3.0}


def test_of_two_sweeps_that_start_together_in_a_new_folder_one_is_refused_or_joins(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, make_folder = tmp_path / "new", Store.make_folder
    small = ("--archs", "cct", "--corruptions", "fog", "--limit", "20", "--workers", "0", "--out", out)

    def the_other_is_faster(store: Store, sweep: dict[str, Any], *, extend: bool = False) -> None:
        make_folder(store, sweep, extend=extend)
        store.join({**sweep, "methods": ["neo"]})

    monkeypatch.setattr(Store, "make_folder", the_other_is_faster)
    refused = ttabench("sweep", "--methods", "tent", *small)
    assert refused.code == 2
    assert "holds the results of another sweep" in refused.err
    assert not (out / "sweep.toml").exists()
    monkeypatch.undo()
    assert ttabench("sweep", "--methods", "source", *small, "--extend").code == 0
    assert Store.at(out).sweep()["methods"] == ["neo", "source"]


def test_a_new_folder_that_another_sweep_fills_between_two_looks_is_no_foreign_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, sweep, is_free = Store(tmp_path), {"methods": ["tent"]}, results_folder._is_free

    def after_the_other(root: Path) -> bool:
        monkeypatch.undo()
        store.join(sweep)
        keep("", root)
        return is_free(root)

    monkeypatch.setattr(results_folder, "_is_free", after_the_other)
    store.make_folder(sweep)
    assert store.cells.is_dir()


def test_a_folder_is_joined_by_one_sweep_at_a_time(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, join, held = tmp_path / "new", Store.join, list[int]()

    def watched(store: Store, sweep: dict[str, Any], *, extend: bool = False) -> None:
        held.append(len(list((out / "running").glob("plan@*"))))
        join(store, sweep, extend=extend)

    monkeypatch.setattr(Store, "join", watched)
    small = ("--archs", "cct", "--corruptions", "fog", "--limit", "20", "--workers", "0")
    assert ttabench("sweep", "--methods", "source", *small, "--out", out).code == 0
    assert held == [1]


def test_a_sweep_that_joins_the_folder_while_another_measures_ratios_stays_in_the_plan(
    ttabench: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[Output] = []
    added = ("sweep", "--extend", *GRID, "--corruptions", "snow", "--workers", "0", "--out", here)

    def measured(cell: Cell, device: str) -> float:
        joined.append(ttabench(*added))
        return 2.0

    monkeypatch.setattr(compute_ratio, "measured", measured)
    first = ttabench("sweep", *GRID, "--corruptions", "fog", "--pace", "1", "--workers", "0", "--out", here)
    assert [output.code for output in (first, *joined)] == [0, 0]
    assert {row["id"] for row in Store.at(here).plan()} == records(here).keys()
    assert {row["corruption"] for row in Store.at(here).plan()} == {"fog", "snow"}


def test_a_sweep_is_not_refused_where_another_joins_its_folder_before_it(
    ttabench: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = ("sweep", *GRID, "--corruptions", "fog", "--workers", "0", "--out", here)
    assert ttabench(*again).code == 0
    make_folder = Store.make_folder

    def another_joins_then(store: Store, sweep: dict[str, Any], *, extend: bool = False) -> None:
        make_folder(store, sweep, extend=extend)
        monkeypatch.setattr(Store, "make_folder", make_folder)
        added = ("sweep", "--extend", *GRID, "--corruptions", "snow", "--workers", "0", "--out", here)
        assert ttabench(*added).code == 0

    monkeypatch.setattr(Store, "make_folder", another_joins_then)
    output = ttabench(*again)
    assert output.code == 0, output.err
    assert {row["corruption"] for row in Store.at(here).plan()} == {"fog", "snow"}


def test_a_sweep_that_waits_for_the_training_of_another_says_so(
    ttabench: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = ("sweep", *GRID, "--corruptions", "fog", "--workers", "0", "--out")
    assert ttabench(*usual, here.parent / "other").code == 0
    Store.create(here, Store.at(here.parent / "other").sweep())
    untrained = ["net"]
    with WorkClaims(here) as other:
        assert other.take("training")

        def trains() -> None:
            untrained.clear()
            other.release("training")

        monkeypatch.setattr(draft.Draft, "untrained", property(lambda self: list(untrained)))
        while_it_waits(monkeypatch, trains)
        output = ttabench(*usual, here)
    assert output.code == 0, output.err
    assert re.search(r"Waiting for \S+:\d+: it trains source classifiers\.", output.err)
    assert ": training." not in output.err


@pytest.mark.slow
@pytest.mark.parametrize("reset", ["per_corruption", "continual"])
def test_a_worker_that_dies_after_it_stored_computes_nothing_twice(
    here: Path, reset: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import multiprocessing, os, pathlib, signal, sys\n"
        "if 'from multiprocessing' in ' '.join(sys.orig_argv):\n"
        "    def hook(event, arguments):\n"
        "        once = pathlib.Path('once')\n"
        "        if event == 'os.remove' and '@' in str(arguments[0]) and not once.exists():\n"
        "            once.touch()\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "    sys.addaudithook(hook)\n"
    )
    process = start(here, "--workers", "1", "--corruptions", "fog,snow", "--reset", reset)
    _, err = process.communicate(timeout=500)
    assert process.returncode == 0, err
    assert (tmp_path / "once").exists()
    assert set(records(here).values()) == {1}
    assert len(records(here)) == 4


def test_workers_open_the_folder_of_their_sweep_though_another_one_of_this_name_was_opened_since(
    ttabench: Run, here: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = shutil.copytree("few-c-local", here.parent / "other" / "few-c-local")
    dataset(str(other))
    theirs = catalog._path_note("few-c-local")
    note = theirs.read_bytes()
    monkeypatch.setattr(catalog, "_path_note", lambda name: here.parent / f"{name}.json")
    np.save(other / "fog-5.npy", np.load(other / "fog-5.npy") ^ 1)
    output = ttabench("sweep", *GRID, "--corruptions", "fog", "--workers", "1", "--out", here)
    assert output.code == 0, output.err
    assert theirs.read_bytes() == note
    fingerprints = set(load_frame(here)["fingerprint"])
    assert fingerprints == {dataset("./few-c-local").fingerprint()} != {dataset(str(other)).fingerprint()}
