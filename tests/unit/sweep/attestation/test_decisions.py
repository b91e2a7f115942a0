"""What is decided from what the cells of a sample show. They are told what to show, and none runs."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.cases import each
from tests.unit.stored_results import CELL, measured
from ttabench.cell import Cell
from ttabench.cell.protocol import Protocol
from ttabench.errors import UserError
from ttabench.provenance.closure import Reached
from ttabench.provenance.executed import NOT_AT_ALL
from ttabench.provenance.roots import Code
from ttabench.provenance.staleness import NOT_RECORDED, REFERENCES, StoredCode
from ttabench.run import summary_cache
from ttabench.run.executors.workers import pick_executor
from ttabench.run.progress_events import CellProgress
from ttabench.store import Record, Store
from ttabench.store.attestations import FILE, OTHER_OPERATIONS, Attestations, digest, machine_of, stratum_of
from ttabench.store.stored_environment import StoredEnvironment
from ttabench.store.writer import environment
from ttabench.sweep import attestation
from ttabench.sweep.agreement import Check, of_cell
from ttabench.sweep.attestation import Group, Outcome, Shown, groups, judge, measured_again, words
from ttabench.sweep.attestation.image_sets import images_of, of_each_image_set, with_other_images
from ttabench.sweep.attestation.measured_again import MeasuredAgain, fewer_branches, from_results
from ttabench.sweep.attestation.sample import MOST, Sample, seed_of
from ttabench.sweep.attestation.side_by_side import OLD, CodeProcess, SideBySide
from ttabench.system.bounded_folder import largest_size
from ttabench.system.checked_lines import decode

RIGHT = np.arange(8) < 5
F, G = "ttabench/nn/updates.py: f", "ttabench/nn/updates.py: g"
FOG, SNOW = "ttabench/corruptions/weather.py: fog", "ttabench/corruptions/weather.py: snow"
ELSEWHERE = StoredEnvironment({"processor": "Another"})


def record(
    cell: Cell = CELL, seconds: float = 0.5, source: str = "then", of: Mapping[str, str] | None = None,
    **more: Any,
) -> Record:  # fmt: skip
    data = replace(measured(cell, RIGHT), seconds=seconds).to_json()
    given = {"environment": StoredEnvironment(), **more}
    return Record(data, source, StoredCode({F: "1"} if of is None else of), **given)


def seeds(*numbers: int, **changed: Any) -> list[Record]:
    """Records of these seeds, the first ones cheaper."""
    return [record(replace(CELL, seed=seed, **changed), seconds=0.1 + seed) for seed in numbers]


def group(*records: Record, now: str = "now", changed: Sequence[str] = (F,)) -> Group:
    first = records[0]
    kind = stratum_of(first.data["cell"])
    return Group((first.source, now, kind, machine_of(first.environment)), frozenset(changed), records)


class Told:
    """A way whose cells show what it is told.

    why      seed → why its cell is not the same, and whether it ran.
    lacking  what did not run after each turn; the last one stays.
    """

    name = "measured again"
    varies, compares_images = False, True
    accepted = ("a branch",)

    def __init__(
        self, why: Mapping[int, tuple[str, bool]] | None = None, *lacking: dict[str, str], **of: Any
    ) -> None:
        self._why, self._lacking = why or {}, [*lacking] or [{}]
        self.turns: list[tuple[int, list[int]]] = []
        self.checked = 0
        vars(self).update(of)

    def possible(self, groups: Sequence[Group], outcome: Outcome) -> list[Group]:
        assert isinstance(outcome, Outcome)
        return [*groups]

    def watch(self, changed: frozenset[str]) -> dict[str, str]:
        self.watched = changed
        return {}

    def run(self, records: Sequence[Record], turn: int) -> Iterator[Shown | CellProgress]:
        self.turns.append((turn, [of.result.cell.seed for of in records]))
        for of in records:
            cell = of.result.cell
            yield CellProgress(str(cell), 1, 0, 0, 0, "")
            why, ran = self._why.get(cell.seed, ("", True))
            yield Shown(cell, why, ran, operations="" if why else f"operations of {cell.seed}")

    def missing(self) -> dict[str, str]:
        return self._lacking[min(len(self.turns), len(self._lacking)) - 1]

    def check_code(self) -> None:
        self.checked += 1


def attested(folder: Path, groups: Sequence[Group], way: Any, keep: bool = True) -> Outcome:
    of = (Store.create(folder, {}), groups, way)
    *_, last = attestation.attest(*of) if keep else attestation.attest(*of, keep=False)
    assert isinstance(last, Outcome)
    return last


def line_of(folder: Path) -> dict[str, Any]:
    return decode((folder / FILE).read_bytes().rstrip(b"\n"))


# ---- groups


def test_stale_cells_with_a_number_are_in_groups_of_one_kind_code_and_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = Code("now", {F: "2", G: "3"})
    monkeypatch.setattr(groups, "code_of", lambda cell: now if cell.method == "tent" else Code())

    def stored(seed: int, seconds: float = 1.0, attested: bool = False, **more: Any) -> Any:
        of = {"source": "then", "environment": StoredEnvironment(), "definitions": {F: "1"}, **more}
        result = replace(measured(replace(CELL, seed=seed), RIGHT), seconds=seconds)
        if "status" in of:
            result = replace(result, status=of["status"])
        return SimpleNamespace(
            result=result, attested=attested, changes=() if attested else ("it changed",),
            data=result.to_json(), cell_id=result.cell.cell_id, **of,
        )  # fmt: skip

    dear, *alike, unknown, elsewhere, shown, fresh, failed = (
        stored(0, 3.0), stored(1), stored(2), stored(3, definitions={}), stored(4, environment=ELSEWHERE),
        stored(5, attested=True), stored(6), stored(7, status="failed"),
    )  # fmt: skip
    fresh.changes = ()
    every = [unknown, failed, fresh, dear, *alike, elsewhere, shown]
    store: Any = SimpleNamespace(latest=lambda: {each.cell_id: each for each in every})
    kind = stratum_of(CELL.to_json())
    found = {each.key: each for each in groups.groups_of(store)}
    here, there = machine_of(StoredEnvironment()), machine_of(ELSEWHERE)
    keys = [("then", "", kind, here), ("then", "now", kind, here), ("then", "now", kind, there)]
    assert [*found] == [keys[0], *sorted(keys[1:])]
    alike.sort(key=lambda each: each.cell_id)
    assert found[keys[1]].records == (*alike, dear)
    assert [found[key].changed for key in keys] == [frozenset(), {F, G}, {F, G}]
    assert [each.records for each in groups.groups_of(store, attested=True)] == [(shown,)]


def test_why_groups_are_not_tried() -> None:
    def held(*link: str) -> Attestations:
        return Attestations(refused={(*link, "now"): "fog differs"})

    kind, here = stratum_of(CELL.to_json()), machine_of(StoredEnvironment())
    changed = replace(CELL, arch="cct_2"), replace(CELL, arch="vit"), replace(CELL, arch="elsewhere")
    unknown = group(record(of={}), now="")
    before = group(record(changed[0], attestations=held("then", stratum_of(changed[0].to_json()), here)))
    mine = group(record(changed[1]), changed=[F, "mine/b.py", "mine/a.py"])
    other_code = group(record(changed[2], attestations=held("another", kind, here)))
    outcome, way = Outcome(), Told()
    tried = judge.to_try([unknown, before, mine, other_code], way, outcome)
    assert tried == [other_code]
    assert outcome.left == {unknown.key: NOT_RECORDED.replace("it was", "they were", 1)}
    assert outcome.refused == {
        before.key: "refused before, with the same code: fog differs",
        mine.key: judge.COUNTS_WHOLE.format("mine/a.py"),
    }
    assert outcome.groups.keys() == {each.key for each in (unknown, before, mine, other_code)}


def test_groups_that_a_way_makes_are_known_by_their_key() -> None:
    one, other = group(*seeds(0)), group(*seeds(1, arch="cct_2"))
    joined = Group(("joined", "now", "", ""), frozenset([F]), (*one.records, *other.records))
    outcome = Outcome()
    assert judge.to_try([one, other], Told(possible=lambda *_: [joined]), outcome) == [joined]
    assert outcome.groups == {each.key: each for each in (one, other, joined)}


# ---- the outcome


def four_groups() -> tuple[Group, Group, Group, Group, Group]:
    """One that is the same, one that differs, one that cannot run, one of which not all runs, no change."""
    archs = iter("abcde")
    return (
        group(*seeds(0, 10, arch=next(archs))), group(*seeds(1, arch=next(archs))),
        group(*seeds(2, arch=next(archs))), group(*seeds(3, arch=next(archs)), changed=[F, G]),
        group(*seeds(4, arch=next(archs)), changed=[]),
    )  # fmt: skip


WHY = {1: ("fog differs", True), 2: ("it is not here", False)}


def test_what_is_the_same_refused_and_left(tmp_path: Path) -> None:
    same, differs, not_here, lacking, no_change = every = four_groups()
    way = Told(WHY, {G: "a branch in line 3 did not run"})
    outcome = attested(tmp_path / "results", every, way)
    assert way.watched == {F, G}
    assert outcome.same == [same]
    assert outcome.refused == {
        differs.key: "fog differs",
        lacking.key: f"not all of the change ran in the sample ({G}: a branch in line 3 did not run)",
        no_change.key: f"{REFERENCES}; measure these cells again",
    }
    assert outcome.left == {not_here.key: "it is not here"}
    assert outcome.cells == [(same.records[0].cell_id, "operations of 0")]
    assert outcome.measured == [same.records[0].cell_id]
    assert outcome.accepted == ("a branch",)
    assert way.checked == 1


def test_what_is_stored_of_an_outcome(tmp_path: Path) -> None:
    same, differs, *_ = every = four_groups()
    attested(tmp_path, every, Told(WHY, {G: "a branch"}))
    first, second = same.records
    line = line_of(tmp_path)
    assert line["same"] == [["then", "now", same.key[2]]]
    assert line["refused"] == [["then", "now", differs.key[2], "fog differs"]]
    assert line["cells"] == [[first.cell_id, digest(first.result.correct)]]
    assert line["operations"] == [[first.cell_id, "operations of 0"]]
    assert (line["executed"], line["accepted"], line["way"]) == ([F], ["a branch"], "measured again")
    assert line["seed"] == seed_of(every)
    assert line["environment"] == {}
    assert 0 <= time.time() - line["written"] < 600
    assert line["shown_on"] == environment("cpu")
    assert second.cell_id not in str(line)


def test_a_line_for_each_kind_of_machine_and_a_link_for_each_code_and_kind_of_its_cells(
    tmp_path: Path,
) -> None:
    """Groups that are joined have cells of several kinds, machines and codes."""
    wide = replace(CELL, protocol=Protocol(batch_size=7))
    records = (record(), record(wide, 0.6, "earlier"), record(replace(CELL, seed=1), environment=ELSEWHERE))
    joined = Group(("then", "now", "joined", "here"), frozenset([G, F]), records)
    attested(tmp_path, [joined], Told({}))
    here, there = map(decode, (tmp_path / FILE).read_bytes().splitlines())
    kinds = [stratum_of(each.to_json()) for each in (CELL, wide)]
    assert here["same"] == [["earlier", "now", kinds[1]], ["then", "now", kinds[0]]]
    assert (there["environment"], there["same"]) == (dict(ELSEWHERE), [["then", "now", kinds[0]]])
    assert here["cells"] == there["cells"]
    assert here["executed"] == [F, G]


@each("keep", [True, False])
def test_nothing_is_stored_unless_something_was_shown_and_it_is_asked_for(tmp_path: Path, keep: bool) -> None:
    def stored(name: str, why: Mapping[int, tuple[str, bool]], *lacking: dict[str, str]) -> bool:
        outcome = attested(tmp_path / name, [group(*seeds(0))], Told(why, *lacking), keep)
        assert bool(outcome.accepted) == (name in ("same", "differs"))
        return (tmp_path / name / FILE).exists()

    assert stored("same", {}) == keep
    assert stored("differs", {0: ("fog differs", True)}) == keep
    assert not stored("not here", {0: ("it is not here", False)})
    assert not stored("lacking", {}, {F: "a branch"})


@each(("why", "keep", "stored"), [
    (("fog differs", True), True, True), (("fog differs", True), False, False),
    (("it is not here", False), True, False), (("", True), True, False),
])  # fmt: skip
def test_if_it_is_stopped_numbers_that_disagree_are_stored_alone(
    tmp_path: Path, why: tuple[str, bool], keep: bool, stored: bool
) -> None:
    way = Told({0: why})
    ran = attestation.attest(Store.create(tmp_path / "results", {}), [group(*seeds(0))], way, keep)
    while not isinstance(next(ran), Shown):
        pass
    with pytest.raises(KeyboardInterrupt):
        ran.throw(KeyboardInterrupt())  # type: ignore[attr-defined]
    assert (tmp_path / "results" / FILE).exists() == stored
    assert way.checked == stored
    if stored:
        line = line_of(tmp_path / "results")
        assert (line["way"], line["same"], len(line["refused"])) == ("measured again", [], 1)


def test_code_that_changed_meanwhile_stores_nothing(tmp_path: Path) -> None:
    def changed() -> None:
        raise groups.code_changed()

    with pytest.raises(UserError, match="the code changed while it was attested; nothing is stored"):
        attested(tmp_path, [group(*seeds(0))], Told({0: ("it differs", True)}, check_code=changed))
    told = "the code changed while it was attested; nothing is stored. Run the command again."
    assert str(groups.code_changed()) == told
    assert not (tmp_path / FILE).exists()


# ---- the sample


def test_cells_run_until_all_has_run_and_for_five_turns_at_most() -> None:
    def turns(*lacking: dict[str, str], **of: Any) -> list[tuple[int, list[int]]]:
        way: Any = Told(of.pop("why", {}), *lacking, **of)
        assert len([*Sample([group(*seeds(*range(9)))], way, 0).run()]) == 2 * len(way.turns)
        return [(turn, [len(ran)]) for turn, ran in way.turns]

    lacks: dict[str, str] = {F: "a branch"}
    assert turns({}) == [(0, [1])]
    assert turns({G: "of another group"}) == [(0, [1])]
    assert turns(lacks, lacks, {}) == [(turn, [1]) for turn in range(3)]
    assert turns(lacks) == [(turn, [1]) for turn in range(MOST)]
    differs = dict.fromkeys(range(9), ("it differs", True))
    assert turns(lacks, why=differs) == [(0, [1])]  # others of its kind show nothing more


def test_no_cell_runs_twice_unless_it_runs_other_code_then() -> None:
    def ran(**of: Any) -> list[tuple[int, list[int]]]:
        way: Any = Told({}, {F: "a branch"}, **of)
        assert [*Sample([group(*seeds(0))], way, 0).run()]
        return way.turns  # type: ignore[no-any-return]

    assert ran() == [(0, [0])]
    assert ran(varies=True) == [(0, [0]), (1, [0])]


def test_in_a_later_turn_a_cell_runs_only_if_no_other_one_has_run_what_it_would() -> None:
    both = [group(*seeds(0, 1)), group(*seeds(2, 3, arch="cct_2"))]
    way: Any = Told({}, {F: "a branch"}, {})
    sample = Sample(both, way, 0)
    assert [*sample.run()]
    assert [turn for turn, _ in way.turns] == [0, 1]
    assert [len(seeds) for _, seeds in way.turns] == [2, 1]
    assert {cell_id for cell_id, _ in sample.of(both[:1])} < {cell_id for cell_id, _ in sample.alike}
    assert {*sample.of(both[:1]), *sample.of(both[1:])} == {*sample.alike}


def test_the_cheapest_quarter_is_drawn_from_and_the_cheapest_cell_runs_first() -> None:
    drawn = set()
    for seed in range(40):
        way: Any = Told({})
        assert [*Sample([group(*seeds(*range(8))), group(*seeds(9, arch="cct_2"))], way, seed).run()]
        ((_, (first, second)),) = way.turns
        assert (second, way.turns[0][0]) == (9, 0)
        drawn.add(first)
    assert drawn == {0, 1}


def test_groups_that_disagree_are_those_of_which_a_cell_ran() -> None:
    here, not_here = group(*seeds(1)), group(*seeds(2, arch="cct_2"))
    way: Any = Told(WHY)
    sample = Sample([here, not_here], way, 0)
    assert [*sample.run()]
    assert sample.failed.keys() == {here.key, not_here.key}
    assert sample.disagreed() == {here.key: "fog differs"}
    assert sample.alike == []


def test_the_draw_is_that_of_the_seed() -> None:
    def drawn(seed: int) -> list[Any]:
        way: Any = Told({}, {F: "a branch"})
        assert [*Sample([group(*seeds(*range(40)))], way, seed).run()]
        return way.turns  # type: ignore[no-any-return]

    assert [drawn(seed) for seed in range(5)] == [drawn(seed) for seed in range(5)]
    assert len({str(drawn(seed)) for seed in range(5)}) == 5


def test_a_group_without_further_cells_does_not_end_the_turns_of_others() -> None:
    way: Any = Told({}, {F: "a branch"})
    assert [*Sample([group(*seeds(0)), group(*seeds(1, 2, 3, arch="cct_2"))], way, 0).run()]
    assert [len(ran) for _, ran in way.turns] == [2, 1, 1]


def test_a_cell_of_each_kind_of_last_batch_runs_first_and_later_any_cell() -> None:
    """None, one, two and three of eight images are in the last batch."""
    cells = [replace(CELL, seed=of, protocol=Protocol(batch_size=of)) for of in (4, 7, 3, 5)]
    way: Any = Told({}, {F: "a branch"})
    assert [*Sample([group(*map(record, cells))], way, 0).run()]
    first, *later = (ran for _, ran in way.turns)
    assert {4, 7} < {*first}
    assert [len(first), *map(len, later)] == [3, 1]


def test_the_seed_is_of_the_groups_and_of_the_bits_that_are_stored() -> None:
    other_bits = replace(measured(CELL, ~RIGHT)).to_json()
    made = [
        [group(record())], [group(record()), group(*seeds(1))], [group(record(), now="later")],
        [group(Record(other_bits, "then", StoredCode(), StoredEnvironment()))],
    ]  # fmt: skip
    assert len({*map(seed_of, made)}) == 4
    assert seed_of([group(record())]) == seed_of(made[0]) < 1 << 48


# ---- images


def of_images(*corruptions: str, changed: Sequence[str] = (FOG,), **more: Any) -> Group:
    cells = [replace(CELL, corruption=name, **more) for name in corruptions]
    records = [record(each, 1.0 + number, of={FOG: "1", SNOW: "1"}) for number, each in enumerate(cells)]
    return group(*records, changed=changed)


def test_on_what_the_images_of_a_cell_depend() -> None:
    one = images_of(CELL.to_json())
    assert one == ("digits-c", "fog", "5", "", "")
    mixed = Protocol(contamination="noise(0.2)", stream="recurring(2)", reset="continual")
    assert images_of(replace(CELL, protocol=mixed).to_json()) == (
        "digits-c",
        "fog",
        "5",
        "recurring(2)",
        "noise",
    )


def test_the_cheapest_cell_of_each_set_of_images_that_changed_code_makes_is_added() -> None:
    made = of_images("fog", "snow", "fog"), of_images("snow", "frost", arch="cct_2")
    not_made = of_images("fog", "blur", arch="vit", changed=[F])
    fog, snow = ((made[0], of) for of in made[0].records[:2])
    added = of_each_image_set([*made, not_made], [fog, (not_made, not_made.records[0])])
    assert sorted(of.data["cell"]["corruption"] for _, of in added) == ["frost", "snow"]
    assert (made[1], made[1].records[0]) in added  # in 1 s; that of the other group takes 2 s
    assert of_each_image_set([*made], [fog, snow, (made[1], made[1].records[1])]) == []
    earlier = group(record(made[0].records[0].result.cell, of={FOG: "0"}), changed=[FOG])
    assert of_each_image_set([made[0], earlier], [fog, snow]) == [(earlier, earlier.records[0])]
    limited = of_images("fog", arch="cct_2", protocol=Protocol(limit=9))
    assert of_each_image_set([made[0], limited], [fog, snow]) == [(limited, limited.records[0])]


def test_a_set_of_images_that_differs_counts_for_all_groups_that_read_it() -> None:
    one, other = of_images("fog", "snow"), of_images("fog", "frost", arch="cct_2")
    fog, snow = (of.result.cell for of in one.records)
    differs = Shown(fog, "fog differs")
    shown = {fog.cell_id: differs, snow.cell_id: Shown(snow)}
    assert with_other_images([one, other], shown) == {one.key: differs, other.key: differs}
    assert with_other_images([one, other], {snow.cell_id: Shown(snow)}) == {}


def test_where_another_cell_agrees_on_the_same_images_the_method_differs() -> None:
    with_method, images_alone = of_images("fog", changed=[FOG, F]), of_images("fog", arch="cct_2")
    (one,), (other,) = ((of.result.cell for of in each.records) for each in (with_method, images_alone))
    differs, alike = Shown(one, "it differs"), Shown(other)
    every = [with_method, images_alone]
    assert with_other_images(every, {one.cell_id: differs, other.cell_id: alike}) == {}
    assert with_other_images(every, {one.cell_id: differs}) == dict.fromkeys(
        [each.key for each in every], differs
    )
    of_images_alone = Shown(other, "fog differs")  # nothing else changed there, so the images differ
    shown = {one.cell_id: Shown(one), other.cell_id: of_images_alone}
    assert with_other_images(every, shown) == dict.fromkeys([each.key for each in every], of_images_alone)


def test_a_cell_that_no_changed_code_makes_images_for_is_no_evidence_of_images() -> None:
    method = of_images("fog", changed=[F])
    (cell,) = (of.result.cell for of in method.records)
    assert with_other_images([method], {cell.cell_id: Shown(cell, "it differs")}) == {}


@each("compares", [True, False])
def test_a_way_that_compares_images_runs_no_cell_for_them(compares: bool) -> None:
    one = of_images("fog", "snow")
    way: Any = Told({}, compares_images=compares)
    sample = Sample([one], way, 0)
    assert [*sample.run()]
    assert [ran for _, ran in way.turns] == ([[0]] if compares else [[0, 0]])
    failing: Any = Told({0: ("it differs", True)}, compares_images=compares)
    other = of_images("fog", "snow", arch="cct_2", seed=3)
    sample = Sample([one, other], failing, 0)
    assert [*sample.run()]
    assert sample.failed.keys() == ({one.key} if compares else {one.key, other.key})


# ---- measured again


def checked(verdict: Any, exact: bool = True, now: float | None = 50.0, notes: tuple[str, ...] = ()) -> Check:
    return of_cell(measured(CELL, RIGHT), verdict, now=now, exact=exact, notes=notes)


def test_only_the_same_bits_on_the_same_kind_of_machine_are_the_same() -> None:
    assert measured_again._shown(checked("same"), str(CELL)) == Shown(CELL)
    differs = f"{CELL} has 50.00 % now and had 62.50 %"
    for check in (checked("same", exact=False), checked("within"), checked("differs"), checked("stopped")):
        assert measured_again._shown(check, str(CELL)) == Shown(CELL, differs)
    failed = f"{CELL} has no number now and had 62.50 %"
    assert measured_again._shown(checked("failed", now=None), str(CELL)) == Shown(CELL, failed)
    for verdict in ("not here", "other weights"):
        without = measured_again._shown(checked(verdict), str(CELL))
        assert without == Shown(CELL, verdict, ran=False)
        why = measured_again._shown(checked(verdict, notes=("no data.", "more")), "its name")
        assert why == Shown(CELL, "no data", ran=False)


def test_fewer_branches_than_then_are_named() -> None:
    assert fewer_branches([F], {F: 1}, {F: 1}) == fewer_branches([F], {}, {}) == ""
    assert fewer_branches([F], {F: 1}, {F: 2}) == fewer_branches([G], {F: 1}, {}) == ""
    assert fewer_branches([G, F], {F: 3, G: 2}, {F: 1}).startswith(
        f"{F}: a branch of it was removed (3 then, 1 now)"
    )
    assert fewer_branches([F], {F: 1}, {}).startswith(f"{F}: a branch of it was removed (1 then, 0 now)")
    assert fewer_branches([F], {F: 3}, {}).startswith(f"{F}: a branch of it was removed (3 then, 0 now)")


def test_what_results_store_decides_which_groups_can_be_measured_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Now(Code):
        def refers_as(self, then: Code) -> bool:
            return (then.source, then.definitions) == ("then", {F: "1"})

    now = Now("now", {F: "2"}, Reached(), {F: 1})
    monkeypatch.setattr(measured_again, "code_of", lambda cell: now if cell.method == "tent" else Code())

    def of(arch: str, source: str = "then", branches: int = 1) -> Group:
        made = record(replace(CELL, arch=arch), source=source)
        made.definitions.branches = {F: branches}
        return group(made)

    same, other, fewer = every = of("a"), of("b", source="other"), of("c", branches=2)
    outcome = Outcome()
    assert [*from_results(every, outcome)] == [same]
    assert outcome.refused == {
        other.key: measured_again.OTHER_REFERENCES,
        fewer.key: f"{F}: {measured_again.FEWER_BRANCHES.format(2, 1)}",
    }


def test_what_is_said_of_the_old_code_and_what_is_no_function(tmp_path: Path) -> None:
    way = MeasuredAgain(Store.create(tmp_path, {}), lambda groups, outcome: [*groups, *outcome.same])
    counted, uncounted, table = (
        f"ttabench/nn/objectives.py: {name}" for name in ("entropy", "soft_cross_entropy", "NONE")
    )
    of_this_machine = StoredEnvironment(measured_again.here("cpu", CELL))
    of = record(environment=of_this_machine)
    of.definitions.branches = {counted: 1}
    of_both = group(of, changed=[counted, uncounted]), group(of, changed=[counted])
    assert way.possible(of_both, Outcome()) == [*of_both]
    assert way.watch(frozenset([counted, uncounted, table])) == {
        table: "it is no function; measure these cells again"
    }
    assert way.accepted == [
        f"{table}: {measured_again.REPLACED}", f"{counted}: {measured_again.REPLACED}",
        f"{uncounted}: {measured_again.OLD_BRANCHES}",
    ]  # fmt: skip


@each(
    ("changed", "why"),
    [
        ({}, ""), ({"device": "cpu"}, ""),
        ({"device": "cuda"}, "a GPU does not give the same bits twice; measure these cells again"),
        ({"device": "cuda:1"}, "a GPU does not give the same bits twice; measure these cells again"),
        ({"processor": "Another"}, "they were measured on another kind of machine (Another)"),
        ({"processor": ...}, "they were measured on another kind of machine (unknown)"),
        ({"processor": None}, "they were measured on another kind of machine (None)"),
        ({"threads": 99}, "they were measured on another kind of machine ({processor})"),
        ({"versions": {"torch": "1.0"}}, "they were measured on another kind of machine ({processor})"),
    ],
)  # fmt: skip
def test_only_the_kind_of_machine_that_made_results_gives_the_same_bits(
    changed: dict[str, Any], why: str
) -> None:
    here = measured_again.here("cpu", CELL)
    facts = {name: value for name, value in {**here, **changed}.items() if value is not ...}
    outcome, of = Outcome(), group(record(environment=StoredEnvironment(facts)))
    assert measured_again._of_this_machine(of, outcome) == (not why)
    assert [*outcome.left.values()] == [why.format(processor=here.get("processor"))] * bool(why)


def test_code_is_compared_with_that_of_the_start_for_every_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = {"a": "now", "b": "now"}
    monkeypatch.setattr(measured_again, "code_of", lambda cell: Code(now[cell.arch]))
    way = MeasuredAgain(Store.create(tmp_path, {}), lambda groups, outcome: groups)
    here = StoredEnvironment(measured_again.here("cpu", CELL))
    way.possible([group(record(replace(CELL, arch=arch), environment=here)) for arch in "ab"], Outcome())
    way.check_code()
    now["b"] = "later"
    with pytest.raises(UserError, match="the code changed"):
        way.check_code()


def test_cells_run_with_the_code_of_now_and_what_runs_in_one_that_differs_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.create(tmp_path, {})
    records = seeds(0, 1)
    done: list[Any] = []

    class Ran:
        """Notes what ran: the number of events so far."""

        ran = 0

        @contextmanager
        def watched(self) -> Iterator[None]:
            done.append(("watched", largest_size(summary_cache.LIMIT, 8)))
            yield

        def noted(self) -> Any:
            return self.ran

        def go_back(self, noted: Any) -> None:
            done.append(("back to", noted))
            self.ran = noted

    progress = CellProgress("", 1, 0, 0, 0, "")
    checks = [checked("same"), progress, checked("differs"), checked("same")]

    def run(*given: Any) -> Iterator[Any]:
        assert os.environ[summary_cache.LIMIT] == "0"
        done.append(given)
        for check in checks:
            way._executed.ran += 1  # type: ignore[attr-defined]
            yield check

    monkeypatch.setattr(measured_again, "sweeps_of", lambda of: [of])
    monkeypatch.setattr(measured_again, "find_available", lambda *given: ("available", *given))
    monkeypatch.setattr(measured_again, "made_anew", lambda: done.append("anew") or nullcontext())
    monkeypatch.setattr(measured_again, "run", run)
    way = MeasuredAgain(store)
    assert way.missing() == {}
    way._executed = Ran()  # type: ignore[assignment]
    events = [*way.run(records, 0)]
    available = "available", records, [store]
    assert done == [("watched", 8e9), (store, records, available, "", way._executor, 0), ("back to", 1)]
    assert [event if event is progress else bool(event.why) for event in events] == [  # type: ignore[union-attr]
        False, progress, True, False,
    ]  # fmt: skip
    assert way._executed.ran == 2  # type: ignore[attr-defined]
    assert type(way._executor) is type(pick_executor(0, "cpu"))
    way._executed = Ran()  # type: ignore[assignment]
    done.clear()
    checks[:] = [checked("differs")]
    assert [*way.run(records, 0)]
    assert done[-1] == ("back to", 0)
    for changed, anew in ((F, False), (FOG, True)):
        done.clear()
        way.watch(frozenset([changed]))
        way._executed = Ran()  # type: ignore[assignment]
        assert [*way.run(records, 0)]
        assert ("anew" in done) == anew


def test_the_first_of_what_did_not_run_is_said(tmp_path: Path) -> None:
    way = MeasuredAgain(Store.create(tmp_path, {}))
    name = "ttabench/nn/objectives.py: entropy"
    assert way.watch(frozenset([name])) == {}
    assert way.missing() == {name: NOT_AT_ALL}
    lacking = {name: [(3, "line 3"), (5, "line 5")]}
    way._executed = SimpleNamespace(missing=lambda: lacking)  # type: ignore[assignment]
    assert way.missing() == {name: "line 3"}


# ---- side by side


class Answering:
    """One of two codes: it gives these answers, and notes what it is asked."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def send(self, ask: str, **question: Any) -> None:
        self.asked.append((ask, question))

    def receive(self) -> Any:
        return self._answers[self.asked[-1][0]]


def both(old: Answering, now: Answering, **more: Any) -> SideBySide:
    sides: Any = [old, now]
    return SideBySide(Path("before"), sides, [Path("old"), Path("new")], **more)


def test_two_codes_that_compute_the_same_and_all_that_differs() -> None:
    def compared(old: Mapping[str, str], now: Mapping[str, str]) -> Shown:
        ran, progress = Answering(run=old), None
        way = both(ran, Answering(run=now))
        progress, shown = way.run([record()], 0)
        assert progress == CellProgress(str(CELL), 1, 0, 0, 0, "with both codes")
        assert isinstance(shown, Shown)
        return shown

    one, other = {"digest": "a", "numbers": "n"}, {"digest": "b", "numbers": "n"}
    lacks = {"reason": "no data here."}
    assert compared(one, one) == Shown(CELL, operations="a")
    assert compared(one, other) == Shown(
        CELL, f"{OTHER_OPERATIONS} for {CELL}; --other-operations compares bits alone"
    )
    differs = Shown(CELL, f"the two codes compute something else for {CELL}")
    assert compared(one, {"digest": "b", "numbers": "m"}) == differs
    assert compared(lacks, lacks) == Shown(CELL, "no data here", ran=False)
    assert compared(one, lacks) == Shown(CELL, f"{CELL} fails with the installed code: no data here")


def test_both_codes_are_asked_for_the_same_cells_each_in_its_own_folder() -> None:
    continual = replace(CELL, protocol=Protocol(reset="continual"), corruption="snow", history=("fog-5",))
    same = {"digest": "a", "numbers": "n"}
    watched: dict[str, Any] = {"values": [], "unknown": [], "constants": {}, "for_gpus": []}
    old, now = (Answering(run=same, watch=watched, missing={}) for _ in range(2))
    way = both(old, now)
    assert len([*way.run([record(continual), record()], 0)]) == 4
    way.watch(frozenset(["ttabench/measure/scoring.py: evaluate"]))
    assert len([*way.run([record()], 3)]) == 2
    fog = replace(continual, corruption="fog", history=())
    chains = [[fog.to_json(), continual.to_json()], [CELL.to_json()], [CELL.to_json()]]
    hows = [{"whole": True, "varied": False}] * 2 + [{"whole": False, "varied": True}]
    for side, folder in ((old, "old"), (now, "new")):
        asked = [question for ask, question in side.asked if ask == "run"]
        assert asked == [
            {"cells": cells, "folder": folder, **how} for cells, how in zip(chains, hows, strict=True)
        ]
    assert way.missing() == {}
    old._answers["missing"] = {"f": ["a branch", "another"]}
    assert way.missing() == {f"f{OLD}": "a branch"}
    assert way.accepted == ()


SCORING = "ttabench/measure/scoring.py"


def test_each_code_watches_its_own_definitions_and_what_it_says_decides() -> None:
    changed = frozenset(
        [f"{SCORING}: new", f"{SCORING}: both", f"{SCORING}: both{OLD}", f"{SCORING}: gone{OLD}"]
    )
    nothing: dict[str, Any] = {"values": [], "unknown": [], "constants": {}, "for_gpus": []}

    def said(old: dict[str, Any], now: dict[str, Any]) -> dict[str, str]:
        before, after = Answering(watch={**nothing, **old}), Answering(watch={**nothing, **now})
        found = both(before, after).watch(changed)
        ((ask, question),) = before.asked
        assert (ask, {*question["changed"]}) == ("watch", {f"{SCORING}: both", f"{SCORING}: gone"})
        ((ask, question),) = after.asked
        assert (ask, {*question["changed"]}) == ("watch", {f"{SCORING}: new", f"{SCORING}: both"})
        return found

    neither = "it is neither a function nor a class; measure these cells again"
    assert said({}, {}) == {}
    of_both, of_new = f"{SCORING}: both", f"{SCORING}: new"
    assert said({"unknown": [f"{SCORING}: gone"]}, {"unknown": [of_new]}) == {
        f"{SCORING}: gone{OLD}": neither, of_new: neither
    }  # fmt: skip
    assert said({"values": [of_both]}, {"values": [of_both, of_new]}) == {of_both: neither}
    gpu = "branches for a GPU are not word for word those of the old code"
    assert said({"for_gpus": ["if a: ..."]}, {"for_gpus": ["if a: ..."]}) == {}
    found = said({"for_gpus": ["if a: ..."], "unknown": [f"{SCORING}: x"]}, {})
    assert found == {**dict.fromkeys(changed, gpu), f"{SCORING}: x{OLD}": neither}
    number = {"constants": {of_both: ["2"]}}
    assert said({}, number) == {of_both: "2 is new in it, and few images may not show what it does"}
    assert said({"constants": {"f": ["2"]}}, number) == {}


def test_a_table_of_functions_that_refers_to_something_else_is_said() -> None:
    nothing: dict[str, Any] = {"values": [], "unknown": [], "constants": {}, "for_gpus": []}
    way = both(Answering(watch=nothing), Answering(watch=nothing))
    table = f"{SCORING}: Evaluation"
    way._others["", ""] = frozenset([table])
    assert way.watch(frozenset([table])) == {
        table: "it refers to something else and is no function; measure again"
    }


def test_groups_of_which_both_codes_are_known_have_all_that_changed_in_either() -> None:
    without, one, again = (group(record(replace(CELL, arch=arch)), changed=[]) for arch in "abc")
    old_texts, texts = {F: "1", G: "2", "h": "3", "gone": "4"}, {F: "9", G: "2", "h": "3", "new": "5"}
    targets: dict[str, list[str]] = {F: [], G: ["h"], "h": [], "gone": [], "new": []}
    old = Answering(code=[["elsewhere", {}], ["then", old_texts], ["then", old_texts]], references=[targets])
    now = Answering(code=[["now", {}], ["now", texts], ["now", texts]], references=[{**targets, G: ["new"]}])
    way, outcome = both(old, now), Outcome()
    joined = way.possible([without, one, again], outcome)
    changed = {F, f"{F}{OLD}", "new", f"gone{OLD}", G, f"{G}{OLD}"}
    assert [each.changed for each in joined] == [changed, changed]
    assert outcome.left == {without.key: f"{way._old} has not the code of these results"}
    cells = [of.records[0].data["cell"] for of in (without, one, again)]
    assert old.asked == now.asked == [("code", {"cells": cells}), ("references", {"cells": [cells[1]]})]
    assert [each.changed for each in way.changed_now([without, one, again], outcome)] == [{F, "new", G}] * 2
    way.check_code()
    assert old.asked[-1] == ("code", {"cells": cells})
    now._answers["code"] = [*now._answers["code"][:2], ["later", texts]]
    with pytest.raises(UserError, match="the code changed"):
        way.check_code()
    with pytest.raises(UserError, match="the code changed"):
        way.possible([without, one, again], outcome)


def test_other_references_are_those_of_two_codes_and_not_of_two_others() -> None:
    one, other = group(record(), changed=[]), group(record(source="then too"), changed=[])
    targets = {F: ["a"], "a": [], "b": []}
    texts = {F: "1", "a": "2", "b": "3"}
    old = Answering(code=[["then", texts], ["then too", texts]], references=[targets])
    now = Answering(code=[["now", texts], ["now", texts]], references=[{**targets, F: ["b"]}])
    assert [of.changed for of in both(old, now).possible([one, other], Outcome())] == [{F, f"{F}{OLD}"}] * 2
    assert [ask for ask, _ in old.asked] == ["code", "references", "references"]


def test_groups_that_go_the_same_ways_are_joined_with_the_cheapest_cells_first() -> None:
    dear = group(record(seconds=5.0), changed=[])
    cheap = group(*seeds(1, 2, protocol=Protocol(batch_size=7)), changed=[])
    elsewhere = group(record(replace(CELL, arch="cct_2")), changed=[])
    code = [["then", {F: "1"}]] * 3, [["now", {F: "2"}]] * 3
    old, now = (Answering(code=each, references=[{F: []}]) for each in code)
    way = both(old, now)
    joined, alone = way.possible([dear, cheap, elsewhere], Outcome())
    assert (joined.key, joined.records) == (dear.key, (*cheap.records, *dear.records))
    assert alone.records == elsewhere.records


def test_images_that_are_read_otherwise_are_told_of_their_group() -> None:
    reads, cannot = of_images("fog"), of_images("snow")
    code = [["then", {FOG: "1"}]], [["now", {FOG: "2"}]]
    for of, read, refused, left in (
        (
            reads,
            ([{"digest": "a"}], [{"digest": "b"}]),
            "the two codes read other images or labels for digits-c",
            "",
        ),
        (cannot, ([{"reason": "no X."}], [{}]), "", "digits-c, snow cannot be read: no X"),
    ):
        old, now = (
            Answering(code=codes, references=[{FOG: []}], read=found)
            for codes, found in zip(code, read, strict=True)
        )
        outcome = Outcome()
        assert both(old, now).possible([of], outcome) == []
        assert old.asked[-1] == ("read", {"cells": [of.records[0].data["cell"]]})
        assert (outcome.refused, outcome.left) == (
            {of.key: refused} if refused else {}, {of.key: left} if left else {}
        )  # fmt: skip


def test_a_process_is_asked_by_lines_and_says_why_it_ended() -> None:
    asked, errors = io.StringIO(), io.StringIO()
    ended: list[int] = []

    def process(answers: str, said: str) -> Any:
        errors.seek(0)
        errors.truncate()
        errors.write(said)
        one: Any = SimpleNamespace(stdin=asked, stdout=io.StringIO(answers), wait=lambda: ended.append(1))
        return CodeProcess("old code", one, errors)

    assert process('{"a": [1]}\n', "").ask("run", cells=[2]) == {"a": [1]}
    assert asked.getvalue() == '{"ask": "run", "cells": [2]}\n'
    for said, why in (("", "it printed nothing"), ("  first\n last \n\n", "last")):
        with pytest.raises(UserError) as told:
            process("", said).ask("place")
        assert str(told.value) == f"the process with the old code ended ({why}); nothing is stored."
    asked.close()
    closed = process("", "E: gone")
    closed._process.stdin = SimpleNamespace(write=lambda text: (_ for _ in ()).throw(BrokenPipeError))
    with pytest.raises(UserError, match=r"ended \(E: gone\)"):
        closed.send("place")
    assert len(ended) == 3


# ---- words


def an_outcome() -> Outcome:
    same, differs, not_here, *_ = every = four_groups()
    return Outcome(
        same=[same], refused={differs.key: "fog differs"}, left={not_here.key: "it is not here"},
        cells=[("a", ""), ("b", "1"), ("a", "2")], groups={each.key: each for each in every},
        accepted=["f: a branch", "g: a branch"],
    )  # fmt: skip


def test_an_outcome_in_sentences() -> None:
    outcome = an_outcome()
    old = "Of the old code, this did not run and was accepted: f: a branch; g: a branch."
    assert words.summary(outcome) == [
        "2 stale cells attested, with 2 cells of them run again.", old,
        "1 stale cell refused: fog differs.", "1 stale cell not tried: it is not here.",
    ]  # fmt: skip
    assert words.summary(outcome, checked=True) == [
        "2 attested cells shown again, with 2 cells of them run again.", old,
        "1 attested cell refused: fog differs.", "1 attested cell not tried: it is not here.",
        f"For the refused ones, delete their lines of {FILE}: the cells are stale then.",
    ]  # fmt: skip
    assert words.summary(Outcome(), checked=True) == []
    refused = dict.fromkeys([*outcome.groups], "b differs") | {next(iter(outcome.groups)): "a differs"}
    assert words.summary(Outcome(refused=refused, groups=outcome.groups)) == [
        "2 stale cells refused: a differs.", "4 stale cells refused: b differs.",
    ]  # fmt: skip


def test_an_outcome_as_json_data() -> None:
    outcome = an_outcome()
    kinds = [key[2] for key in outcome.groups]
    assert words.to_json(outcome) == {
        "attested": [{"stratum": kinds[0], "cells": 2, "why": ""}],
        "refused": [{"stratum": kinds[1], "cells": 1, "why": "fog differs"}],
        "not_tried": [{"stratum": kinds[2], "cells": 1, "why": "it is not here"}],
        "measured": ["a", "b"], "accepted": ["f: a branch", "g: a branch"],
    }  # fmt: skip


def test_cells_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """In what would be tried, and in the reasons of either way."""
    small = replace(CELL, protocol=replace(CELL.protocol, batch_size=8))
    of = [group(record(cell, environment=StoredEnvironment(measured_again.here("cpu", cell))))
          for cell in (CELL, small)]  # fmt: skip
    names = [f"{CELL}", f"{CELL} · batch_size=8"]
    assert words.listed(of) == [f"1 cell like {name}: {F}" for name in names]
    assert [each["like"] for each in words.listed_json(of, Outcome())["to_try"]] == names
    way = MeasuredAgain(Store.create(tmp_path, {}), lambda groups, outcome: groups)
    way.possible(of, Outcome())
    assert [*way._names.values()] == names


def test_what_would_be_tried_in_sentences_and_as_json_data() -> None:
    same, *_, lacking, no_change = four_groups()
    many = replace(lacking, changed=frozenset("dacb"))
    assert words.listed([same, many, no_change]) == [
        f"2 cells like {same.records[0].result.cell}: {F}",
        f"1 cell like {many.records[0].result.cell}: a; b; c",
        f"1 cell like {no_change.records[0].result.cell}: other references",
    ]
    found = words.listed_json([many], an_outcome())
    assert found["to_try"] == [
        {"stratum": many.key[2], "cells": 1, "like": str(many.records[0].result.cell), "changed": [*"abcd"]}
    ]
    assert [len(found[name]) for name in ("refused", "not_tried")] == [1, 1]
