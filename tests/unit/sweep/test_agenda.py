"""Which cells of a sweep are computed again, by what is stored of them and by --overwrite."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.unit import other_code
from tests.unit.stored_results import CELL, fill, measured
from ttabench.cell import Cell, Result
from ttabench.cell.protocol import Protocol
from ttabench.store import Store
from ttabench.store.columns import COSTLY_SCORES
from ttabench.sweep.agenda import make_agenda, record_not_applicable
from ttabench.sweep.option_table import OVERWRITE
from ttabench.sweep.plan import Planned

RIGHT = np.array([True, False])
KINDS = ("ok", "stale", "failed", "failed and stale", "n/a", "nothing")
CELLS = {kind: replace(CELL, seed=seed) for seed, kind in enumerate(KINDS)}


def planned(*cells: Cell, unmet: str = "") -> list[Planned]:
    return [Planned(cell, unmet) for cell in cells]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """One cell of each of `KINDS`; what is stale was made with another `ttabench.nn`."""
    store = Store.create(tmp_path / "results", {"methods": ["tent"]})
    with monkeypatch.context() as patch:
        other_code.changed(patch)
        fill(
            store,
            measured(CELLS["stale"], RIGHT),
            Result(cell=CELLS["failed and stale"], status="failed", reason="too hard"),
        )
    fill(
        store,
        measured(CELLS["ok"], RIGHT),
        Result(cell=CELLS["failed"], status="failed", reason="too hard"),
        Result(cell=CELLS["n/a"], status="n/a", reason="no batch norm"),
    )
    return store


@pytest.mark.parametrize(
    ("overwrite", "again", "failed"),
    [
        ("never", {"n/a", "nothing"}, {"failed", "failed and stale"}),
        ("failed", {"n/a", "nothing", "failed", "failed and stale"}, set()),
        ("stale", {"n/a", "nothing", "failed", "failed and stale", "stale"}, set()),
        ("always", set(KINDS), set()),
    ],
)
def test_overwrite_says_which_stored_cells_are_computed_again(
    store: Store, overwrite: str, again: set[str], failed: set[str]
) -> None:
    agenda = make_agenda(planned(*CELLS.values()), store, overwrite)
    assert agenda.todo == [CELLS[kind] for kind in KINDS if kind in again]
    assert agenda.failed == [CELLS[kind] for kind in KINDS if kind in failed]
    assert agenda.done == [CELLS[kind] for kind in KINDS if kind not in again | failed]
    assert agenda.total == len(KINDS)
    changes = {text for texts in agenda.stale.values() for text in texts}
    assert ("ttabench/nn/batch_norm.py: AdaptiveBatchNorm.forward changed" in changes) is (
        overwrite == "stale"
    )
    assert set(agenda.stale) <= {"tent"}


def test_every_word_of_overwrite_is_tested() -> None:
    (marked,) = test_overwrite_says_which_stored_cells_are_computed_again.pytestmark
    assert [case[0] for case in marked.args[1]] == [*OVERWRITE]


def test_cells_without_the_costly_scores_are_computed_again_where_all_are_asked_for(store: Store) -> None:
    """Of a long stream there are none."""
    cells = [replace(CELL, seed=seed) for seed in range(10, 13)]
    cells[2] = replace(cells[2], protocol=Protocol(stream="recurring(2)", reset="continual"))
    writer = store.writer()
    for cell, scores in zip(cells, (("entropy",), ("entropy", *COSTLY_SCORES), ("entropy",)), strict=True):
        details = {"unlabelled": dict.fromkeys(scores, 0.5)}
        writer.append(replace(measured(cell, RIGHT), details=details))
    writer.close()
    for overwrite, scores, again in (
        ("stale", "all", cells[:1]),
        ("never", "all", []),
        ("stale", "cheap", []),
    ):
        assert make_agenda(planned(*cells), store, overwrite, scores).todo == again


def test_what_cannot_be_run_is_not_computed_whatever_is_stored(store: Store) -> None:
    for overwrite in OVERWRITE:
        agenda = make_agenda(planned(*CELLS.values(), unmet="no batch norm"), store, overwrite)
        assert [item.cell for item in agenda.not_applicable] == [*CELLS.values()]
        assert agenda.total == len(KINDS)
        assert not agenda.todo + agenda.done + agenda.failed


def test_without_a_folder_or_weights_all_is_to_do(store: Store) -> None:
    every = [*CELLS.values()]
    assert make_agenda(planned(*every), None).todo == every
    untrained = [replace(cell, checkpoint="") for cell in every]
    fill(store, Result(cell=untrained[0], status="failed", reason="without weights"))
    assert make_agenda(planned(*untrained), store, "never").todo == untrained


def test_a_cell_that_cannot_be_run_is_recorded_once(store: Store) -> None:
    cell = replace(CELL, seed=99)
    before = len([*store.records()])
    for _ in range(2):
        record_not_applicable(planned(cell, unmet="needs attention"), store)
    assert len([*store.records()]) == before + 1
    result = store.latest()[cell.cell_id].result
    assert (result.status, result.reason) == ("n/a", "needs attention")


@pytest.mark.parametrize(
    ("overwrite", "replaced"),
    [
        ("never", set()),
        ("failed", {"failed", "failed and stale"}),
        ("stale", {"failed", "failed and stale", "stale"}),
        ("always", {"failed", "failed and stale", "stale"}),
    ],
)
def test_what_cannot_be_run_any_more_replaces_what_would_be_computed_again(
    store: Store, overwrite: str, replaced: set[str]
) -> None:
    """A number of this code stays: it was measured."""
    before = store.latest()
    record_not_applicable(planned(*CELLS.values(), unmet="no layer norm"), store, overwrite)
    after = store.latest()
    for kind, cell in CELLS.items():
        result = after[cell.cell_id].result
        if kind in replaced | {"nothing"}:
            assert (result.status, result.reason) == ("n/a", "no layer norm")
        else:
            assert result == before[cell.cell_id].result
