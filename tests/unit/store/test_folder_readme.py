"""A results folder explains itself: its README, and what `status` says of what is stored."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.unit.conftest import Output
from tests.unit.stored_results import CELL, filled, measured
from ttabench.cell.protocol import Protocol
from ttabench.store import Store
from ttabench.store.contents import Contents, facts
from ttabench.store.folder_readme import MARK, write_readme


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two protocols of one method; one cell is stored twice."""
    right = np.arange(40) < 30
    offline = replace(CELL, protocol=Protocol(mode="offline", epochs=3))
    return filled(tmp_path / "runs", *(measured(cell, right) for cell in (CELL, CELL, offline)))


def test_the_readme_says_what_ran_how_and_what_to_do(store: Store) -> None:
    path = write_readme(store)
    assert path == store.root / "README.md"
    text = path.read_text()
    lines = [line for line in text.splitlines() if line.startswith(f"| {CELL.label} | {CELL.arch} |")]
    assert len(lines) == 2  # a line for each protocol
    assert sum("| 1 done |" in line for line in lines) == 2  # a cell that is stored twice is one
    assert any("offline, batch size 200, 3 epochs" in line for line in lines)
    for command in ("status", "report", "verify", "cite"):
        assert f"ttabench {command} runs " in text
    for heading in ("Code:", "Machine:", "Data:"):
        assert f"**{heading}**" in text


def test_the_name_of_the_folder_is_quoted_for_a_shell(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    root = store.root.rename(store.root.with_name("my runs; $(x)"))
    monkeypatch.chdir(root)
    for folder in (root, Path()):  # `--out .` is this folder, too
        write_readme(Store.at(folder))
        assert "ttabench status 'my runs; $(x)' " in (root / "README.md").read_text()


def test_a_readme_of_somebody_else_is_left_alone(store: Store) -> None:
    path = store.root / "README.md"
    path.write_text("mine\n")
    assert write_readme(store) is None
    assert path.read_text() == "mine\n"
    path.write_text(f"old\n{MARK}\n")
    assert write_readme(store) == path
    assert "old" not in path.read_text()
    path.unlink()
    os.mkfifo(path)  # which nobody writes to: a sweep would wait for it at its end
    assert write_readme(store) is None


def test_a_folder_that_was_moved_away_is_not_made_again(store: Store) -> None:
    store.root.rename(store.root.with_name("elsewhere"))
    assert write_readme(store) is None
    assert not store.root.exists()


def test_several_codes_are_counted(store: Store) -> None:
    (one, *_) = store.latest_as(facts).values()
    found = Contents.of([one, one, one._replace(code="ttabench 9", machine="other")])
    assert found.code == {one.code: 2, "ttabench 9": 1}
    na = one._replace(state="n/a", code="of the planner")
    assert "of the planner" not in Contents.of([na]).code  # nothing ran


def test_status_names_protocols_code_and_machine(ttabench: Output, store: Store) -> None:
    shown = ttabench("status", store.root).out  # type: ignore[operator]
    assert "code" in shown
    assert "machine" in shown
    assert "protocol" in shown
    assert "3 epochs" in " ".join(shown.split())
