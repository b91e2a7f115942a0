from __future__ import annotations

import hashlib
import json
import random
from dataclasses import fields, replace

import numpy as np
import pytest

from tests.cases import each
from ttabench.cell import Cell, Result, canonical, spell, stored_identity
from ttabench.cell.protocol import Protocol

CHANGES = {
    "method": "eata", "config": (("lr", 0.01), ("norms", "batch")), "arch": "cct", "checkpoint": "d" * 64,
    "dataset": "cifar10-c", "fingerprint": "e" * 64, "corruption": "snow", "severity": 4, "seed": 1,
    "protocol": Protocol(batch_size=64), "history": ("snow-5",), "baseline": "cct@" + "f" * 64,
    "foreign": "a" * 64,
}  # fmt: skip


@each("field", sorted(CHANGES))
def test_identity_changes_with_whatever_changes_the_number(cell: Cell, field: str) -> None:
    assert replace(cell, **{field: CHANGES[field]}).cell_id != cell.cell_id


def test_every_field_but_the_label_and_what_reads_the_images_is_identity(cell: Cell) -> None:
    assert {f.name for f in fields(Cell)} - {"label", "image_files"} == set(CHANGES)
    assert replace(cell, label="other", image_files=True).cell_id == cell.cell_id


def test_that_images_are_files_is_stored_and_absent_elsewhere(cell: Cell) -> None:
    of_files = replace(cell, image_files=True)
    assert of_files.to_json() == {**cell.to_json(), "image_files": True}
    assert Cell.from_json(of_files.to_json()) == of_files
    assert not Cell.from_json(cell.to_json()).image_files


def test_identity_is_stable_over_releases(cell: Cell) -> None:
    # Stores written by an older version must keep their meaning: this id may never change.
    assert cell.cell_id == "eda6f6f78e7d30f766d155eb64f29aa114019a6c97dd1f571457b4af2acf0f9e"


def test_identity_is_the_hash_of_canonical_json_without_the_label() -> None:
    draw = random.Random(0)

    def text() -> str:
        return "".join(draw.choices('aB1 "\\/\n\t\x00äß√😀', k=draw.randrange(6)))

    def scalar() -> str | int | float | bool | None:
        return draw.choice((text(), draw.randrange(-9, 10**20), draw.gauss(0, 1e9), 1e-7, 2.0, True, None))

    for _ in range(100):
        settings = tuple({text(): scalar() for _ in range(draw.randrange(4))}.items())
        protocol = Protocol(batch_size=draw.randint(1, 99), limit=draw.randrange(9))
        for _ in range(2):  # cells of a plan share settings and protocol
            cell = Cell(
                method=text(), config=settings, label=text(), arch=text(), checkpoint=text(), dataset=text(),
                fingerprint=text(), corruption=text(), severity=draw.randrange(6), seed=draw.getrandbits(63),
                protocol=protocol, history=tuple(text() for _ in range(draw.randrange(3))), baseline=text(),
                foreign=text(),
            )  # fmt: skip
            identity = {name: value for name, value in cell.to_json().items() if name != "label"}
            assert cell.cell_id == hashlib.sha256(canonical(identity).encode()).hexdigest()
            assert stored_identity(cell.to_json()) == cell.cell_id


def test_settings_that_are_equal_and_not_the_same_are_different_cells(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttabench.cell.cell._settings", {})  # as in a new process
    values = (1, 1.0, True, "1")
    cells = [replace(cell, config=(("steps", value),)) for value in values]
    assert len({of.cell_id for of in cells}) == len(values)
    for _ in range(2):
        assert [stored_identity(of.to_json()) for of in cells] == [of.cell_id for of in cells]


def test_a_truth_value_in_place_of_a_number_is_written_as_json_writes_it(cell: Cell) -> None:
    odd = replace(cell, seed=True)
    identity = {name: value for name, value in odd.to_json().items() if name != "label"}
    assert '"seed":true' in canonical(identity)
    assert odd.cell_id == hashlib.sha256(canonical(identity).encode()).hexdigest()
    assert odd.cell_id != replace(cell, seed=1).cell_id


def test_cells_that_share_a_protocol_write_its_json_once(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    to_json = Protocol.to_json
    monkeypatch.setattr(Protocol, "to_json", lambda self: written.append(self) or to_json(self))
    protocol = Protocol(batch_size=17)
    assert len({replace(cell, seed=seed, protocol=protocol).cell_id for seed in range(5)}) == 5
    assert written == [protocol]


def test_identity_does_not_depend_on_the_order_of_settings(cell: Cell) -> None:
    assert replace(cell, config=cell.config[::-1]).cell_id == cell.cell_id


def test_round_trip_through_json(result: Result) -> None:
    assert Result.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_nan_cannot_enter_an_identity(cell: Cell) -> None:
    with pytest.raises(ValueError, match="JSON"):
        _ = replace(cell, config=(("lr", float("nan")),)).cell_id


def test_a_history_survives_json_and_is_named(cell: Cell) -> None:
    continual = replace(cell, history=("fog-5", "snow-5"))
    data = json.loads(json.dumps(continual.to_json()))
    assert data["history"] == ["fog-5", "snow-5"]
    assert Cell.from_json(data) == continual
    assert "history" not in cell.to_json()


def test_identity_of_a_continual_cell_is_stable_over_releases(cell: Cell) -> None:
    protocol = Protocol(reset="continual", mode="offline", epochs=3)
    continual = replace(cell, history=("fog-5",), protocol=protocol, dataset="eigene Daten äöü")
    assert continual.cell_id == "835cf4c74dadd6f37d94a5e04bef2f57825ccfdaf1836459315124946e2597c7"


def test_identity_is_of_ascii_without_spaces() -> None:
    assert canonical({"b": [1, 2.5], "a": "ü"}) == '{"a":"\\u00fc","b":[1,2.5]}'


def test_a_stored_result_has_its_id_and_only_what_there_is_to_say(result: Result) -> None:
    data = result.to_json()
    assert data["id"] == result.cell.cell_id
    assert set(data) == {
        "id", "cell", "status", "accuracy", "clean_accuracy", "n_images", "seconds", "correct", "details",
    }  # fmt: skip
    none = Result(cell=result.cell, status="n/a", reason="no batch norm")
    assert none.to_json().keys() == {"id", "cell", "status", "reason", "n_images", "seconds"}
    assert Result.from_json(none.to_json()) == none


def test_a_setting_is_spelt_as_users_write_it() -> None:
    values = (None, True, "batch", 3, 1e6, 0.5, 0.1 + 0.2, np.float64(1 / 3))
    spelt = ["none", "true", "batch", "3", "1e+06", "0.5", "0.30000000000000004", "0.3333333333333333"]
    assert [*map(spell, values)] == spelt


def test_an_accuracy_of_0_is_kept(result: Result) -> None:
    nothing_right = replace(result, accuracy=0.0)
    assert nothing_right.to_json()["accuracy"] == 0.0
    assert Result.from_json(nothing_right.to_json()) == nothing_right


def test_a_damaged_bitmap_is_refused(result: Result) -> None:
    with pytest.raises(ValueError, match=r"base64|[Pp]adding"):
        Result.from_json(result.to_json() | {"correct": "!" + result.to_json()["correct"]})


def test_a_cell_is_spoken_of_by_its_label(cell: Cell) -> None:
    assert str(cell) == "tent · resnet18 · digits-c · fog-5 · seed 0"


def test_a_natural_shift_has_a_name_and_no_severity(cell: Cell) -> None:
    natural = replace(cell, corruption="natural", severity=0)
    assert str(natural) == "tent · resnet18 · digits-c · natural · seed 0"
