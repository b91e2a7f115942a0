"""What the store promises of a result: it is on the disk, it names its code, and ties are decided."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.stored_results import fill, with_accuracy
from ttabench.cell import Result
from ttabench.store import Store
from ttabench.store.contents import Contents, facts


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "results", {"methods": ["tent"]})


def test_a_result_is_on_the_disk_when_append_returns(
    store: Store, result: Result, other: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable: list[int] = []
    fsync = os.fsync

    def noting(file: int) -> None:
        fsync(file)
        durable.append(os.fstat(file).st_size)

    monkeypatch.setattr(os, "fsync", noting)
    writer = store.writer()
    for stored in (result, other, result):
        writer.append(stored)
        assert durable
        assert durable[-1] == writer.path.stat().st_size
    writer.close()


def test_a_record_names_the_code_of_its_method(store: Store, result: Result) -> None:
    cells = [replace(result.cell, method=method, label=method) for method in ("tent", "cotta")]
    fill(store, *(replace(result, cell=cell) for cell in cells))
    tent, cotta = store.records()
    for record in (tent, cotta):
        assert len(record.source) == 64
        assert int(record.source, 16)
    assert tent.source != cotta.source


def test_of_two_results_of_one_moment_the_one_stored_later_counts(
    store: Store, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttabench.store.writer.time.time", lambda: 1.7e9)
    for accuracy in (10.0, 90.0, 50.0):
        fill(store, with_accuracy(result, accuracy - 1), with_accuracy(result, accuracy))
        assert store.latest()[result.cell.cell_id].result.accuracy == accuracy


def test_a_result_of_a_clock_before_1970_is_read(
    store: Store, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a computer whose clock was never set: the time is wrong, and the number is not."""
    monkeypatch.setattr("ttabench.store.writer.time.time", lambda: -86400.0)
    fill(store, result)
    assert store.latest()[result.cell.cell_id].written == -86400.0
    contents = Contents.of(store.latest_as(facts).values())
    assert [row[-1] for row in contents.rows()] == ["1969-12-31"]


def test_of_two_results_of_one_moment_side_by_side_every_reader_takes_the_same(
    store: Store, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttabench.store.writer.time.time", lambda: 1.7e9)
    monkeypatch.setattr("ttabench.store.new_records.generation", lambda shard: 1)
    accuracy_of = {}
    for accuracy in (10.0, 90.0):
        accuracy_of[fill(store, with_accuracy(result, accuracy)).name] = accuracy
    actual = store.latest()[result.cell.cell_id].result.accuracy
    assert actual == accuracy_of[max(accuracy_of)]  # the last by name, however the folder lists them
