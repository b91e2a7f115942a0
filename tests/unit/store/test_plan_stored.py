from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit import other_code
from tests.unit.conftest import Run, sweep_once
from tests.unit.stored_results import filled
from ttabench.cell import Result
from ttabench.errors import UserError
from ttabench.store import Store

SMALL = ("--methods", "tent,bn_stats", "--archs", "cct", "--limit", "20", "--workers", "0")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, cache_of_the_run: Path) -> Path:
    return sweep_once(tmp_path_factory.mktemp("plan"), cache_of_the_run, *SMALL, "--corruptions", "fog,snow")


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Store:
    return Store.at(Path(shutil.copytree(made, tmp_path / "results")))


def test_the_plan_holds_every_cell_with_its_reason(store: Store) -> None:
    plan = store.plan()
    assert len(plan) == 3 * 2  # source, tent, bn_stats on two corruptions
    assert {row["id"] for row in plan} == set(store.latest())
    assert {row["reason"] for row in plan if row["base"] == "bn_stats"} == {"no batch norm"}
    assert {row["reason"] for row in plan if row["base"] != "bn_stats"} == {""}


def test_what_is_missing_is_known_without_torch(store: Store, ttabench: Run) -> None:
    shard = max(store.cells.glob("*.jsonl"), key=lambda path: path.stat().st_size)
    *lines, _last = shard.read_bytes().splitlines(keepends=True)
    shard.write_bytes(b"".join(lines))
    output = ttabench("status", store.root)
    assert "cells         6: 3 done, 0 failed, 0 stale, 1 missing, 2 n/a" in output.out
    assert " for one worker" in output.out
    code = (
        "import sys; from ttabench.cli._progress_of import Progress; from ttabench.store import Store; "
        f"from pathlib import Path; rows = Progress(Store.at(Path({str(store.root)!r}))).rows(); "
        "assert sum(row.counts['missing'] for row in rows) == 1; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'pandas', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_another_plan_replaces_it_and_an_extension_adds_to_it(store: Store, ttabench: Run) -> None:
    ids = {row["id"] for row in store.plan()}
    extension = ("--corruptions", "frost", "--out", store.root, "--extend")
    assert ttabench("sweep", *SMALL, *extension).code == 0
    assert len(store.plan()) == 9
    assert ids < {row["id"] for row in store.plan()}


def row(name: str, seed: int = 0, **protocol: Any) -> dict[str, Any]:
    about = {"method": "tent", "base": "tent", "arch": "cct", "dataset": "digits-c", "corruption": "fog"}
    given = {"mode": "online", "reset": "per_corruption", "pace": 1.0, "pace_ratio": 1.0, **protocol}
    return {**about, "id": name * 64, "severity": 5, "seed": seed, "reason": "", "protocol": given}


def test_an_extension_replaces_cells_whose_id_has_changed_and_that_were_never_run(
    tmp_path: Path, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other weights, data or compute ratios give another id: nothing would ever run the earlier cells.

    So does another default of a method, whose earlier cells are stale.
    """
    store = filled(tmp_path / "results", result)
    stored = {**row("-", seed=1), "id": result.cell.cell_id}
    continual = row("c", seed=2, reset="continual")
    store.write_plan([row("a"), stored, continual, row("o", mode="offline")])
    store.write_plan(
        [row("b", pace_ratio=3.0), row("d", seed=1), row("e", seed=2, reset="continual")], extend=True
    )
    ids = {one["id"] for one in store.plan()}
    assert ids == {result.cell.cell_id, *(name * 64 for name in "bcdeo")}
    store.write_plan([row("b", pace_ratio=3.0)], extend=True)  # the same cell again
    assert {one["id"] for one in store.plan()} == ids
    other_code.changed(monkeypatch)
    store.write_plan([row("b", pace_ratio=3.0), row("f", seed=7)], extend=True)  # not about the stored cell
    assert {one["id"] for one in store.plan()} == {*ids, "f" * 64}
    store.write_plan([row("d", seed=1)], extend=True)
    assert {one["id"] for one in store.plan()} == {*ids, "f" * 64} - {result.cell.cell_id}


def test_cells_of_other_given_weights_stay_planned(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "results", {"methods": ["tent"]})
    one, other = ({**row(name), "fixed": [f"checkpoint {name}"]} for name in "ab")
    store.write_plan([one])
    store.write_plan([other], extend=True)
    assert store.plan() == [one, other]


def test_a_damaged_plan_is_named(store: Store, ttabench: Run) -> None:
    path = store.root / "plan.jsonl"
    path.write_bytes(path.read_bytes().replace(b"snow", b"know", 1))
    line = next(n for n, text in enumerate(path.read_bytes().splitlines(), 1) if b"know" in text)
    with pytest.raises(UserError, match=rf"plan\.jsonl, line {line}, is not what .* checksum is not"):
        store.plan()
    assert ttabench("status", store.root).code == 2


def test_a_folder_without_a_plan_counts_what_is_stored(store: Store, ttabench: Run) -> None:
    (store.root / "plan.jsonl").unlink()
    output: Any = ttabench("status", store.root)
    assert "cells         6: 4 done, 0 failed, 0 stale, 0 missing, 2 n/a" in output.out
