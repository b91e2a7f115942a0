"""The large results folders of the benchmarks have as many cells as they are asked for."""

from __future__ import annotations

from pathlib import Path

import bench_report
import bench_sweep
import pytest

from ttabench.store import Store


@pytest.mark.parametrize("cells", [1, 70, 300, 650])
def test_a_folder_has_as_many_cells_as_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cells: int
) -> None:
    """Three hundred of them have one seed."""
    monkeypatch.setattr(bench_report, "METHODS", ("source", "tent"))
    monkeypatch.setattr(bench_report, "ARCHS", ("resnet18",))
    assert bench_report.make(tmp_path / "r", 16, cells) == cells
    held = Store.at(tmp_path / "r").latest(quick=True).values()
    assert len(held) == cells
    assert {record.data["cell"]["seed"] for record in held} == {*range(-(-cells // 300))}


def test_status_and_report_are_timed_on_as_many_results_as_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[int] = []

    def command(verb: str, folder: Path, *_: str | Path) -> tuple[float, float, float]:
        timed.append(len(Store.at(folder).latest(quick=True)))
        return 1.0, 1.0, 1.0

    monkeypatch.setattr(bench_sweep, "run_command", command)
    for count in (3, 5):  # in a folder that is kept, too
        bench_sweep.results(tmp_path, count)
    assert timed == [3, 3, 5, 5]
