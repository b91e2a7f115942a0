"""The lines of attested.jsonl: which of them count, for which results, and how kinds of cells are spelt."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cases import each
from tests.unit.stored_results import CELL, attest, filled, measured
from ttabench.cell.protocol import Protocol
from ttabench.errors import UserError
from ttabench.provenance.staleness import REFERENCES
from ttabench.store import Store, attestations
from ttabench.store.attestations import (
    FILE,
    NONE,
    NOT_ALL_RAN,
    OTHER_OPERATIONS,
    SIDE_BY_SIDE,
    Attestations,
    append,
    digest,
    machine_of,
    stratum_of,
    wider_kind,
)
from ttabench.store.stored_environment import StoredEnvironment
from ttabench.system.checked_lines import decode

RIGHT = np.arange(8) < 5
BITS = digest(np.packbits(RIGHT).tobytes())
OTHER = replace(CELL, method="source", config=(), label="source")
KIND, OTHER_KIND = (stratum_of(cell.to_json()) for cell in (CELL, OTHER))
HERE = machine_of(StoredEnvironment())


@pytest.fixture
def results(tmp_path: Path) -> Path:
    filled(tmp_path, measured(CELL, RIGHT), measured(OTHER, RIGHT))
    return tmp_path


def source_of(folder: Path, cell_id: str = CELL.cell_id) -> str:
    return Store.at(folder).latest()[cell_id].source


def add(folder: Path, **of: Any) -> None:
    """A line that shows TENT with the code "now" by its own cell, but for what is given."""
    own = {"same": [(source_of(folder), "now", KIND)], "cells": [(CELL.cell_id, BITS)]}
    attest(folder, **own | of)


def joined(folder: Path) -> set[tuple[str, str, str, str]]:
    """(code of results, kind, machine, code that gives the same numbers) of all lines that count."""
    links = Attestations.read(folder).links
    assert all(links.values())
    return {(*link, now) for link, every in links.items() for now in every}


def test_a_line_counts_for_its_code_kind_and_machine(results: Path) -> None:
    assert Attestations.read(results) is NONE
    add(results)
    source = source_of(results)
    assert joined(results) == {(source, KIND, HERE, "now")}
    read = Attestations.read(results)
    assert (read.steps, read.cells, read.refused) == (1, 1, {})
    tent, here = {"cell": CELL.to_json()}, StoredEnvironment()
    assert read.joins(source, tent, here, "now")
    assert not read.joins("another", tent, here, "now")
    assert not read.joins(source, {"cell": OTHER.to_json()}, here, "now")
    assert not read.joins(source, tent, StoredEnvironment({"processor": "Another"}), "now")
    assert not read.joins(source, tent, here, "later")
    assert not NONE.joins(source, tent, here, "now")
    assert hash(read) == id(read)


def test_lines_of_one_draw_are_one_step_and_a_cell_counts_once(results: Path) -> None:
    add(results)
    add(results, environment={"processor": "Another"})
    add(results, seed=2, same=[(source_of(results), "later", KIND)])
    read = Attestations.read(results)
    assert (read.steps, read.cells) == (2, 1)
    there = machine_of(StoredEnvironment({"processor": "Another"}))
    source = source_of(results)
    assert joined(results) == {
        (source, KIND, HERE, "now"), (source, KIND, HERE, "later"), (source, KIND, there, "now"),
    }  # fmt: skip
    assert read.links[source, KIND, HERE] == {"now", "later"}
    of_source = source_of(results, OTHER.cell_id), "now", OTHER_KIND
    add(results, seed=3, same=[of_source], cells=[(OTHER.cell_id, BITS)])
    assert (Attestations.read(results).steps, Attestations.read(results).cells) == (3, 2)


@each("of", [
    {"cells": [("f" * 64, BITS)]}, {"cells": [(CELL.cell_id, BITS), ("f" * 64, BITS)]},
    {"cells": [(CELL.cell_id, "0" * 16)]}, {"cells": [(CELL.cell_id, BITS), (CELL.cell_id, "0" * 16)]},
    {"cells": [(OTHER.cell_id, BITS)]}, {"same": []}, {"same": [("another", "now", KIND)]},
    {"same": [("another", "now", "no JSON")]},
    {"same": [("another", "later", OTHER_KIND)]},
])  # fmt: skip
def test_a_line_that_its_cells_do_not_show_counts_nothing_and_others_stay(
    results: Path, of: dict[str, Any]
) -> None:
    (results / FILE).unlink(missing_ok=True)  # of the case before
    add(results, seed=2, **of)
    assert joined(results) == set()
    add(results, seed=3)
    assert joined(results) == {(source_of(results), KIND, HERE, "now")}


def test_a_measured_cell_that_has_other_bits_now_ends_what_a_line_says_of_its_kind_alone(
    results: Path,
) -> None:
    """Else a change that is wanted in one method would make the attested cells of all methods stale."""
    source, of_other = source_of(results), source_of(results, OTHER.cell_id)
    shown = {(source, KIND, HERE, "now"), (of_other, OTHER_KIND, HERE, "now")}
    same = [(before, now, kind) for before, kind, _, now in shown]
    add(results, same=same, cells=[(CELL.cell_id, BITS), (OTHER.cell_id, BITS)])
    assert joined(results) == shown
    filled(results, measured(OTHER, ~RIGHT))
    assert joined(results) == {(source, KIND, HERE, "now")}
    assert (Attestations.read(results).steps, Attestations.read(results).cells) == (1, 2)


def test_a_measured_cell_has_the_code_of_before_or_the_new_one(results: Path) -> None:
    """One that was measured again after the change shows it as well."""
    add(results, same=[("earlier", source_of(results), KIND), ("earlier", "other", KIND)])
    assert joined(results) == {("earlier", KIND, HERE, source_of(results))}


def test_side_by_side_a_cell_speaks_for_other_settings_and_not_for_other_methods(results: Path) -> None:
    alike = replace(CELL, config=(("lr", 0.5), ("norms", "batch")), protocol=Protocol(batch_size=3))
    other = stratum_of(alike.to_json())
    source = source_of(results)
    same = [(source, "now", other), (source, "now", OTHER_KIND)]
    add(results, same=same)
    assert joined(results) == set()
    add(results, same=same, way=SIDE_BY_SIDE)
    assert joined(results) == {(source, other, HERE, "now")}


def test_what_disagreed_counts_more_than_what_agreed_and_even_without_its_cells(results: Path) -> None:
    source = source_of(results)
    add(results)
    add(results, seed=2, same=[], cells=[], refused=[(source, "now", KIND, "fog differs")])
    assert joined(results) == set()
    assert Attestations.read(results).refused == {(source, KIND, HERE, "now"): "fog differs"}
    add(results, environment={"processor": "Another"})
    assert len(joined(results)) == 1


@each("why", [f"{NOT_ALL_RAN} (f: a branch)", f"{REFERENCES};", f"{OTHER_OPERATIONS} for fog"])
def test_what_other_cells_or_another_way_may_show_is_not_refused(results: Path, why: str) -> None:
    source = source_of(results)
    add(results, refused=[(source, "now", KIND, why), (source, "later", KIND, f"it differs: {why}")])
    assert Attestations.read(results).refused == {(source, KIND, HERE, "later"): f"it differs: {why}"}
    assert len(joined(results)) == 1


def test_an_id_in_capitals_is_the_same_cell(results: Path) -> None:
    add(results, cells=[(CELL.cell_id.upper(), BITS)])
    assert len(joined(results)) == 1


@each(("of", "why"), [
    ({"cells": []}, "(it names no cell that was measured)"),
    ({"environment": {"threads": -1}}, "its threads is -1"),
    ({"cells": [("x", BITS)]}, "non-hexadecimal"),
    ({"same": [("a", "b")]}, "not enough values"),
    ({"refused": [("a", "b", "c")]}, "not enough values"),
    ({"refused": [("a", "b", "c", 4)]}, "startswith"),
    ({"seed": "x"}, "invalid literal"),
    ({"way": SIDE_BY_SIDE, "same": [("a", "b", "no JSON")]}, "Expecting value"),
    ({"way": SIDE_BY_SIDE, "same": [("a", "b", '[["a"],{},"b","c","",{}]')]}, "unhashable"),
])  # fmt: skip
def test_a_line_that_is_none_is_named_with_its_place(results: Path, of: dict[str, Any], why: str) -> None:
    (results / FILE).unlink(missing_ok=True)  # of the case before
    add(results)
    add(results, **of)
    with pytest.raises(UserError) as told:
        Attestations.read(results)
    message = str(told.value)
    assert message.startswith(f"{results / FILE}, line 2, is not what ttabench wrote (")
    assert why in message
    assert message.endswith("); delete the line, and run `ttabench attest` again.")


def test_a_file_that_cannot_be_read_is_named(results: Path) -> None:
    (results / FILE).mkdir()
    with pytest.raises(UserError, match=rf"{FILE} (cannot be read \(Is a directory\)|is a folder)"):
        Attestations.read(results)


def test_a_line_has_all_that_is_known_of_it(results: Path) -> None:
    given: dict[str, Any] = {
        "way": "measured again", "seed": 7, "environment": {"processor": "P"}, "same": [["a", "b", "c"]],
        "refused": [["a", "b", "c", "why"]], "cells": [["d", "e"]], "operations": [["d", "f"]],
        "executed": ["g"], "accepted": ["h"], "shown_on": {"device": "cpu"}, "written": 3.5,
    }  # fmt: skip
    append(results, **given)
    line = decode((results / FILE).read_bytes().removesuffix(b"\n"))
    assert line.pop("sum")
    assert line == {"kind": "attestation", **given}


def test_a_last_line_counts_if_it_is_whole(results: Path) -> None:
    add(results)
    whole = (results / FILE).read_bytes()
    (results / FILE).write_bytes(whole.removesuffix(b"\n"))
    assert len(joined(results)) == 1
    add(results, same=[(source_of(results), "later", KIND)])
    assert (results / FILE).read_bytes().startswith(whole)
    assert len(joined(results)) == 2
    (results / FILE).write_bytes(whole + whole[:40])
    assert len(joined(results)) == 1
    add(results)
    assert (results / FILE).read_bytes() == 2 * whole


# ---- kinds


def test_a_kind_is_spelt_as_in_stored_lines() -> None:
    """Results folders have it, so another spelling would end their attestations."""
    assert KIND == '["tent",{"lr":0.001,"norms":"batch"},"resnet18","digits-c","",{"mode":"online"}]'
    protocol = Protocol(
        batch_size=7, order="dirichlet(0.1)", contamination="noise(0.2)", limit=9, precision="tf32", pace=2.0,
        pace_ratio=3.0, stream="recurring(2)", reset="every(5)",
    )  # fmt: skip
    stream = replace(CELL, corruption="recurring", protocol=protocol)
    assert stratum_of(stream.to_json()) == (
        '["tent",{"lr":0.001,"norms":"batch"},"resnet18","digits-c","recurring",{"batch_size":7,'
        '"contamination":"noise","limit":9,"mode":"online","order":"dirichlet","pace":true,'
        '"precision":"tf32","reset":"every(5)","stream":"recurring(2)"}]'
    )
    offline = replace(CELL, corruption="mixed", protocol=Protocol(mode="offline", epochs=3, held_out=0.1))
    assert stratum_of(offline.to_json()) == (
        '["tent",{"lr":0.001,"norms":"batch"},"resnet18","digits-c","mixed",{"epochs":3,"held_out":0.1,'
        '"mode":"offline"}]'
    )


def test_a_wider_kind_leaves_out_settings_batch_size_epochs_and_precision() -> None:
    def of(corruption: str = "fog", **protocol: Any) -> tuple[str, ...]:
        cell = replace(CELL, corruption=corruption, protocol=Protocol(**protocol))
        return wider_kind(stratum_of(cell.to_json()))

    place = "tent", "resnet18", "digits-c"
    assert of() == (*place, "", "online", "", "", "", "")
    assert of(batch_size=3, precision="bfloat16") == of()
    assert of(mode="offline", epochs=3) == (*place, "", "offline", "", "", "", "")
    assert of("mixed", limit=9, held_out=0.1) == (
        *place, "mixed", "online", "", "", "", "", "held_out 0.1", "limit 9"
    )  # fmt: skip
    stream = of(
        "recurring", stream="recurring(2)", reset="every(5)", order="dirichlet(1)",
        contamination="noise(0.2)", pace=2.0,
    )  # fmt: skip
    assert stream == (*place, "", "online", "every", "dirichlet", "noise", "recurring", "pace True")


def test_only_what_changes_bits_makes_another_kind_of_machine() -> None:
    here: dict[str, Any] = {
        "threads": 1, "machine": "x86_64", "processor": "P", "device": "cpu",
        "versions": {"torch": "2", "ttabench": "0.1"},
    }  # fmt: skip

    def of(**changed: Any) -> str:
        return machine_of(StoredEnvironment({**here, **changed}))

    assert of() == of(versions={"torch": "2", "ttabench": "0.2"}, hostname="another") == of()
    others = (
        {"threads": 2}, {"machine": "arm64"}, {"processor": "Q"}, {"device": "cuda"},
        {"versions": {"torch": "3"}},
    )  # fmt: skip
    assert len({of(), *(of(**other) for other in others), HERE}) == 7
    assert len(HERE) == 16
    assert digest(b"x") == hashlib.sha256(b"x").hexdigest()[:16]


def test_a_folder_that_cannot_be_written_is_told_at_once(results: Path) -> None:
    attestations.check_folder(results)
    (results / "running").rmdir()
    (results / "running").touch()
    with pytest.raises(UserError, match="running cannot be written"):
        attestations.check_folder(results)
