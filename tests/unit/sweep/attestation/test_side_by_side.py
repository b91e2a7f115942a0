"""The code before and after a change, side by side: what this shows on any machine, and what it refuses."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.unit.conftest import Output
from tests.unit.data_fakes import clean_images, labels_for
from tests.unit.stored_results import CELL
from tests.unit.sweep.attestation.test_attest import edit_environment
from ttabench.cell import Cell
from ttabench.cell.protocol import Protocol
from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench.data.catalog import dataset
from ttabench.data.dataset import Labelled
from ttabench.measure.streams import checkpoint
from ttabench.provenance.executed import NOT_AT_ALL
from ttabench.provenance.staleness import code_of
from ttabench.run import worker
from ttabench.store import Store
from ttabench.store.attestations import FILE, Attestations, digest, stratum_of, wider_kind
from ttabench.store.new_records import held_among
from ttabench.sweep.attestation import Group, Outcome, one_side
from ttabench.sweep.attestation.measured_again import MeasuredAgain
from ttabench.sweep.attestation.one_side import FewImages, Side, Stopped, few, make_images, varied
from ttabench.sweep.attestation.side_by_side import OLD, PACKAGES, SideBySide, with_other_references
from ttabench.system.checked_lines import decode
from ttabench_methods.source import Source

ROOT = Path(__file__).resolve().parents[4]
SCORING = "ttabench/measure/scoring.py"
STREAM = "ttabench/measure/image_stream.py"
EXTRACTED = (
    ('    half = protocol.precision == "bfloat16"\n', ""),
    ("torch.bfloat16, half, cache", "torch.bfloat16, _is_half(protocol), cache"),
    (
        "def autocast(",
        "def _is_half(protocol: Protocol) -> bool:\n"
        '    return protocol.precision == "bfloat16"\n\n\ndef autocast(',
    ),
)


@pytest.fixture
def after(tmp_path: Path) -> Path:
    """A checkout that a test changes; its files are those of this one until then."""
    made = tmp_path / "after"
    made.mkdir()
    for name in ("ttabench", "methods", "reports"):
        shutil.copytree(ROOT / name, made / name, copy_function=linked)
    return made


def linked(file: str, to: str) -> None:
    """The file itself, or a copy where temporary files are on another disk."""
    try:
        os.link(file, to)
    except OSError:
        shutil.copy2(file, to)


def change(checkout: Path, *changes: tuple[str, str], file: str = SCORING) -> None:
    path = checkout / file
    text = path.read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path.unlink()
    path.write_text(text)


def run(checkout: Path, *arguments: str | Path) -> Output:
    """The command with the code of a checkout."""
    places = os.pathsep.join(str(checkout / package) for package in PACKAGES)
    command, environment = [sys.executable, "-P", "-m", "ttabench"], {**os.environ, "PYTHONPATH": places}
    done = subprocess.run(
        [*command, *map(str, arguments)], env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return Output(done.returncode, done.stdout, done.stderr)


def attested(
    checkout: Path, folder: Path, *options: str, old: Path = ROOT
) -> tuple[int, dict[str, list[dict[str, object]]]]:
    output = run(checkout, "attest", folder, "--old", old, "--json", *options)
    assert output.code < 2, output.err
    return output.code, json.loads(output.out)


def test_a_function_taken_out_of_another_is_shown_on_any_machine(swept: Path, after: Path) -> None:
    edit_environment(swept, "processor", "Another")
    edit_environment(swept, "device", "cuda")
    change(after, *EXTRACTED)
    before = {path: path.read_bytes() for path in (swept / "cells").iterdir()}
    assert "2 stale" in run(after, "status", swept).out
    code, found = attested(after, swept)
    assert code == 0, found
    assert [each["cells"] for each in found["attested"]] == [2, 2]  # Source, TENT
    assert len(found["measured"]) == 2
    status = run(after, "status", swept)
    assert "4 of the done cells (1 step, 2 cells run again)" in status.out
    line = decode((swept / FILE).read_bytes().rstrip(b"\n"))
    assert line["way"] == "side by side"
    assert line["executed"] == [
        f"{SCORING}: _is_half", f"{SCORING}: autocast", f"{SCORING}: autocast, in the old code",
    ]  # fmt: skip
    held = held_among(swept, found["measured"])
    assert line["cells"] == [[cell, digest(held[cell].correct)] for cell in found["measured"]]
    assert {cell for cell, _ in line["operations"]} == {*found["measured"]}
    assert before == {path: path.read_bytes() for path in (swept / "cells").iterdir()}
    again = run(after, "attest", swept, "--old", ROOT, "--check")
    assert again.code == 0, again.out
    assert again.out == "4 attested cells shown again, with 2 cells of them run again.\n"
    assert decode((swept / FILE).read_bytes().rstrip(b"\n")) == line


PIXELS = "ttabench/nn/pixels.py"
RETURNED = "    return x.permute(0, 3, 1, 2).float().div_(255)"


def reasons(found: dict[str, list[dict[str, object]]]) -> set[str]:
    """How the reasons begin for which cells were refused."""
    return {str(each["why"]).partition(" for ")[0] for each in found["refused"]}


def test_the_same_numbers_by_other_operations_are_compared_with_the_stored_bits(
    swept: Path, after: Path
) -> None:
    """A function of its own that copies the images: the same bits, and another reference."""
    change(after, (RETURNED, f"    return _copied({RETURNED.split(maxsplit=1)[1]})"), file=PIXELS)
    with (after / PIXELS).open("a") as file:
        file.write("\n\ndef _copied(images: Tensor) -> Tensor:\n    return images.clone()\n")
    code, found = attested(after, swept)
    assert (code, found["attested"]) == (1, [])
    assert reasons(found) == {"the two codes do other torch operations"}
    code, found = attested(after, swept, "--other-operations")
    assert (code, [each["cells"] for each in found["attested"]]) == (0, [2, 2])
    *_, line = map(decode, (swept / FILE).read_bytes().splitlines())
    assert (line["way"], line["executed"]) == (
        "measured again", [f"{PIXELS}: _copied", f"{PIXELS}: to_tensor"]
    )  # fmt: skip


def test_other_numbers_are_refused_whatever_the_operations(swept: Path, after: Path) -> None:
    change(after, (RETURNED, f"{RETURNED}.neg()"), file=PIXELS)
    code, found = attested(after, swept)
    assert (code, found["attested"]) == (1, [])
    assert reasons(found) == {"the two codes compute something else"}


def test_other_operations_need_the_kind_of_machine_of_the_results(swept: Path) -> None:
    """The installed code is asked for what changed in groups of this machine alone."""
    asked: list[int] = []

    def changed_now(groups: Sequence[Group], outcome: Outcome) -> Sequence[Group]:
        asked.append(len(groups))
        return groups

    def possible() -> tuple[int, set[str]]:
        store, outcome = Store.at(swept), Outcome()
        groups = [Group((each, "", "", ""), frozenset(), (of,)) for each, of in store.latest().items()]
        return len(MeasuredAgain(store, changed_now).possible(groups, outcome)), {*outcome.left.values()}

    assert possible() == (4, set())
    edit_environment(swept, "processor", "Another")
    assert possible() == (0, {"they were measured on another kind of machine (Another)"})
    assert asked == [4, 0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        (STREAM, "len(data), len(data))", "len(data), len(data), 600)", "600 is new in it"),
        (SCORING, 'if device.startswith("cuda"):', 'if device == "cuda":', "branches for a GPU"),
        (
            SCORING,
            "    if protocol.reset_period and",
            "    if protocol.reset_period > 0 and",
            "a branch in line",
        ),
    ],
)
def test_what_the_sample_does_not_show_is_refused(
    swept: Path, after: Path, file: str, old: str, new: str, words: str
) -> None:
    change(after, (old, new), file=file)
    code, found = attested(after, swept)
    assert code == 1
    assert not found["attested"]
    assert found["refused"]
    assert all(words in str(each["why"]) for each in found["refused"]), found["refused"]


def test_what_is_no_old_code_of_the_results(swept: Path, after: Path, tmp_path: Path) -> None:
    change(after, *EXTRACTED)
    nothing = run(after, "attest", swept, "--old", tmp_path, "--dry-run")
    assert nothing.code == 2
    assert "has no ttabench that can run side by side" in nothing.err
    code, itself = attested(after, swept, old=after)
    assert (code, itself["attested"], itself["measured"]) == (1, [], [])
    assert len(itself["not_tried"]) == 2
    assert all("has not the code of these results" in str(each["why"]) for each in itself["not_tried"])
    assert not (swept / FILE).exists()


def test_another_reference_in_a_branch_that_never_runs_is_a_change(swept: Path, after: Path) -> None:
    """The text of the function is the same: references are numbers in it."""
    change(after, *EXTRACTED)
    stream, order = "ttabench/measure/image_stream.py", "class_by_class(labels, seed) if"
    change(after, (order, order.replace("class_by_class", "class_by_score")), file=stream)
    change(
        after,
        ("def class_by_class(", "def class_by_score(labels: NDArray[np.int64], seed: int) -> Any:\n"
         "    return np.arange(len(labels))\n\n\ndef class_by_class("),
        file=stream,
    )  # fmt: skip
    without = run(after, "attest", swept, "--dry-run", "--json")
    known = json.loads(without.out)
    assert len(known["refused"]) == 2
    assert all("--old CHECKOUT" in each["why"] for each in known["refused"])
    assert not known["to_try"]
    listed = run(after, "attest", swept, "--old", ROOT, "--dry-run", "--json")
    changed = [{*each["changed"]} for each in json.loads(listed.out)["to_try"]]
    assert len(changed) == 2
    assert all({f"{stream}: put_in_order", f"{stream}: put_in_order{OLD}"} <= each for each in changed)


def test_which_definitions_refer_to_something_else() -> None:
    then = {"f": ["a", "x:log"], "g": ["f"], "a": [], "b": [], "T": ["a"]}
    old_texts = {"f": "1", "g": "2", "a": "3", "b": "3", "T": "4"}

    def others(texts: dict[str, str], **now: list[str]) -> list[str]:
        return [*with_other_references({**old_texts, **texts}, {**then, **now}, old_texts, then)]

    assert others({}) == []
    assert others({}, f=["b", "x:log"]) == ["f"]  # although b has the text of a
    assert others({}, f=["a", "x:exp"], T=["b"]) == ["f", "T"]
    assert others({}, f=["a"]) == ["f"]
    assert others({"f": "5"}, f=["b"]) == []  # its text is a change already
    moved = {"f": "1", "n": "3", "g": "2", "T": "4"}
    now = {"f": ["n", "x:log"], "n": [], "g": ["f"], "T": ["n"]}
    assert [*with_other_references(moved, now, old_texts, then)] == []  # a new name of the same text
    assert [*with_other_references({**moved, "b": "3"}, {**now, "b": [], "n": ["b"]}, old_texts, then)] == [
        "n"
    ]


@pytest.mark.parametrize("attested", [False, True])
def test_a_line_leads_to_another_old_code_and_does_not_show_itself(tmp_path: Path, attested: bool) -> None:
    class Answers:
        def __init__(self, code: str) -> None:
            self.code = code

        def send(self, ask: str, **more: Any) -> None:
            self.answer = [[self.code, {}]] if ask == "code" else [{}]

        def receive(self) -> Any:
            return self.answer

    links = {("made with", "kind", "machine"): frozenset(["later"])}
    record: Any = SimpleNamespace(
        data={"cell": {}}, attested=attested, attestations=Attestations(links=links)
    )
    group = Group(("made with", "now", "kind", "machine"), frozenset(), (record,))
    sides: Any = [Answers("later"), Answers("now")]
    way, outcome = SideBySide(tmp_path, sides, [tmp_path, tmp_path]), Outcome()
    known = [*way.changed_now([group], outcome)]
    assert known == ([] if attested else [group])
    assert [*outcome.left.values()] == [f"{tmp_path} has not the code of these results"] * attested


def test_a_table_that_refers_to_something_else_cannot_be_shown(tmp_path: Path) -> None:
    class Answers:
        def __init__(self) -> None:
            of: dict[str, Any] = {"values": [], "unknown": [], "for_gpus": [], "constants": {}}
            self.send, self.receive = lambda *ask, **more: None, lambda: of

    sides: Any = [Answers(), Answers()]
    way = SideBySide(tmp_path, sides, [tmp_path, tmp_path])
    table, function = f"{SCORING}: Evaluation", f"{SCORING}: evaluate"
    way._others["", ""] = frozenset([table, function])
    assert way.watch(frozenset([table, function, f"{SCORING}: autocast"])).keys() == {table}


def test_cells_with_other_numbers_of_images_are_not_joined(cell: Cell) -> None:
    def kind(**changed: Any) -> tuple[str, ...]:
        of = replace(cell, protocol=Protocol(batch_size=20, **changed))
        return wider_kind(stratum_of(of.to_json()))

    assert kind(limit=20) not in (kind(limit=500), kind())
    assert kind(held_out=0.1) not in (kind(held_out=0.5), kind())
    assert kind(pace=1.0) == kind(pace=2.0, pace_ratio=3.0) != kind()


def test_few_images_are_two_batches_and_a_half() -> None:
    assert few(Protocol(batch_size=200)) == Protocol(batch_size=4, limit=10)
    assert few(Protocol(batch_size=2, limit=7)) == Protocol(batch_size=2, limit=7)
    recurring = few(Protocol(batch_size=64, stream="recurring(20)", reset="continual"))
    assert (recurring.batch_size, recurring.limit, recurring.stream) == (4, 5, "recurring(2)")
    assert few(Protocol(stream="gradual", reset="continual")).stream == "gradual"
    ccc = few(Protocol(batch_size=64, stream="ccc(40,length=7500,speed=100)", reset="continual"))
    assert (ccc.limit, ccc.spec.length, ccc.spec.speed) == (0, 250, 100)
    dynamic = few(Protocol(stream="cdc(0.5,rounds=9)", reset="continual"))
    assert (dynamic.limit, dynamic.stream) == (5, "cdc(0.5,rounds=2)")


def test_other_protocols_are_those_that_a_cell_can_have(cell: Cell) -> None:
    """Label shift by class goes with no held-out and no foreign images, so order and reset are plain ones."""
    shifted = replace(
        cell, protocol=Protocol(order="dirichlet(0)", reset="episodic", batch_size=16, limit=40)
    )
    made = [each.protocol for each in varied(shifted)]
    assert {each.held_out for each in made} == {0.0, 0.25}
    assert {each.contamination for each in made} == {"", "noise(0.2)", f"{cell.dataset}(0.2)"}
    assert {each.mode for each in made} == {"online", "offline"}
    assert {each.limit for each in made} >= {0, 9}
    assert {each.stream for each in made} == {"", f"recurring(4,corruptions={cell.corruption})"}
    gradual = replace(cell, corruption="gradual", protocol=Protocol(stream="gradual", reset="continual"))
    streams = [*varied(gradual)]
    assert {(each.corruption, each.protocol.spec.length) for each in streams} == {("ccc", 20)}
    assert [each.protocol.limit for each in streams] == [0, 5]
    kept = replace(gradual, baseline="resnet18@" + "f" * 64)
    assert {each.baseline for each in varied(kept)} == {""}
    continual = replace(cell, corruption="mixed", history=("fog-5",), foreign="a" * 64)
    *_, stream = others = [*varied(continual)]
    assert {(each.history, each.foreign) for each in others} == {((), "")}
    assert {each.corruption for each in others[:-1]} == {"mixed"}
    assert (stream.corruption, stream.protocol.stream) == ("recurring", "recurring(4,corruptions=fog)")
    *_, stream = varied(replace(cell, corruption="snow"))
    assert stream.protocol.stream == "recurring(4,corruptions=snow)"
    offline = replace(cell, protocol=Protocol(mode="offline", batch_size=4, epochs=10))
    assert not any(each.protocol.stream for each in varied(offline))


@pytest.mark.parametrize(
    ("corruption", "severity", "stream", "made"),
    [
        ("fog", 3, "", [("fog", 3)]),
        ("recurring", 5, "recurring(2,corruptions=fog+snow)", [("fog", 5), ("snow", 5)]),
        ("gradual", 0, "gradual(corruptions=fog)", [("fog", step) for step in (1, 2, 3, 4, 5, 4, 3, 2, 1)]),
        ("ccc", 0, "ccc(40,length=20,speed=5)", []),
        ("mixed", 2, "", [(name, 2) for name in CORRUPTIONS]),
    ],
)
def test_the_images_of_a_cell_are_made_before_it_runs(
    cell: Cell, corruption: str, severity: int, stream: str, made: list[tuple[str, int]]
) -> None:
    asked: list[tuple[str, int]] = []

    class Data:
        def corrupted(self, name: str, severity: int) -> None:
            asked.append((name, severity))

        def test(self) -> None: ...

        train = test

    protocol = Protocol(stream=stream, reset="continual") if stream else Protocol()
    any_data: Any = Data()
    make_images(replace(cell, corruption=corruption, severity=severity, protocol=protocol), any_data)
    assert asked == made


def test_what_is_compared_of_a_text() -> None:
    side = Side()
    shown = [
        "ttabench/measure/scoring.py: evaluate", "ttabench/measure/scoring.py: Evaluation",
        "ttabench/observe/collapse.py: DRAWS", "ttabench/observe/collapse.py: gone",
    ]  # fmt: skip
    found = side.watch(shown)
    assert found["unknown"] == [shown[3]]
    assert found["values"] == [shown[2]]
    assert found["constants"][shown[2]] == ["10"]
    assert found["for_gpus"] == ["if device.startswith('cuda'):\n    torch.cuda.synchronize()"]
    assert side.missing() == {shown[0]: ["it did not run"]}


def test_a_changed_value_is_refused_and_a_new_one_counts_by_its_numbers(tmp_path: Path) -> None:
    """Nobody sees where a value is read, so the sample cannot show what a changed one does."""

    class Answers:
        def __init__(self, **texts: list[str]) -> None:
            of = {"values": [*texts], "unknown": [], "for_gpus": [], "constants": texts}
            self.send, self.receive = lambda *ask, **more: None, lambda: of

    scoring = "ttabench/measure/scoring.py"
    sides: Any = [Answers(MOST=["5"]), Answers(MOST=["6"], FEW=["5"], MANY=["7"])]
    way = SideBySide(tmp_path, sides, [tmp_path, tmp_path])
    found = way.watch(frozenset([f"{scoring}: {name}" for name in ("MOST", "FEW", "MANY")]))
    assert found.keys() == {"MOST", "MANY"}
    assert found["MANY"].startswith("7 is new in it")


def test_a_function_that_the_installed_code_no_longer_reaches_can_be_accepted(tmp_path: Path) -> None:
    class Answers:
        def __init__(self, lacking: dict[str, list[str]]) -> None:
            answers = iter([{"values": [], "unknown": [], "for_gpus": [], "constants": {}}, lacking])
            self.send, self.receive = lambda *ask, **more: None, lambda: next(answers)

    gone, changed = (f"ttabench/measure/scoring.py: {name}" for name in ("gone", "changed"))
    lacking = {gone: [NOT_AT_ALL], changed: [NOT_AT_ALL]}
    asked = frozenset([changed, f"{gone}{OLD}", f"{changed}{OLD}"])

    def missing(accept_old: bool) -> tuple[set[str], Sequence[str]]:
        sides: Any = [Answers(lacking), Answers({})]
        way = SideBySide(tmp_path, sides, [tmp_path, tmp_path], accept_old)
        way.watch(asked)
        return {*way.missing()}, way.accepted

    assert missing(accept_old=False) == ({f"{gone}{OLD}", f"{changed}{OLD}"}, ())
    assert missing(accept_old=True) == (
        {f"{changed}{OLD}"},
        [f"{changed}: {NOT_AT_ALL}", f"{gone}: {NOT_AT_ALL}"],
    )


def test_cells_run_on_few_images_and_both_codes_have_to_read_the_same_whole_sets() -> None:
    labels = labels_for(300, 10)
    images = clean_images(300)
    other = images.copy()
    other[-1, 0, 0, 0] ^= 1

    def read(images: Any) -> tuple[int, dict[str, str]]:
        found: dict[str, str] = {}
        labelled = Labelled(images, labels)
        data: Any = SimpleNamespace(
            name="mine", scored_classes=(), train=lambda: labelled, test=lambda: labelled
        )
        few_images = FewImages(data, found)
        few_images.train()
        return len(few_images.test()), found

    assert read(images) == read(images.copy())
    assert read(images)[0] < 300
    assert len(read(images)[1].items() ^ read(other)[1].items()) == 4


def test_code_that_reads_images_is_shown_by_what_both_codes_read(tmp_path: Path) -> None:
    asked: list[int] = []

    class Answers:
        def __init__(self, last: str) -> None:
            self.last = last

        def send(self, ask: str, cells: list[dict[str, Any]]) -> None:
            asked.append(len(cells))
            self.cells = cells

        def receive(self) -> list[dict[str, str]]:
            found = {"snow": {"digest": self.last}, "blur": {"reason": "it is not here."}}
            return [found.get(each["corruption"], {"digest": "same"}) for each in self.cells]

    def alike(*corruptions: str, changed: str = "ttabench/data/files/array_files.py: check_labels") -> str:
        cell = {"dataset": "mine", "severity": 5, "protocol": {}}
        records: Any = [SimpleNamespace(data={"cell": {**cell, "corruption": name}}) for name in corruptions]
        outcome = Outcome()
        group = Group(("", "", "", ""), frozenset([changed]), tuple(records))
        assert way._read_alike(group, outcome) == (not outcome.left and not outcome.refused)
        return next(iter((outcome.left | outcome.refused).values()), "")

    sides: Any = [Answers("a"), Answers("b")]
    way = SideBySide(tmp_path, sides, [tmp_path, tmp_path])
    assert alike("fog", "fog", "frost") == ""
    assert alike("frost", "snow") == "the two codes read other images or labels for mine"
    assert alike("blur") == "mine, blur cannot be read: it is not here"
    assert asked == [2, 2, 1, 1, 1, 1]  # of each image once
    assert alike("snow", changed="ttabench/corruptions/weather.py: snow") == alike("frost", "snow")
    assert alike("snow", changed="ttabench/measure/order_and_batches.py: arrange") == ""


@pytest.mark.parametrize("corruption", ["fog", "ccc"])
def test_a_corruption_is_shown_by_its_images_except_in_streams_that_make_them_as_they_go(
    cell: Cell, tmp_path: Path, corruption: str
) -> None:
    """The images of a test set are made before a cell runs, so no cell runs this code."""
    fog = "ttabench/corruptions/weather.py: fog"
    answers = iter([
        [["then", {fog: "1"}]], [["now", {fog: "2"}]], [{fog: []}], [{fog: []}], [{"digest": "same"}],
        [{"digest": "same"}], {fog: [NOT_AT_ALL]}, {fog: [NOT_AT_ALL]},
    ])  # fmt: skip
    side: Any = SimpleNamespace(send=lambda *ask, **more: None, receive=lambda: next(answers))
    way = SideBySide(tmp_path, [side, side], [tmp_path, tmp_path])
    cell = replace(cell, corruption=corruption)
    data = {"cell": cell.to_json()}
    record: Any = SimpleNamespace(
        data=data, attested=False, attestations=Attestations(), cell_id="",
        result=SimpleNamespace(seconds=1.0, cell=cell),
    )  # fmt: skip
    group = Group(("then", "now", stratum_of(data["cell"]), ""), frozenset([fog]), (record,))
    assert [each.changed for each in way.possible([group], Outcome())] == [{fog, f"{fog}{OLD}"}]
    assert bool(way.missing()) == (corruption == "ccc")


def test_what_is_read_for_a_cell_is_its_images_labels_and_classes(
    cell: Cell, few_images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = replace(cell, dataset=str(few_images), corruption="fog", severity=5, protocol=Protocol())

    def read(cell: Cell) -> dict[str, str]:
        (found,) = Side().read([cell.to_json()])
        return found

    assert read(mine) == read(replace(mine, method="tent", protocol=Protocol(batch_size=2)))
    assert read(mine).keys() == {"digest"}
    assert read(mine) != read(replace(mine, corruption="snow"))
    test = dataset(str(few_images)).test()
    others = {"cifar10-c": test, "svhn-c": Labelled(255 - test.images, test.labels)}
    of_name = {
        name: SimpleNamespace(name="foreign", scored_classes=(), test=lambda of=of: of)
        for name, of in others.items()
    }
    monkeypatch.setattr(one_side, "foreign_set", of_name.__getitem__)
    foreign = replace(mine, foreign="a" * 64)
    digests = [
        read(replace(foreign, protocol=Protocol(contamination=f"{name}(0.2)")))["digest"] for name in others
    ]
    assert len({*digests, read(mine)["digest"]}) == 3
    assert "there is no folder" in read(replace(mine, dataset=str(few_images / "nowhere")))["reason"]


@pytest.mark.parametrize(
    ("arch", "why"), [("no_such_network", "no_such_network"), ("timm:resnet18", "no longer has the weights")]
)
def test_a_cell_whose_network_is_not_here_does_not_end_the_others(
    cell: Cell, few_images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arch: str, why: str
) -> None:
    monkeypatch.setattr(worker, "CLEAN", worker.CLEAN)  # few images from here on, in a process of its own
    mine = replace(cell, dataset=str(few_images), corruption="fog", severity=5, protocol=Protocol())
    of_others = replace(mine, arch=arch, checkpoint="f" * 64).to_json()
    found = Side().run([of_others], str(tmp_path), whole=False, varied=False)
    assert why in found["reason"]


def scored(cell: Cell, folder: Path) -> Cell:
    """Source on fog images of a folder, on a small network with initial weights."""
    protocol = Protocol(batch_size=20, limit=5)
    return replace(
        cell, method="source", config=(), dataset=str(folder), fingerprint=dataset(str(folder)).fingerprint(),
        arch="resnet20", checkpoint="f" * 64, protocol=protocol,
    )  # fmt: skip


def test_what_a_code_computes_is_a_hash_of_its_operations_and_one_of_its_numbers(
    cell: Cell, few_images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "CLEAN", worker.CLEAN)
    mine = scored(cell, few_images).to_json()

    def run(whole: bool = False) -> tuple[str, str]:
        found = Side().run([mine], str(tmp_path), whole=whole, varied=False)
        assert found.keys() == {"digest", "numbers"}, found
        assert {*map(len, found.values())} == {16}
        return found["digest"], found["numbers"]

    operations, numbers = run()
    assert worker.CLEAN == 16
    assert run() == (operations, numbers)
    adapt = Source.adapt
    monkeypatch.setattr(Source, "adapt", lambda self, x: adapt(self, x.clone()))
    cloned = run()
    assert cloned[0] != operations
    assert cloned[1] == numbers
    monkeypatch.setattr(Source, "adapt", lambda self, x: -adapt(self, x))
    negated = run()
    assert negated[0] not in (operations, cloned[0])
    assert negated[1] != numbers
    monkeypatch.setattr(Source, "adapt", adapt)
    assert run(whole=True)[0] != operations  # one batch, and not one of four images and one of one
    monkeypatch.setattr(FewImages, "_note", lambda self, found, asked: self._read.update(x="0") or found)
    assert not {*run()} & {operations, numbers}  # other whole sets that were read


@pytest.mark.parametrize("fails", ["run", "adapt"])
def test_a_cell_without_a_number_says_why(
    cell: Cell, few_images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    monkeypatch.setattr(worker, "CLEAN", worker.CLEAN)
    mine = scored(cell, few_images)
    if fails == "run":
        mine = replace(mine, corruption="no_such_corruption")
    else:
        monkeypatch.setattr(Source, "adapt", lambda self, x: 1 / 0)
    found = Side().run([mine.to_json()], str(tmp_path), whole=False, varied=False)
    assert found.keys() == {"reason"}
    assert ("no_such_corruption" if fails == "run" else "division by zero") in found["reason"]


def asked_of(side: Any) -> list[tuple[Any, ...]]:
    """What a side runs from now on: the cells, whether it is stopped, and seconds between saved states."""
    asked: list[tuple[Any, ...]] = []

    def run(chain: Sequence[Cell], folder: Path, hear: Any) -> Any:
        stops = False
        try:
            for scored in (False, True, False, True, True):
                hear(SimpleNamespace(scored=scored))
                stops = True
        except Stopped:
            asked.append((*chain, "stopped", checkpoint.SECONDS))
            raise
        assert stops
        asked.append((*chain, "whole", checkpoint.SECONDS))
        return chain[-1]

    side._run = run
    return asked


def test_a_stream_is_stopped_after_its_second_batch_and_goes_on(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS", 60.0)
    side: Any = Side()
    asked = asked_of(side)
    assert side._result([cell], tmp_path) == cell
    assert asked == [(cell, "whole", 60.0)]
    stream = replace(cell, corruption="gradual", protocol=Protocol(stream="gradual", reset="continual"))
    asked.clear()
    assert side._result([stream], tmp_path) == stream
    assert asked == [(stream, "stopped", 0.0), (stream, "whole", 1e9)]


def test_a_varied_cell_runs_with_other_protocols_and_with_one_class_less(cell: Cell, tmp_path: Path) -> None:
    side: Any = Side()
    asked = asked_of(side)
    data = SimpleNamespace(num_classes=4, scored_classes=(0, 1, 2, 3))
    chain = [replace(cell, corruption="snow"), cell]
    results = [*side._others(chain, data, tmp_path)]
    others = [*varied(cell)]
    assert [each.protocol.stream for each in others] != [""] * len(others)
    assert results == [*others, cell]
    assert asked[-1] == (*chain, "whole", checkpoint.SECONDS)
    kept = side._state.keep("dataset", cell.dataset, lambda: None, limit=4)
    assert kept.scored_classes == (0, 1, 2)
    assert data.scored_classes == (0, 1, 2, 3)


def test_few_images_of_a_set_are_the_first_ones_and_five_of_each_class_of_the_source() -> None:
    labels = labels_for(300, 10)
    images = clean_images(300)
    asked: list[tuple[str, int]] = []

    def corrupted(corruption: str, severity: int) -> Labelled:
        asked.append((corruption, severity))
        return Labelled(images, labels)

    whole: Any = SimpleNamespace(
        name="mine", scored_classes=(3,), mean=(0.5,), corrupted=corrupted,
        train=lambda: Labelled(images, labels), test=lambda: Labelled(images, labels),
    )  # fmt: skip
    read: dict[str, str] = {}
    few_images = FewImages(whole, read)
    assert (few_images.scored_classes, few_images.mean) == ((3,), (0.5,))
    for found in (few_images.corrupted("fog", 3), few_images.test()):
        assert np.array_equal(found.images, images[:60])
        assert np.array_equal(found.labels, labels[:60])
    assert asked == [("fog", 3)]
    source = few_images.train()
    assert np.bincount(source.labels).tolist() == [5] * 10
    first = {label: images[labels == label][:5] for label in range(10)}
    assert all(np.array_equal(source.images[source.labels == label], first[label]) for label in range(10))
    assert read.keys() == {"mine fog-3", "mine test", "mine train"}
    assert len({*read.values()}) == 1


def test_what_a_definition_refers_to() -> None:
    of_cells = [replace(CELL, method="source", config=()).to_json()]
    ((found,),) = [Side().references(of_cells)]
    ((_, definitions),) = Side().code(of_cells)
    assert found.keys() == definitions.keys()
    assert "ttabench_methods/source.py: Source.adapt" in found
    assert f"{SCORING}: autocast" in found[f"{SCORING}: evaluate"]
    assert found["ttabench_methods/source.py: Source.adapt"] == []


def test_the_code_is_read_anew_for_each_question(monkeypatch: pytest.MonkeyPatch) -> None:
    forgot: list[int] = []
    monkeypatch.setattr(one_side, "forget", lambda: forgot.append(1))
    ((source, definitions),) = Side().code([CELL.to_json()])
    assert forgot == [1]
    assert source == code_of(CELL).source
    assert definitions == dict(code_of(CELL).definitions)
    assert Side().answer({"ask": "place"}) == str(ROOT)


def test_branches_for_a_gpu_are_not_missing_and_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    side: Any = Side()
    branch = ast.parse("\n\nif (x ==\n 'cuda'):\n  pass\nelse:\n  pass").body[0]
    lacking = {"f": [(3, "line 3"), (4, "line 4"), (5, "line 5")], "g": [(3, "line 3")], "h": [(4, "line 4")]}
    side._executed = SimpleNamespace(missing=lambda: lacking)
    side._for_gpus = {"f": [branch], "g": [branch], "h": []}
    assert side.missing() == {"f": ["line 5"], "h": ["line 4"]}


def test_numbers_and_devices_of_a_text_and_its_branches_for_a_gpu() -> None:
    node = ast.parse(
        "def f(x):\n    if x.device.type == 'cuda':\n        x = x * 2.0 if x.sum() > 7 else 1e-6\n"
        "    y = x.to('cpu') if x.type == 'cuda' else True\n    return 'mean', -3, None, b'1', 'cuda:0'"
    )
    assert one_side._constants(node) == {"2", "7", "1e-06", "3", "cpu", "cuda"}
    assert [each.lineno for each in one_side._for_gpus(node)] == [2, 4]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("more", [True, False])
def test_which_cells_run_on_which_images(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool, more: bool
) -> None:
    monkeypatch.setattr(worker, "CLEAN", worker.CLEAN)
    chain = [replace(cell, corruption="snow"), cell]
    small = chain if whole else [replace(each, protocol=few(each.protocol)) for each in chain]
    made: list[tuple[str, int]] = []
    data: Any = SimpleNamespace(
        name="mine",
        scored_classes=(),
        corrupted=lambda *of: made.append(of),
        test=lambda: None,
        train=lambda: None,
    )
    asked: list[Any] = []
    result = SimpleNamespace(status="ok", accuracy=50.0, correct=b"ab", reason="")
    other = SimpleNamespace(status="ok", accuracy=25.0, correct=b"ab", reason="")
    side: Any = Side()
    side._whole = lambda name: data
    side._use = lambda *given: asked.append(given)
    side._load = lambda *given: asked.append(given)
    side._result = lambda *given: asked.append(given) or result
    side._others = lambda *given: asked.append(given) or iter([other])
    found = side.run([each.to_json() for each in chain], str(tmp_path), whole=whole, varied=more)
    (used, of), loaded, ran, *others = asked
    assert (used is data, type(used) is FewImages, of) == (whole, not whole, cell)
    assert loaded == (cell, data, tmp_path)
    assert ran == (small, tmp_path)
    assert others == ([(small, data, tmp_path)] if more else [])
    assert made == [("snow", 5), ("fog", 5)]
    assert (worker.CLEAN == 16) == (not whole)
    seconds = cell.arch, cell.dataset, cell.checkpoint, "cpu", small[-1].protocol.batch_size, "float32"
    assert side._state.keep("source seconds", seconds, lambda: 5.0, limit=64) == 1.0
    other.accuracy = 75.0
    again = side.run([each.to_json() for each in chain], str(tmp_path), whole=whole, varied=more)
    assert (again["numbers"] != found["numbers"]) == more
    result.status, result.reason = "failed", "it broke"
    assert side.run([cell.to_json()], str(tmp_path), whole=whole, varied=more) == {"reason": "it broke"}


def test_the_dataset_of_a_cell_is_the_last_one_that_is_given(cell: Cell) -> None:
    side: Any = Side()
    for data in ("one", "other"):
        side._use(data, cell)
        assert side._state.keep("dataset", cell.dataset, lambda: None, limit=4) == data


def test_a_stream_is_stopped_at_the_second_batch_that_is_scored() -> None:
    hear = one_side._stopping()
    for scored in (False, True, False, False):
        hear(SimpleNamespace(scored=scored))
    with pytest.raises(Stopped):
        hear(SimpleNamespace(scored=True))
    hear(SimpleNamespace(scored=True))
