from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from ttabench.cell import Cell, Result
from ttabench.protocol import Protocol

CHANGES = {
    "method": "eata", "config": (("lr", 0.01), ("norms", "batch")), "arch": "cct", "checkpoint": "d" * 64,
    "dataset": "cifar10-c", "fingerprint": "e" * 64, "corruption": "snow", "severity": 4, "seed": 1,
    "protocol": Protocol(batch_size=64), "history": ("snow-5",),
}  # fmt: skip


@pytest.mark.parametrize("field", sorted(CHANGES))
def test_identity_changes_with_whatever_changes_the_number(cell: Cell, field: str) -> None:
    assert replace(cell, **{field: CHANGES[field]}).cell_id != cell.cell_id


def test_every_field_but_the_label_is_identity(cell: Cell) -> None:
    assert {f.name for f in fields(Cell)} - {"label"} == set(CHANGES)
    assert replace(cell, label="other").cell_id == cell.cell_id


def test_identity_is_stable_over_releases(cell: Cell) -> None:
    # Stores written by an older version must keep their meaning: this id may never change.
    assert cell.cell_id == "eda6f6f78e7d30f766d155eb64f29aa114019a6c97dd1f571457b4af2acf0f9e"


def test_identity_does_not_depend_on_the_order_of_settings(cell: Cell) -> None:
    assert replace(cell, config=cell.config[::-1]).cell_id == cell.cell_id


def test_round_trip_through_json(result: Result) -> None:
    assert Result.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_nan_cannot_enter_an_identity(cell: Cell) -> None:
    with pytest.raises(ValueError, match="JSON"):
        _ = replace(cell, config=(("lr", float("nan")),)).cell_id
