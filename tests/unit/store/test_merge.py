"""Many shards become one that says the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import SMALL, Run
from tests.unit.stored_results import fill, filled, with_accuracy
from ttabench.cell import Result, canonical
from ttabench.errors import UserError
from ttabench.store import Record, Store
from ttabench.sweep import conduct
from ttabench.system.work_claims import FOLDER, WorkClaims


@pytest.fixture
def store(tmp_path: Path, result: Result, other: Result) -> Store:
    """Three writers, one after the other: the first result is measured twice, the third on another device."""
    store = Store.create(tmp_path / "results", {"methods": ["tent"]})
    for device, each in (("cpu", result), ("cpu", with_accuracy(result, 75.0)), ("cuda", other)):
        fill(store, each, device=device)
    return store


def output(store: Store) -> dict[str, Record]:
    """The last records without the files that they stand in."""
    return {key: replace(record, place="") for key, record in store.latest().items()}


def test_merging_keeps_the_last_record_of_each_cell_with_all_that_is_known_of_it(store: Store) -> None:
    before = output(store)
    path = store.merge()
    assert [*store.cells.iterdir()] == [path]
    assert output(store) == before
    assert {r.environment["device"] for r in before.values()} == {"cpu", "cuda"}
    assert len([*store.records()]) == 2
    assert not any(record.changes for record in store.latest().values())


def test_merging_again_changes_nothing_and_its_order_is_stable(store: Store) -> None:
    first = store.merge()
    assert first is not None
    before, lines = output(store), first.read_bytes().splitlines()[1:]
    assert store.merge() == first
    first = first.rename(first.with_name("renamed.jsonl"))  # as if a sweep had written it
    again = store.merge()
    assert again is not None
    assert output(store) == before
    assert again.read_bytes().splitlines()[1:] == lines  # the first line has the generation


def test_a_folder_where_a_sweep_runs_is_not_merged(store: Store) -> None:
    """A shard that still grows would lose what is stored while it is merged."""
    before = sorted(store.cells.iterdir())
    with (
        WorkClaims(store.root, "sweep"),
        pytest.raises(UserError, match="cannot be merged while a sweep runs there"),
    ):
        store.merge()
    assert sorted(store.cells.iterdir()) == before
    store.merge()  # it has ended
    assert len([*store.cells.iterdir()]) == 1


def test_a_folder_with_linked_cells_and_the_one_that_has_them_see_each_others_sweeps(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ttabench: Run
) -> None:
    linked = Store(tmp_path / "linked")
    linked.root.mkdir()
    (linked.root / "sweep.json").write_bytes(store.manifest.read_bytes())
    linked.cells.symlink_to(store.cells)
    with WorkClaims(store.root, "sweep"), pytest.raises(UserError, match="while a sweep runs there"):
        linked.merge()
    with monkeypatch.context() as patched:
        patched.setattr(conduct, "make_agenda", lambda *_: store.merge())  # in the middle of a sweep
        output = ttabench("sweep", *SMALL, "--out", linked.root, "--extend")
    assert f"{store.root} cannot be merged while a sweep runs there" in output.err.replace("\n", " ")
    assert len([*store.cells.iterdir()]) == 3
    assert linked.merge()
    shards = {shard.name: shard.read_bytes() for shard in store.cells.iterdir()}
    (store.root / FOLDER).rename(tmp_path / "processes")  # a merge there would not see the sweep
    (store.root / FOLDER).symlink_to(tmp_path / "processes")
    output = ttabench("sweep", *SMALL, "--out", linked.root, "--extend", "--overwrite", "always")
    assert output.code == 2
    assert f"{store.root / FOLDER} is a link" in output.err.replace("\n", " ")
    assert {shard.name: shard.read_bytes() for shard in store.cells.iterdir()} == shards


def test_two_folders_with_cells_on_another_disk_see_each_others_sweeps(store: Store, tmp_path: Path) -> None:
    """The shards are in no results folder, as where both links lead to a larger disk."""
    store.cells.rename(tmp_path / "shards")
    other = Store(tmp_path / "other")
    other.root.mkdir()
    (other.root / "sweep.json").write_bytes(store.manifest.read_bytes())
    for each in (store, other):
        each.cells.symlink_to(tmp_path / "shards")
    (home,) = other.linked_to()  # where a sweep there has a claim too
    with WorkClaims(home, "sweep"), pytest.raises(UserError, match="while a sweep runs there"):
        store.merge()
    before = output(store)
    assert store.merge()
    assert output(other) == before
    assert len([*(tmp_path / "shards").glob("*.jsonl")]) == 1


def test_a_sweep_that_starts_during_a_merge_waits_for_its_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it has looked which shards there are, a sweep takes the claim that a merge has."""
    free: list[bool] = []

    def merges(_store: Store) -> None:
        with WorkClaims(store.root, "sweep") as sweep:
            free.append(sweep.take("plan"))

    monkeypatch.setattr(Store, "_merge", merges)
    store.merge()
    with WorkClaims(store.root, "sweep") as sweep:
        free.append(sweep.take("plan"))
    assert free == [False, True]


def test_one_shard_that_has_a_cell_twice_is_merged_too(tmp_path: Path, result: Result) -> None:
    store = filled(tmp_path / "one", result, with_accuracy(result, 75.0))
    store.merge()
    (record,) = store.records()
    assert record.result.accuracy == 75.0


def test_a_result_after_a_merge_is_the_last_one(store: Store, result: Result) -> None:
    store.merge()
    fill(store, with_accuracy(result, 12.5))
    assert store.latest()[result.cell.cell_id].result.accuracy == 12.5


def test_a_merge_that_was_cut_short_loses_and_changes_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, unlink = output(store), Path.unlink

    def refuse(path: Path, *arguments: object, **options: Any) -> None:
        if path.suffix == ".jsonl":  # claims may go
            raise PermissionError(13, "Permission denied")
        unlink(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        with pytest.raises(UserError, match="cannot be written"):
            store.merge()
    assert len([*store.cells.glob("*.jsonl")]) == 4
    assert output(store) == before
    with monkeypatch.context() as patch:
        patch.setattr("ttabench.store.results_folder.replace_file", refuse)
        with pytest.raises(UserError, match="cannot be written"):
            store.merge()
    assert output(store) == before
    store.merge()
    assert output(store) == before


def test_results_of_the_first_format_stay_stale(store: Store, result: Result) -> None:
    old = replace(result, cell=replace(result.cell, seed=7))
    lines = [
        {"kind": "environment", "versions": {"python": "3.11.7"}, "machine": "Linux x86_64"},
        {"kind": "result", "written": 1.0, "source": "e" * 64, **old.to_json()},
    ]
    (store.cells / "old.jsonl").write_text("".join(canonical(line) + "\n" for line in lines))
    for _ in range(2):
        stale = {key: record.source for key, record in store.latest().items() if record.stale}
        assert stale == {old.cell.cell_id: "e" * 64}
        store.merge()
    assert len(store.latest()) == 3


def test_an_empty_store_has_nothing_to_merge(tmp_path: Path) -> None:
    assert Store.create(tmp_path / "empty", {}).merge() is None
