"""Names that tell cells apart, and who prints them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.conftest import Run
from tests.unit.stored_results import fill
from ttabench.cell import Cell, Result
from ttabench.cell.protocol import Protocol
from ttabench.cell.told_apart import names_of_cells
from ttabench.run.cell_group import CellGroup
from ttabench.run.progress_events import CellProgress
from ttabench.store import Store
from ttabench.sweep.agenda import plan_rows
from ttabench.sweep.loggers import Loggers
from ttabench.sweep.plan import Planned
from ttabench.sweep.progress import display
from ttabench.sweep.progress.follow import follow
from ttabench.system.work_claims import WorkClaims

SHORT, LONG = (f"ccc(40,length={length},speed=10)" for length in (400, 600))


def ccc(result: Result, stream: str) -> Result:
    protocol = Protocol(stream=stream, reset="continual")
    return replace(result, cell=replace(result.cell, corruption="ccc", severity=0, protocol=protocol))


@pytest.fixture
def streams(result: Result) -> list[Result]:
    return [ccc(result, SHORT), ccc(result, LONG)]


def test_cells_of_one_name_say_in_what_they_differ(cell: Cell) -> None:
    small = replace(cell, protocol=Protocol(batch_size=8, order="dirichlet(0.1)"))
    offline = replace(cell, protocol=Protocol(mode="offline", epochs=2))
    one, other = (replace(cell, seed=1, baseline=f"{name}@{name * 9}") for name in ("cct", "cvt"))
    cells = [replace(cell, corruption="snow"), cell, one, small, offline, other]
    assert [*names_of_cells(cells).values()] == [
        *(f"{each}" for each in cells[:1]),
        f"{cell} · online", f"{small} · online · batch_size=8 · dirichlet(0.1)",
        f"{cell} · offline · epochs=2", f"{one} · baseline=cct", f"{one} · baseline=cvt",
    ]  # fmt: skip


def test_cells_of_one_protocol_say_what_else_differs(cell: Cell) -> None:
    """As where a network was trained again, or a method has another default than before."""
    older = replace(cell, checkpoint="12" * 32, fingerprint="ab" * 32)
    slower = replace(
        cell, config=tuple((name, 0.5 if name == "lr" else value) for name, value in cell.config)
    )
    later = replace(cell, history=("fog-5", "snow-5"))
    ccc = [replace(cell, severity=0, baseline=f"cct@{2 * digit * 32}") for digit in "34"]
    names = list(names_of_cells([cell, older, later, slower, *ccc]).values())
    assert len({*names}) == len(names)
    assert " · weights 121212121212 · " in names[1]
    assert " · data abababababab" in names[1]
    assert names[2].endswith(" · after fog-5, snow-5")
    assert " · lr=0.5 · " in names[3]
    assert [name.rpartition(" · ")[2] for name in names[4:]] == [
        f"weights of the baseline {digit * 12}" for digit in "34"
    ]
    assert [*names_of_cells([cell]).values()] == [str(cell)]


def test_lines_of_progress_tell_streams_apart(
    streams: list[Result], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "EVERY", 0.0)
    first, second = (one.cell for one in streams)
    running = [
        CellProgress(str(cell), 400, 100, 100, right, key=cell.cell_id)
        for cell, right in ((first, 20), (second, 40))
    ]
    group = CellGroup(((first,), (second,)), tmp_path)
    follow([*running, *streams], [group], 1, Loggers({}))
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(str(first))[2].partition(":")[0] for line in lines] == [
        f" · {stream}" for stream in (SHORT, LONG, SHORT, LONG)
    ]


def test_status_tells_streams_apart(streams: list[Result], tmp_path: Path, ttabench: Run) -> None:
    """Two that run, and two that failed."""
    store = Store.create(tmp_path / "results", {"methods": ["tent"]})
    failed = [replace(one, cell=replace(one.cell, seed=7), status="failed", reason="NaN") for one in streams]
    store.write_plan(plan_rows(Planned(one.cell, "") for one in (*streams, *failed)))
    fill(store, *(replace(one, accuracy=None, correct=b"") for one in failed))
    with WorkClaims(store.root) as one, WorkClaims(store.root) as two:
        for claims, cell in ((one, streams[0].cell), (two, streams[1].cell)):
            assert claims.take(cell.cell_id)
            claims.report(cell=str(cell), key=cell.cell_id, seen=4, total=10)
            claims._beat()
        output = ttabench("status", store.root)
    assert "2 running, 2 failed" in output.out
    for stream in (SHORT, LONG):
        assert f"ccc · seed 0 · {stream} " in output.out
        assert f" ccc · {stream} " in output.out


def test_status_tells_cells_of_other_weights_apart(result: Result, tmp_path: Path, ttabench: Run) -> None:
    """Two that run, which the user gave weights for, and two that failed."""
    store = Store.create(tmp_path / "results", {"methods": ["tent"]})
    of = [replace(result.cell, checkpoint=digit * 64) for digit in "12"]
    store.write_plan(plan_rows(Planned(cell, "", (f"checkpoint {cell.checkpoint}",)) for cell in of))
    failed = (replace(cell, seed=7) for cell in of)
    fill(store, *(replace(result, cell=cell, status="failed", reason="NaN", accuracy=None, correct=b"")
                  for cell in failed))  # fmt: skip
    with WorkClaims(store.root) as one, WorkClaims(store.root) as two:
        for claims, cell in zip((one, two), of, strict=True):
            assert claims.take(cell.cell_id)
            claims.report(cell=str(cell), key=cell.cell_id, seen=4, total=10)
            claims._beat()
        output = ttabench("status", store.root)
    assert "2 running, 2 failed" in output.out
    for digit in "12":
        assert f"{of[0]} · weights {digit * 12} " in output.out
        assert f" {of[0].corruption} · weights {digit * 12} " in output.out
