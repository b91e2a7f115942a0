"""The pieces of the cost table: what is counted, and that a method without its decorruptor is just that."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import cost_methods as cost
from bench_methods import Case, classifier
from bench_methods import prepared as adapter

from ttabench.errors import UserError
from ttabench.method import Method

OPTIONS = Namespace(
    methods="tent,quantile[epochs=4],quantile[minibatch=5]", arch="resnet18", dataset="digits-c",
    corruption="fog", severity=5, mode="native", batch=8, limit=20, checkpoint="", normalize="",
)  # fmt: skip


def ready(name: str) -> Method[Any]:
    method = adapter(Case(name), classifier("resnet18", width=8))
    assert not isinstance(method, str)
    return method


@pytest.fixture
def works(classifiers: None) -> dict[str, cost.Work]:
    """By label, of untrained classifiers."""
    grid = cost.grid_of(OPTIONS)
    sweep = cost.resolve(grid)
    planned = cost.plan(sweep, [cost.classifier_of(sweep, "cpu")])
    return {p.cell.label: cost.Work(p.cell, "cpu", 1, 1) for p in planned}


def test_what_is_trained_and_what_is_held() -> None:
    network = classifier("resnet18", width=8)
    size = sum(p.numel() for p in network.parameters())
    source, tent, teacher, ours = map(ready, ("source", "tent", "cotta", "quantile"))
    assert cost.trained(source) == 0
    affine = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    assert cost.trained(tent) == sum(2 * m.num_features for m in affine)
    assert cost.trained(teacher) == size
    assert cost.trained(ours) == sum(p.numel() for p in ours.decorruptor.parameters())  # type: ignore[attr-defined]
    assert [cost.held(m) for m in (source, tent, teacher)] == [
        size,
        size,
        3 * size,
    ]  # student, teacher, anchor
    assert cost.held(ours) == size + cost.trained(ours)


def test_without_decorruptor_the_gradient_still_comes_through_the_classifier() -> None:
    method: Any = ready("quantile")
    cost.without_decorruptor(method)
    x = torch.rand(6, 3, 32, 32)
    assert torch.equal(method.decorruptor(x), x)
    assert cost.trained(method) == 3
    method.adapt(x)
    assert method.decorruptor.shift.detach().abs().min() > 0


def test_minibatches_are_as_large_as_batches_unless_asked_for(works: dict[str, cost.Work]) -> None:
    cut = {label: dict(w.cell.config).get("minibatch") for label, w in works.items()}
    assert sorted(cut.values(), key=str) == [5, 8, None, None]
    assert {w.cell.protocol.batch_size for w in works.values()} == {8}
    for label, work in works.items():  # 20 images in batches of 8, 8, 4
        assert cost.updates(work) == (5 if cut[label] == 5 else 3), label


def test_a_work_survives_the_way_to_another_process(works: dict[str, cost.Work]) -> None:
    for work in works.values():
        there = cost.Work.from_json(replace(work, bare=True).to_json())
        assert there == replace(work, bare=True)
        assert there.cell.cell_id == work.cell.cell_id


def test_epochs_are_those_of_the_method(works: dict[str, cost.Work]) -> None:
    small = [replace(w, cell=replace(w.cell, protocol=replace(w.cell.protocol, limit=8)))
             for label, w in works.items() if label == "tent" or "epochs=4" in label]  # fmt: skip
    for work, epochs in zip(small, (1, 4), strict=True):
        found = cost.measure_time(work)
        assert found["epochs"] == epochs
        assert found["s_per_corruption"] > 0
    bare = cost.measure_time(replace(small[1], bare=True))
    assert bare["trained"] == 3
    assert bare["held"] == found["held"] - found["trained"] + 3


def test_the_last_line_compares_rows_by_name() -> None:
    def row(label: str, seconds: float, mb: float) -> dict[str, Any]:
        return {"row": label, "by": "measured", "s_per_epoch": seconds, "peak_mb": mb}

    rows = [row("cotta", 10, 40), row("quantile[size=paper]", 3, 60), row("quantile, no decorruptor", 2, 30)]
    rows += [{**reported, "by": "paper"} for reported in cost.PAPER]
    said = dict(pair.split("=") for pair in cost.conclusion(rows).split())
    assert said["decorruptor_time_ratio"] == "1.50"
    assert said["decorruptor_memory_ratio"] == "2.00"
    assert said["epoch_to_teacher"] == "0.30"
    assert said["memory_to_teacher"] == "1.50"
    assert said["module_ms"] == "nan"


def test_rows_are_told_and_written_as_they_are(tmp_path: Path) -> None:
    rows = [
        {"row": "tent", "by": "measured", "batch": 8, "note": "n/a: no batch norm"},
        {"row": "source", "by": "measured", "batch": 8, "s_per_epoch": 1 / 3, "trained": 0, "held": 12_345},
    ]
    assert cost.line(rows[0]).endswith("n/a: no batch norm")
    assert cost.line(rows[1]).split() == ["source", "8", "0.333", "–", "–", "–", "–", "0", "12,345"]
    assert len(cost.line(rows[1])) == len(cost.heading())
    cost.write(tmp_path / "costs.csv", rows)
    header, _, source = (tmp_path / "costs.csv").read_text().splitlines()
    assert dict(zip(header.split(","), source.split(","), strict=True))["s_per_epoch"] == "0.3333"
    with pytest.raises(UserError, match="cannot be written"):
        cost.write(tmp_path / "nowhere" / "costs.csv", rows)


def test_a_failed_measurement_is_told_in_a_sentence() -> None:
    with pytest.raises(UserError, match="a measurement failed: ValueError: no such thing"):
        cost.child(["-c", "raise ValueError('no such thing')"], {})
