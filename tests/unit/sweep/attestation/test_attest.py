"""Attested equivalence: what a sample shows, what it refuses, and what nobody may attest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from tests.unit.conftest import SMALL, Run
from tests.unit.stored_results import CELL, fill, measured
from ttabench.cell import Cell, Result
from ttabench.cell.protocol import Protocol
from ttabench.data.generated_datasets import CurrentDigits
from ttabench.errors import UserError
from ttabench.provenance import roots, staleness
from ttabench.provenance.executed import NOT_AT_ALL
from ttabench.provenance.roots import Code
from ttabench.provenance.staleness import NOT_RECORDED, StoredCode
from ttabench.run import summary_cache
from ttabench.store import Record, Store, attestations
from ttabench.store.attestations import FILE, Attestations, digest, stratum_of
from ttabench.store.stored_environment import StoredEnvironment
from ttabench.sweep import attestation
from ttabench.sweep.attestation import Shown, measured_again
from ttabench.sweep.attestation.sample import MOST, Sample, seed_of
from ttabench.sweep.verify_sample import draw
from ttabench.system.bounded_folder import largest_size
from ttabench.system.checked_lines import decode, encode
from ttabench.system.files import replace_file
from ttabench_methods.tent import Tent

ENTROPY = "ttabench/nn/objectives.py: entropy"
ADAPT = "ttabench_methods/source.py: Source.adapt"


class Change:
    """Makes the installed code differ from that of the stored results in some definitions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._set = monkeypatch.setattr

    def __call__(self, *changed: str, version: int = 1) -> None:
        def made(code: Code) -> Code:
            if not changed or not any(name in code.definitions for name in changed):
                return code
            texts = {name: f"{version:016}" for name in changed if name in code.definitions}
            other = f"{version:04}{code.source[4:]}"
            return replace(code, source=other, definitions={**code.definitions, **texts})

        true = roots.current_code
        self._set(staleness, "current_code", lambda *a, **k: made(true(*a, **k)))


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> Change:
    return Change(monkeypatch)


def outcome_of(folder: Path) -> attestation.Outcome:
    store = Store.at(folder)
    *_, last = attestation.attest(store, attestation.groups_of(store), measured_again.MeasuredAgain(store))
    assert isinstance(last, attestation.Outcome)
    return last


def stale(folder: Path) -> set[str]:
    return {record.data["cell"]["method"] for record in Store.at(folder).latest().values() if record.stale}


def test_a_change_that_changes_no_number_is_attested_by_a_sample(swept: Path, change: Change) -> None:
    assert not stale(swept)
    change(ENTROPY)
    assert stale(swept) == {"tent"}
    before = {path: path.read_bytes() for path in (swept / "cells").iterdir()}
    outcome = outcome_of(swept)
    assert [len(group.records) for group in outcome.same] == [2]
    assert len(outcome.cells) == 1  # one cell speaks for both
    assert not stale(swept)
    attested = [r for r in Store.at(swept).latest().values() if r.attested]
    assert {r.data["cell"]["method"] for r in attested} == {"tent"}
    assert len(attested) == 2
    assert before == {
        path: path.read_bytes() for path in (swept / "cells").iterdir()
    }  # results stay as they are


def test_a_change_that_changes_numbers_is_refused_and_stays_refused(
    swept: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(ENTROPY)
    with monkeypatch.context() as patch:
        adapt = Tent.adapt
        patch.setattr(Tent, "adapt", lambda self, x: -adapt(self, x))
        outcome = outcome_of(swept)
    assert not outcome.same
    (why,) = outcome.refused.values()
    assert " now and had " in why
    assert stale(swept) == {"tent"}
    again = outcome_of(swept)  # with the right code in place, but under the hash that was refused
    assert "refused before" in next(iter(again.refused.values()))
    assert stale(swept) == {"tent"}
    change(ENTROPY, version=2)  # other code: tried anew
    assert outcome_of(swept).same


def test_numbers_that_disagree_are_stored_if_it_is_stopped(
    swept: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one could stop it, add cells to the folder, and have another sample drawn."""
    change(ENTROPY)

    def run(self: object, records: list[Record], turn: int) -> Iterator[attestation.Shown]:
        yield attestation.Shown(records[0].result.cell, "it differs")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(measured_again.MeasuredAgain, "run", run)
        with pytest.raises(KeyboardInterrupt):
            outcome_of(swept)
    (why,) = outcome_of(swept).refused.values()
    assert why == "refused before, with the same code: it differs"


def test_a_changed_branch_that_did_not_run_is_refused(swept: Path, change: Change) -> None:
    change("ttabench/measure/image_stream.py: put_in_order")  # no cell here has held-out or foreign images
    outcome = outcome_of(swept)
    assert not outcome.same
    assert outcome.refused
    assert all(
        "ttabench/measure/image_stream.py: put_in_order: a branch in line" in why
        for why in outcome.refused.values()
    )
    assert not (swept / FILE).exists()


def test_what_did_not_run_is_decided_anew(
    swept: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other cells may take the branch later, and other ways may show it."""
    change(ENTROPY, ADAPT)
    with monkeypatch.context() as patch:
        patch.setattr(measured_again.MeasuredAgain, "missing", lambda self: {ADAPT: "a branch in line 7"})
        outcome = outcome_of(swept)
    assert [*outcome.refused.values()] == [
        f"not all of the change ran in the sample ({ADAPT}: a branch in line 7)"
    ]
    assert stale(swept) == {"source"}
    cells = Store.at(swept).latest()  # the evidence is of TENT alone
    assert [cells[cell_id].data["cell"]["method"] for cell_id in outcome.measured] == ["tent"]
    assert "2 stale cells attested, with 1 cell of them run again." in attestation.summary(outcome)
    assert Attestations.read(swept).cells == 1
    assert outcome_of(swept).same
    assert not stale(swept)


@pytest.mark.parametrize(
    "why",
    [f"not all of the change ran in the sample ({ENTROPY}: a branch)", "what definitions refer to changed;"],
    ids=["a branch", "a reference"],
)
def test_an_earlier_refusal_of_what_did_not_run_does_not_hold(swept: Path, change: Change, why: str) -> None:
    change(ENTROPY)
    outcome_of(swept)
    edit(swept, lambda line: {**line, "same": [], "refused": [[*link, why] for link in line["same"]]})
    assert stale(swept) == {"tent"}
    assert outcome_of(swept).same
    assert not stale(swept)


@pytest.mark.parametrize("other", ["fog", "snow", ""])
def test_each_set_of_images_that_changed_code_makes_is_shown(
    swept: Path, change: Change, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """A change of one corruption was attested for methods of which a cell of another one was drawn."""
    change("ttabench/data/generated_datasets.py: CurrentDigits._corrupted_images")
    made = CurrentDigits._corrupted_images

    def changed(self: CurrentDigits, corruption: str, severity: int) -> Any:
        images = made(self, corruption, severity)
        return 255 - images if corruption == other else images

    monkeypatch.setattr(CurrentDigits, "_corrupted_images", changed)
    outcome = outcome_of(swept)
    if other:
        assert not outcome.same
        assert all(f"{other}-5" in why for why in outcome.refused.values())
        assert stale(swept) == {"source", "tent"}
    else:
        cells = Store.at(swept).latest()
        assert {cells[each].data["cell"]["corruption"] for each in outcome.measured} == {"fog", "snow"}
        assert not stale(swept)


def test_code_that_makes_images_runs_though_the_images_are_kept(swept: Path, change: Change) -> None:
    change("ttabench/corruptions/weather.py: fog")
    assert not outcome_of(swept).refused
    assert not stale(swept)


def test_what_ran_in_a_cell_that_differs_shows_nothing_for_others(
    swept: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TENT differs; nothing shows what it has in common with Source, which has its own cells."""
    shared = "ttabench/measure/scoring.py: evaluate"
    change(shared)
    way = measured_again.MeasuredAgain(Store.at(swept))
    way.watch(frozenset([shared]))
    adapt = Tent.adapt
    monkeypatch.setattr(Tent, "adapt", lambda self, x: -adapt(self, x))
    by_method = {record.data["cell"]["method"]: record for record in Store.at(swept).latest().values()}
    shown = [each for each in way.run([by_method["tent"]], 0) if isinstance(each, attestation.Shown)]
    assert [bool(each.why) for each in shown] == [True]
    assert way.missing() == {shared: NOT_AT_ALL}
    shown = [each for each in way.run([by_method["source"]], 0) if isinstance(each, attestation.Shown)]
    assert [each.why for each in shown] == [""]
    assert way.missing().get(shared) != NOT_AT_ALL


def test_a_changed_value_or_reference_is_refused(swept: Path, change: Change) -> None:
    change("ttabench/corruptions/constants.py: FOG")
    refused = outcome_of(swept).refused
    assert refused
    assert all("is no function" in why for why in refused.values())


def test_a_changed_module_of_another_package_is_refused_before_anything_runs(
    swept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = roots.current_code
    mine = {"mine/method.py": "0" * 16}

    def with_mine(*given: Any, **named: Any) -> Code:
        code = true(*given, **named)
        return replace(code, source=f"0001{code.source[4:]}", definitions={**code.definitions, **mine})

    monkeypatch.setattr(staleness, "current_code", with_mine)
    store = Store.at(swept)
    (outcome,) = attestation.attest(store, attestation.groups_of(store), measured_again.MeasuredAgain(store))
    assert isinstance(outcome, attestation.Outcome)
    assert all(why.startswith("mine/method.py is of another package") for why in outcome.refused.values())
    assert outcome.refused
    assert not (swept / FILE).exists()


def test_a_definition_that_refers_to_something_else_is_refused_without_the_old_code(
    swept: Path, change: Change
) -> None:
    """It may stand in a branch that no measured cell takes, and its text is the same."""
    change(ENTROPY)

    def other(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "source": f"0000{data['source'][4:]}"} if "source" in data else data

    edit_lines(swept, other)  # the hash covers texts, which are unchanged, and references
    outcome = outcome_of(swept)
    assert not outcome.same
    assert outcome.refused
    assert all("what definitions refer to changed" in why for why in outcome.refused.values())
    assert all(why.endswith("with --old CHECKOUT") for why in outcome.refused.values())
    assert not (swept / FILE).exists()


def test_texts_that_two_definitions_exchanged_are_changed() -> None:
    then, now = {"a": "1", "b": "2", "c": "3"}, {"a": "2", "b": "1", "d": "3", "e": "4"}
    assert [*attestation.texts_of(now, then)] == ["a", "b", "e"]


def test_what_is_not_seen_of_the_old_code_is_said(swept: Path, change: Change) -> None:
    change(ENTROPY)
    outcome = outcome_of(swept)
    assert outcome.accepted == of_line(swept)["accepted"] == [f"{ENTROPY}: {measured_again.REPLACED}"]
    assert any(outcome.accepted[0] in line for line in attestation.summary(outcome))


def test_earlier_versions_stored_no_number_of_branches(swept: Path, change: Change) -> None:
    edit_lines(swept, lambda data: {key: value for key, value in data.items() if key != "branches"})
    change(ENTROPY)
    assert outcome_of(swept).accepted == [f"{ENTROPY}: {measured_again.OLD_BRANCHES}"]
    assert not stale(swept)


def test_a_removed_branch_is_refused_without_the_old_code(swept: Path, change: Change) -> None:
    """Such as ``if x.std() < 0.1: x = x * 2``: it refers to nothing, and no measured cell would show it."""

    def with_one_more(data: dict[str, Any]) -> dict[str, Any]:
        if "branches" not in data:
            return data
        counts = zip(data["names"], data["branches"], strict=True)
        return {**data, "branches": [count + (name == ENTROPY) for (_, name), count in counts]}

    edit_lines(swept, with_one_more)
    assert Store.at(swept).merge()  # which keeps the numbers
    assert not stale(swept)
    change(ENTROPY)
    (why,) = outcome_of(swept).refused.values()
    assert why == f"{ENTROPY}: {measured_again.FEWER_BRANCHES.format(1, 0)}"
    assert stale(swept) == {"tent"}


def test_what_computes_a_summary_runs_though_the_summary_is_kept(
    swept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another attestation with the same code has kept it on the disk, perhaps one that was refused."""
    monkeypatch.setenv(summary_cache.LIMIT, "8")
    way = measured_again.MeasuredAgain(Store.at(swept))
    kept: list[float] = []

    def run(*_: object) -> Iterator[None]:
        kept.append(largest_size(summary_cache.LIMIT, summary_cache.BUDGET_GB))
        yield from ()

    monkeypatch.setattr(measured_again, "run", run)
    assert not [*way.run([], 0)]
    assert (kept, largest_size(summary_cache.LIMIT, summary_cache.BUDGET_GB)) == ([0], 8e9)


def test_another_machine_and_a_gpu_may_not_attest(swept: Path, change: Change) -> None:
    change(ENTROPY)
    for name, value, words in (
        ("processor", "Another", "another kind of machine (Another)"),
        ("device", "cuda", "a GPU"),
    ):
        edit_environment(swept, name, value)
        outcome = outcome_of(swept)
        assert not outcome.same
        assert outcome.left
        assert all(words in why for why in outcome.left.values())
    assert stale(swept) == {"tent"}


def test_an_attestation_holds_on_its_own_kind_of_machine_and_code_alone(swept: Path, change: Change) -> None:
    change(ENTROPY)
    outcome_of(swept)
    assert not stale(swept)
    change(ENTROPY, version=3)
    assert stale(swept) == {"tent"}
    change(ENTROPY)
    edit_environment(swept, "versions", {"torch": "1.0"})
    assert "tent" in stale(swept)


def test_code_that_changes_meanwhile_stores_nothing(
    swept: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(ENTROPY)
    monkeypatch.setattr(measured_again, "forget", lambda: change(ENTROPY, version=7))
    with pytest.raises(UserError, match="the code changed while it was attested; nothing is stored"):
        outcome_of(swept)
    assert not (swept / FILE).exists()


def test_the_command_reads_the_code_before_it_imports_it(swept: Path) -> None:
    """Else a file that is edited in between would be attested by what its old text computes."""
    script = (
        "import sys\nfrom ttabench.sweep import attestation\n"
        "attestation.groups_of = lambda *_, **__: print('ttabench.nn' in sys.modules) or []\n"
        f"from ttabench.cli import main\nsys.argv = ['ttabench', 'attest', {str(swept)!r}]\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[:1] == ["False"], done.stderr


def test_a_changed_line_of_the_file_is_refused_with_its_place(
    ttabench: Run, swept: Path, change: Change
) -> None:
    change(ENTROPY)
    outcome_of(swept)
    line = (swept / FILE).read_bytes()
    (swept / FILE).write_bytes(line.replace(b'"tent', b'"eata'))
    output = ttabench("status", swept)
    assert output.code == 2
    assert f"{FILE}, line 1, is not what ttabench wrote" in output.err


@pytest.mark.parametrize("incomplete", [True, False], ids=["incomplete", "without its newline"])
def test_a_last_line_counts_if_it_is_whole(swept: Path, change: Change, incomplete: bool) -> None:
    """An incomplete one was never written; an editor may leave out the end of the last one."""
    change(ENTROPY)
    outcome_of(swept)
    whole = (swept / FILE).read_bytes()
    (swept / FILE).write_bytes(whole + whole[:300] if incomplete else whole.removesuffix(b"\n"))
    assert not stale(swept)
    change(ENTROPY, version=2)
    assert outcome_of(swept).same
    first, second = (swept / FILE).read_bytes().splitlines(keepends=True)
    assert first == whole
    assert decode(second.rstrip(b"\n"))["cells"]


def test_lines_that_two_processes_add_at_once_are_both_kept(
    swept: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(ENTROPY)
    outcome_of(swept)
    line = decode((swept / FILE).read_bytes().rstrip(b"\n"))
    of_append = {name: value for name, value in line.items() if name not in ("kind", "sum")}
    others: list[Thread] = []

    def one_more(*of_file: Any) -> None:
        if not others:  # before this process writes, another one adds a line too, or waits
            others.append(Thread(target=attestations.append, args=(swept,), kwargs=of_append))
            others[0].start()
            others[0].join(1)
        replace_file(*of_file)

    monkeypatch.setattr(attestations, "replace_file", one_more)
    attestations.append(swept, **of_append)
    others[0].join()
    assert len((swept / FILE).read_bytes().splitlines()) == 3


def test_a_folder_that_cannot_be_written_is_found_out_before_anything_runs(
    swept: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(ENTROPY)
    (swept / "running").rmdir()
    (swept / "running").touch()
    monkeypatch.setattr(measured_again.MeasuredAgain, "run", lambda *_: pytest.fail("a cell ran"))
    with pytest.raises(UserError, match="running cannot be written"):
        outcome_of(swept)


def test_without_a_cell_that_was_measured_nothing_is_attested(swept: Path, change: Change) -> None:
    change(ENTROPY)
    outcome_of(swept)
    edit(swept, lambda line: {**line, "cells": []})
    with pytest.raises(UserError, match=r"line 1, is not what ttabench wrote .it names no cell"):
        Store.at(swept).latest()


@pytest.mark.parametrize(
    "changed",
    [{"environment": {"versions": [1]}}, {"environment": 3}, {"cells": [[3, ""]]}, {"cells": [["x", ""]]},
     {"same": [[["x"], "y", "z"]]}, {"refused": [["x", "y", "z", 3]]}, {"seed": "x"}],
    ids=str,
)  # fmt: skip
def test_values_of_another_type_are_refused_with_their_place(
    ttabench: Run, swept: Path, change: Change, changed: dict[str, Any]
) -> None:
    change(ENTROPY)
    outcome_of(swept)
    edit(swept, lambda line: {**line, **changed})
    output = ttabench("status", swept)
    assert output.code == 2
    assert f"{FILE}, line 1, is not what ttabench wrote" in output.err


def test_cells_that_the_folder_does_not_have_show_nothing(swept: Path, change: Change) -> None:
    """Else a line from elsewhere, or a made-up one, would make stale cells fresh."""
    change(ENTROPY)
    (measured,) = outcome_of(swept).measured
    assert not stale(swept)
    ((_, digest),) = of_line(swept)["cells"]
    edit(swept, lambda line: {**line, "cells": [[measured, digest], ["f" * 64, digest]]})
    assert stale(swept) == {"tent"}
    evidence = Attestations.read(swept)
    assert (evidence.steps, evidence.cells) == (0, 0)
    edit(swept, lambda line: {**line, "cells": [[measured, digest]]})
    assert not stale(swept)


@pytest.mark.parametrize("way", ["measured again", "side by side", "unknown", None])
def test_bits_that_are_not_the_stored_ones_show_nothing(swept: Path, change: Change, way: str | None) -> None:
    """Else a made-up line that names any cell of the folder would make stale cells fresh."""
    change(ENTROPY)
    (measured,) = outcome_of(swept).measured
    ((_, digest),) = of_line(swept)["cells"]
    made_up = [[measured, "0" * 16]]
    edit(swept, lambda line: {**line, "way": way, "cells": made_up})
    assert stale(swept) == {"tent"}
    edit(swept, lambda line: {**line, "cells": [[measured, digest], *made_up]})
    assert stale(swept) == {"tent"}
    edit(swept, lambda line: {**line, "cells": [[measured, digest]]})
    assert not stale(swept)


@pytest.mark.parametrize("way", ["measured again", "side by side"])
def test_cells_of_another_kind_or_code_show_nothing(swept: Path, change: Change, way: str) -> None:
    """Else one line with a cell that is cheap would make all stale cells fresh."""
    change(ENTROPY)
    outcome_of(swept)
    held = Store.at(swept).latest().values()
    of_source = next(r for r in held if r.data["cell"]["method"] == "source")
    edit(swept, lambda line: {**line, "way": way})
    assert not stale(swept)
    line = of_line(swept)
    del line["sum"]
    edit(swept, lambda line: {**line, "cells": [[of_source.cell_id, digest(of_source.result.correct)]]})
    assert stale(swept) == {"tent"}
    ((before, _, kind),) = line["same"]
    for code, shown in ((before, 1), ("0" * 64, 0)):
        edit(swept, lambda _, code=code: {**line, "same": [[code, "1" * 64, kind]]})
        assert len(Attestations.read(swept).links) == shown


@pytest.mark.parametrize(
    "kind",
    ["no JSON", "[1]", '["a",{},"b","c","",[]]', '[["a"],{},"b","c","",{}]', "[" * 100_000],
    ids=["no JSON", "one number", "no protocol", "method is no text", "nested"],
)
def test_a_kind_that_is_none_is_refused_with_its_place(swept: Path, change: Change, kind: str) -> None:
    change(ENTROPY)
    outcome_of(swept)
    edit(swept, lambda line: {**line, "way": "side by side", "same": [["a", "b", kind]]})
    with pytest.raises(UserError, match=r"line 1, is not what ttabench wrote"):
        Store.at(swept).latest()


def test_a_time_of_a_measured_cell_that_is_none_is_refused_by_the_reader_of_results(
    ttabench: Run, swept: Path, change: Change
) -> None:
    change(ENTROPY)
    outcome_of(swept)
    edit_lines(swept, lambda data: data | ({"written": 10**400} if data["kind"] == "result" else {}))
    output = ttabench("status", swept)
    assert output.code == 2
    assert "restore the file or move it out of the folder" in output.err


def test_numbers_that_disagreed_count_more_than_those_that_agreed(swept: Path, change: Change) -> None:
    change(ENTROPY)
    outcome_of(swept)
    edit(swept, lambda line: {**line, "refused": [[*link, "it differs"] for link in line["same"]]})
    assert stale(swept) == {"tent"}
    (why,) = outcome_of(swept).refused.values()
    assert "refused before" in why


def test_what_is_attested_can_be_shown_again(
    ttabench: Run, swept: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line may be forged: whoever has the folder can write all that a line has."""
    assert ttabench("attest", swept, "--check").out == (
        f"{swept} has no attested cell; there is nothing to check.\n"
    )
    change(ENTROPY)
    outcome_of(swept)
    line = (swept / FILE).read_bytes()
    assert ttabench("attest", swept, "--check", "--dry-run").out.startswith("2 cells like tent")
    output = ttabench("attest", swept, "--check")
    assert output.code == 0
    assert output.out.startswith("2 attested cells shown again, with 1 cell of them run again.\n")
    adapt = Tent.adapt
    monkeypatch.setattr(Tent, "adapt", lambda self, x: -adapt(self, x))  # as if the line had been forged
    output = ttabench("attest", swept, "--check")
    assert output.code == 1
    assert "2 attested cells refused: " in output.out
    assert f"delete their lines of {FILE}: the cells are stale then.\n" in output.out
    assert (swept / FILE).read_bytes() == line


def test_the_bits_of_the_last_result_of_a_cell_count(swept: Path, change: Change) -> None:
    change(ENTROPY)
    (measured,) = outcome_of(swept).measured
    result = Store.at(swept).latest()[measured].result
    flipped = bytes([~result.correct[0] & 255, *result.correct[1:]])
    right = sum(map(int.bit_count, flipped))
    accuracy = 100 * right / result.n_images
    fill(Store.at(swept), replace(result, correct=flipped, accuracy=accuracy))
    assert stale(swept) == {"tent"}
    assert Store.at(swept).merge()
    assert stale(swept) == {"tent"}


def test_attested_cells_stay_attested_when_shards_are_merged_or_cells_are_measured_again(
    swept: Path, change: Change
) -> None:
    change(ENTROPY)
    (measured,) = outcome_of(swept).measured
    fill(Store.at(swept), Store.at(swept).latest()[measured].result)
    assert not stale(swept)
    assert Store.at(swept).merge()
    assert not stale(swept)


@pytest.mark.parametrize("what", ["a link", "a pipe"])
def test_what_is_no_plain_file_is_neither_read_nor_written(swept: Path, change: Change, what: str) -> None:
    elsewhere = swept.parent / "elsewhere"
    if what == "a link":
        (swept / FILE).symlink_to(elsewhere)
    else:
        os.mkfifo(swept / FILE)
    change(ENTROPY)
    with pytest.raises(UserError, match=f"{FILE} is {what}"):
        outcome_of(swept)
    assert not elsewhere.exists()


@pytest.mark.parametrize(
    "other",
    [{"config": {"lr": 0.5}}, {"batch_size": 7}, {"epochs": 3}, {"limit": 7}],
)
def test_other_settings_are_another_kind(swept: Path, other: dict[str, object]) -> None:
    """A change may do nothing with one step of TENT, and much with ten."""
    cell = next(iter(Store.at(swept).latest().values())).data["cell"]
    of_cell = {name: value for name, value in other.items() if name in cell}
    of_protocol = {name: value for name, value in other.items() if name not in cell}
    changed = {**cell, **of_cell, "protocol": {**cell["protocol"], **of_protocol}}
    assert stratum_of(changed) != stratum_of(cell)
    assert stratum_of({**cell, "corruption": "snow", "seed": 3}) == stratum_of(cell)


def test_paced_cells_are_the_kind_that_stored_attestations_name() -> None:
    paced = replace(CELL, protocol=Protocol(pace=1.0, pace_ratio=3.1)).to_json()
    faster = replace(CELL, protocol=Protocol(pace=2.0, pace_ratio=1.5)).to_json()
    assert stratum_of(paced) == stratum_of(faster)
    assert stratum_of(paced).endswith('{"mode":"online","pace":true}]')


def test_other_shares_of_held_out_images_are_other_kinds() -> None:
    kinds = {stratum_of(replace(CELL, protocol=Protocol(held_out=of)).to_json()) for of in (0.0, 0.1, 0.5)}
    assert len(kinds) == 3


def test_a_cell_of_one_batch_does_not_speak_for_cells_of_many(
    ttabench: Run, tmp_path: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch is scored before the first step, so it has the same bits whatever the step does."""
    folder = tmp_path / "results"
    for limit in (10, 20):
        options = ("--limit", str(limit), "--extend", "--workers", "0", "--out", folder)
        assert ttabench("sweep", *SMALL[:-2], "--batch-size", "10", *options).code == 0
    change(ENTROPY)
    adapt = Tent.adapt

    def reversed_after_a_step(self: Tent, x: Tensor) -> Tensor:
        logits, first = adapt(self, x), not hasattr(self, "stepped")
        self.stepped = True  # type: ignore[attr-defined]
        return logits if first else -logits

    monkeypatch.setattr(Tent, "adapt", reversed_after_a_step)
    outcome = outcome_of(folder)
    limits = [group.records[0].data["cell"]["protocol"]["limit"] for group in outcome.same]
    assert limits == [10]
    assert [why.count(" now and had ") for why in outcome.refused.values()] == [1]


def ran_of(group: attestation.Group) -> list[list[Cell]]:
    """The cells of each turn, where one of the changed definitions never runs."""
    turns: list[list[Cell]] = []

    class Way:
        varies, compares_images = False, True

        def run(self, records: list[Record], turn: int) -> Iterator[Shown]:
            turns.append([record.result.cell for record in records])
            yield from map(Shown, turns[-1])

        def missing(self) -> dict[str, str]:
            return {"f": "a branch"}

    assert len([*Sample([group], Way(), 0).run()]) == sum(map(len, turns))  # type: ignore[arg-type]
    return turns


def test_a_last_batch_of_one_image_is_measured_where_a_cell_of_the_kind_has_one() -> None:
    """How many foreign images there are is no part of a kind, and it changes how many come last."""
    right = np.arange(8) < 5
    shares = (0.5, 0.5, 0.12, 0.2)  # 16, 16, 9 and 10 images
    cells = [
        replace(CELL, seed=seed, protocol=Protocol(batch_size=4, contamination=f"noise({share})"))
        for seed, share in enumerate(shares)
    ]
    records = [
        Record(measured(cell, right).to_json(), "", StoredCode(), StoredEnvironment()) for cell in cells
    ]
    assert len({stratum_of(record.data["cell"]) for record in records}) == 1
    group = attestation.Group(("", "", "", ""), frozenset(["f"]), tuple(records))
    first, *_ = ran_of(group)
    assert {cell.seed for cell in first} - {0, 1} == {2, 3}
    assert len(first) == 3


def test_of_paced_cells_those_are_measured_that_adapt_most_often() -> None:
    right = np.arange(8) < 5
    ratios = (8.0, 8.0, 8.0, 8.0, 2.5, 3.0)  # the cheapest first: they skip most steps
    cells = [
        replace(CELL, seed=seed, protocol=Protocol(pace=1.0, pace_ratio=of)) for seed, of in enumerate(ratios)
    ]
    records = [
        Record(measured(cell, right).to_json(), "", StoredCode(), StoredEnvironment()) for cell in cells
    ]
    group = attestation.Group(("", "", "", ""), frozenset(["f"]), tuple(records))
    ran = [cell.protocol.adapts_every for turn in ran_of(group) for cell in turn]
    assert ran == [3, 3, 8, 8, 8]
    assert len(ran) == MOST


def test_the_seed_is_not_chosen_by_anybody(swept: Path, change: Change) -> None:
    change(ENTROPY)
    groups = attestation.groups_of(Store.at(swept))
    assert seed_of(groups) == seed_of(attestation.groups_of(Store.at(swept)))
    change(ENTROPY, version=2)
    assert seed_of(groups) != seed_of(attestation.groups_of(Store.at(swept)))


def test_the_command_status_and_verify_say_it(ttabench: Run, swept: Path, change: Change) -> None:
    change(ENTROPY)
    listed = ttabench("attest", swept, "--dry-run")
    assert listed.code == 0
    assert listed.out.startswith("2 cells like tent")
    assert ENTROPY in listed.out
    output = ttabench("attest", swept, "--json")
    assert output.code == 0, output.out
    assert [each["cells"] for each in json.loads(output.out)["attested"]] == [2]
    status = ttabench("status", swept)
    assert "2 of the done cells (1 step, 1 cell run again)" in status.out
    drawn = draw(Store.at(swept), 1, 0)
    assert [record.data["cell"]["method"] for record in drawn.records] == ["tent"]
    for option in ((), ("--dry-run",), ("--old", "nowhere")):
        nothing = ttabench("attest", swept, *option)
        assert nothing.code == 0
        assert nothing.out == f"{swept} has no stale cell that has a number; there is nothing to attest.\n"
        assert not any(json.loads(ttabench("attest", swept, "--json", *option).out).values())


def test_cells_of_which_nothing_can_be_shown_are_named_and_remain(ttabench: Run, swept: Path) -> None:
    """Else a folder with stale numbers would end as one without."""
    of_source = {r.source for r in Store.at(swept).latest().values() if r.data["cell"]["method"] == "source"}

    def changed(data: dict[str, Any]) -> dict[str, Any]:
        if data["kind"] == "code" and data["source"] in of_source:  # as earlier versions stored code
            return {**data, "definitions": []}
        if data["kind"] == "result" and data["cell"]["method"] == "tent":
            result = Result.from_json(data)
            cell = replace(result.cell, method="gone", label="gone")
            return {**data, **replace(result, cell=cell).to_json()}
        return data

    edit_lines(swept, changed)
    listed = ttabench("attest", swept, "--dry-run")
    assert listed.code == 0
    done = ttabench("attest", swept)
    assert done.code == 1
    for output in (listed, done):
        assert output.out.splitlines() == [
            "2 stale cells not tried: gone is not installed.",
            f"2 stale cells not tried: they were {NOT_RECORDED.removeprefix('it was ')}.",
        ]


def test_a_dry_run_lists_what_would_be_tried_and_what_would_not(
    ttabench: Run, swept: Path, change: Change
) -> None:
    change(ENTROPY)
    (to_try,) = json.loads(ttabench("attest", swept, "--dry-run", "--json").out)["to_try"]
    assert (to_try["cells"], to_try["changed"]) == (2, [ENTROPY])
    assert to_try["like"].startswith("tent · resnet18 · digits-c · ")
    edit_environment(swept, "device", "cuda")
    for json_too in ((), ("--json",)):
        nothing = ttabench("attest", swept, "--dry-run", *json_too)
        assert nothing.code == 0
        assert "a GPU does not give the same bits twice" in nothing.out
        assert "like tent" not in nothing.out
    assert not (swept / FILE).exists()


@pytest.mark.parametrize("option", ["--accept-old", "--other-operations"])
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_options_about_the_old_code_need_the_old_code(
    ttabench: Run, swept: Path, option: str, more: tuple[str, ...]
) -> None:
    output = ttabench("attest", swept, option, *more)
    assert output.code == 2
    assert f"{option} needs the code before the change; give its checkout with --old." in output.err


def test_old_code_that_does_not_run_has_no_branches_to_accept(ttabench: Run, swept: Path) -> None:
    output = ttabench("attest", swept, "--old", swept, "--accept-old", "--other-operations")
    assert output.code == 2
    assert "the old code does not run; leave out --accept-old" in output.err


def of_line(folder: Path) -> dict[str, Any]:
    """What the one line of the attestations says."""
    return decode((folder / FILE).read_bytes().rstrip(b"\n"))


def edit(folder: Path, changed: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the one line of the attestations, with a checksum that fits."""
    line = of_line(folder)
    del line["sum"]
    (folder / FILE).write_bytes(encode(changed(line)))


def edit_environment(folder: Path, name: str, value: object) -> None:
    edit_lines(folder, lambda data: data | ({name: value} if data["kind"] == "environment" else {}))


def edit_lines(folder: Path, changed: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the lines of all shards, with checksums that fit."""
    for shard in (folder / "cells").glob("*.jsonl"):
        lines = [decode(line) for line in shard.read_bytes().splitlines()]
        for line in lines:
            del line["sum"]
        shard.write_bytes(b"".join(encode(changed(line)) for line in lines))
