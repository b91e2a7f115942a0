"""Show that a change of code changed no number of a results folder, by a sample of its cells.

The sample has cheap cells of each kind of cell that the change reaches, and every changed function has to run
in it with all its branches. `measured_again` compares new bits with the stored ones, and `side_by_side`
compares what the old and the new code compute. What the sample does not show is refused, and stays stale.
The draw depends on the code and on the folder, so that nobody can look for a seed that agrees; numbers that
disagree are stored too, and are refused until the code changes. What did not run is decided anew each time.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ttabench.cell import Cell
from ttabench.cell.protocol import parse_contamination
from ttabench.errors import UserError, counted
from ttabench.provenance.modules import OWN
from ttabench.provenance.roots import NO_CODE, Code
from ttabench.provenance.staleness import REFERENCES, code_of
from ttabench.run.progress_events import CellProgress
from ttabench.store import Record, Store
from ttabench.store.attestations import (
    FILE,
    NOT_ALL_RAN,
    append,
    check_folder,
    digest,
    machine_of,
    stratum_of,
)
from ttabench.store.writer import environment

__all__ = ["Group", "Outcome", "Shown", "Way", "attest", "code_changed", "groups_of", "texts_of"]

MOST = 5
"""Cells of one group that are measured so that all changed branches run."""
MAKING_IMAGES = ("ttabench/corruptions/", "ttabench/data/")
"""Code that makes or reads images: it may do something else for each corruption and severity."""

COUNTS_WHOLE = "{} is of another package and counts whole, so no sample shows its change; measure them again"

Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Group:
    """Stored cells of one kind with one code, which the installed code is not.

    key      code of the results, installed code ("": nothing can be shown), stratum, machine.
    changed  the definitions that have another text now, as they are shown.
    records  cheapest first.
    """

    key: Key
    changed: frozenset[str]
    records: tuple[Record, ...]


@dataclass(frozen=True)
class Shown:
    """What one cell of the sample showed.

    why         why not: it differs, or it could not be run here; "" if it is the same.
    ran         whether it could be run.
    operations  a hash of what both codes computed, where they ran side by side.
    """

    cell: Cell
    why: str = ""
    ran: bool = True
    operations: str = ""


def code_changed() -> UserError:
    return UserError("the code changed while it was attested; nothing is stored. Run the command again.")


@dataclass
class Outcome:
    """What an attestation showed.

    same     groups whose numbers are the same.
    refused  group → why not.
    left     group → why it was not tried, or could not be.
    cells    (id, operations) of the cells that ran for groups that are the same; twice if they ran twice.
    accepted  see `Way`.
    """

    same: list[Group] = field(default_factory=list)
    refused: dict[Key, str] = field(default_factory=dict)
    left: dict[Key, str] = field(default_factory=dict)
    cells: list[tuple[str, str]] = field(default_factory=list)
    groups: dict[Key, Group] = field(default_factory=dict)
    accepted: Sequence[str] = ()

    @property
    def measured(self) -> list[str]:
        """The ids of the cells that ran for groups that are the same."""
        return list(dict.fromkeys(cell_id for cell_id, _ in self.cells))


class Way(Protocol):
    """How a cell of the sample shows that its number is the same.

    varies    whether a cell that runs again, in a later turn, runs more of the code.
    compares_images  whether it compares the images of all cells.
    accepted  what of the old code did not run, and was accepted.
    """

    name: str
    varies: bool
    compares_images: bool
    accepted: Sequence[str]

    def possible(self, groups: Sequence[Group], outcome: Outcome) -> list[Group]:
        """The groups to try, some of them joined; why others are not goes to `outcome`."""

    def watch(self, changed: frozenset[str]) -> dict[str, str]:
        """Note from now on what runs of these definitions; those of which nothing can be shown → why."""

    def run(self, records: Sequence[Record], turn: int) -> Iterator[Shown | CellProgress]:
        """Run cells of the sample; in turns after the first, some of the change did not run yet."""

    def missing(self) -> dict[str, str]:
        """The definitions that did not run as a whole in cells that agree → the first thing that did not."""

    def check_code(self) -> None:
        """Raises UserError where code changed since the start."""


def groups_of(store: Store, attested: bool = False) -> list[Group]:
    """The stale cells of a folder that have a number, or those that are attested, in groups."""
    found: dict[Key, list[Record]] = defaultdict(list)
    codes: dict[Key, Code] = {}
    for record in store.latest().values():
        if record.result.status != "ok" or not (record.attested if attested else record.changes):
            continue
        now = code_of(record.result.cell) if record.definitions else NO_CODE
        key = record.source, now.source, stratum_of(record.data["cell"]), machine_of(record.environment)
        found[key].append(record)
        codes[key] = now
    return [
        Group(
            key,
            frozenset(texts_of(codes[key].definitions, records[0].definitions)),
            tuple(sorted(records, key=lambda record: (record.result.seconds, record.cell_id))),
        )
        for key, records in sorted(found.items())
    ]


def texts_of(now: Mapping[str, str], then: Mapping[str, str]) -> Iterator[str]:
    """The definitions of `now` that had another text in `then`, or are new with a text that nothing had."""
    before = set(then.values())
    return (
        name for name, text in now.items() if (then[name] != text if name in then else text not in before)
    )


def attest(
    store: Store, groups: Sequence[Group], way: Way, keep: bool = True
) -> Iterator[Outcome | Shown | CellProgress]:
    """Run a sample of the cells, and store what it shows; an `Outcome` comes last.

    groups  see `groups_of`.
    keep    whether it is stored.

    Numbers that disagree are stored too if it is stopped. Raises UserError where the code changes meanwhile,
    so that nothing is stored, and where the folder cannot be written, before anything runs.
    """
    if keep:
        check_folder(store.root)
    outcome = Outcome()
    todo = to_try(groups, way, outcome)
    seed = _seed(groups)
    unshown = way.watch(frozenset().union(*(group.changed for group in todo)))
    sample: dict[str, Key] = {}
    failed: dict[Key, Shown] = {}
    alike: list[tuple[str, str]] = []
    shown: dict[str, Shown] = {}
    try:
        for turn in range(MOST):
            missing = way.missing() if turn else {}
            drawn = _draw(todo, sample, missing, turn, seed, failed, way.varies)
            if not turn and not way.compares_images:
                drawn += _of_each_image_set(todo, drawn)
            for pairs in [[pair] for pair in drawn] if turn else [drawn]:
                if turn and not pairs[0][0].changed & way.missing().keys():
                    continue  # another cell of this turn ran it
                sample |= {record.cell_id: group.key for group, record in pairs}
                for event in way.run([record for _, record in pairs], turn):
                    if isinstance(event, Shown):
                        shown[event.cell.cell_id] = event
                        if event.why:
                            failed[sample[event.cell.cell_id]] = event
                        else:
                            alike.append((event.cell.cell_id, event.operations))
                    yield event
    except BaseException:  # whoever stops it has seen which numbers disagree
        if keep and (disagreed := _disagreed(failed)):
            way.check_code()
            _store(store, outcome, todo, disagreed, seed, way.name)
        raise
    way.check_code()
    if not way.compares_images:
        failed = _with_other_images(todo, shown) | failed
    _judge(todo, failed, way.missing() | unshown, outcome)
    agreed = {group.key for group in outcome.same}
    outcome.cells = [(cell_id, of) for cell_id, of in alike if sample[cell_id] in agreed]
    disagreed = _disagreed(failed)
    if outcome.same or disagreed:
        outcome.accepted = way.accepted
    if keep and (outcome.same or disagreed):
        _store(store, outcome, todo, disagreed, seed, way.name)
    yield outcome


def _disagreed(failed: Mapping[Key, Shown]) -> dict[Key, str]:
    """The groups of which a cell ran and has other numbers → how they differ."""
    return {key: shown.why for key, shown in failed.items() if shown.ran}


def to_try(groups: Sequence[Group], way: Way, outcome: Outcome) -> list[Group]:
    """The groups that a way tries; why others are not tried goes to `outcome`."""
    for group in groups:
        before, now, stratum, machine = group.key
        first = group.records[0]
        whole = sorted(name for name in group.changed if name.partition("/")[0] not in OWN)
        if not now:
            outcome.left[group.key] = first.changes[0].replace("it was", "they were", 1)
        elif (why := first.attestations.refused.get((before, stratum, machine, now))) is not None:
            outcome.refused[group.key] = f"refused before, with the same code: {why}"
        elif whole:
            outcome.refused[group.key] = COUNTS_WHOLE.format(whole[0])
    known = outcome.left.keys() | outcome.refused.keys()
    todo = way.possible([group for group in groups if group.key not in known], outcome)
    outcome.groups = {group.key: group for group in (*groups, *todo)}
    return todo


def _judge(
    todo: Sequence[Group], failed: Mapping[Key, Shown], missing: Mapping[str, str], outcome: Outcome
) -> None:
    for group in todo:
        lacking = [f"{name}: {missing[name]}" for name in sorted(group.changed) if name in missing]
        if not group.changed:
            outcome.refused[group.key] = f"{REFERENCES}; measure these cells again"
        elif (shown := failed.get(group.key)) is not None:
            (outcome.refused if shown.ran else outcome.left)[group.key] = shown.why
        elif lacking:
            outcome.refused[group.key] = f"{NOT_ALL_RAN} ({lacking[0]})"
        else:
            outcome.same.append(group)


def _seed(groups: Sequence[Group]) -> int:
    """From the code and from what is stored, so that it cannot be chosen."""
    text = "".join(
        f"{group.key}{[digest(record.result.correct) for record in group.records]}" for group in groups
    )
    return int(hashlib.sha256(text.encode()).hexdigest()[:12], 16)


def _draw(
    groups: Sequence[Group],
    sample: Mapping[str, Key],
    missing: Mapping[str, str],
    turn: int,
    seed: int,
    failed: Mapping[Key, Shown],
    varies: bool,
) -> list[tuple[Group, Record]]:
    """The next cells of each group: of those that adapt most often, one of the cheapest.

    First one for each kind of last batch; later one where branches are missing.
    """
    drawn = []
    for group in groups:
        left = [record for record in group.records if record.cell_id not in sample]
        if varies and turn == 1:
            left = left or list(group.records)
        if not left or group.key in failed or (turn and not group.changed & missing.keys()):
            continue
        chance = random.Random(f"{seed} {turn} {group.key}")
        for alike in [left] if turn else _by_last_batch(left):
            often = _adapting_most_often(alike)
            cheap = often[: max(1, len(often) // 4)]
            drawn.append((group, chance.choice(cheap)))
    return sorted(drawn, key=lambda pair: pair[1].result.seconds)


def images_of(cell: Mapping[str, Any]) -> tuple[str, ...]:
    """On what the images depend that are read for a cell."""
    stream, contamination = (cell["protocol"].get(name, "") for name in ("stream", "contamination"))
    foreign = contamination.partition("(")[0]
    return cell["dataset"], cell["corruption"], str(cell["severity"]), stream, foreign


def _image_set(group: Group, record: Record) -> tuple[Any, ...]:
    """Images that changed code makes for a cell, with the old texts of this code; () if none changed."""
    made = [name for name in group.changed if name.startswith(MAKING_IMAGES)]
    then = frozenset((name, record.definitions.get(name)) for name in made)
    cell = record.data["cell"]
    return (then, cell["protocol"].get("limit", 0), *images_of(cell)) if made else ()


def _of_each_image_set(
    groups: Sequence[Group], drawn: Sequence[tuple[Group, Record]]
) -> list[tuple[Group, Record]]:
    """The cheapest cell of each set of images that changed code makes, where none is drawn."""
    pairs = [(group, record) for group in groups for record in group.records]
    pairs.sort(key=lambda pair: pair[1].result.seconds)
    of_set = {_image_set(*pair): pair for pair in reversed(pairs)}
    for known in ((), *(_image_set(*pair) for pair in drawn)):
        of_set.pop(known, None)
    return list(of_set.values())


def _with_other_images(groups: Sequence[Group], shown: Mapping[str, Shown]) -> dict[Key, Shown]:
    """Groups with images that changed code makes, and that are not shown to be the same → a cell with them.

    A cell may differ since its method changed too. So where another cell has the same images and agrees, only
    cells count of which nothing but the images could have changed.
    """
    agreed: set[tuple[Any, ...]] = set()
    differs: dict[tuple[Any, ...], Shown] = {}
    only_images: dict[tuple[Any, ...], Shown] = {}
    pairs = [(group, record) for group in groups for record in group.records]
    for group, record in pairs:
        found, images = shown.get(record.cell_id), _image_set(group, record)
        if found is not None and not found.why:
            agreed.add(images)
        elif found is not None:
            alone = all(name.startswith(MAKING_IMAGES) for name in group.changed)
            (only_images if alone else differs)[images] = found
    blamed = {images: of for images, of in differs.items() if images not in agreed} | only_images
    blamed.pop((), None)
    return {
        group.key: blamed[images]
        for group, record in pairs
        if (images := _image_set(group, record)) in blamed
    }


def _by_last_batch(records: Sequence[Record]) -> list[list[Record]]:
    """The records whose last batch has as many images as the others, one image, or another number.

    Cells of one kind may have other numbers of images: of foreign ones, or of those of a domain.
    """
    found: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        protocol, images = record.result.cell.protocol, record.result.n_images
        _, share = parse_contamination(protocol.contamination) or ("", 0.0)
        whole = images + round(images * share / (1 - share))
        found[min(whole % protocol.batch_size, 2)].append(record)
    return [alike for _, alike in sorted(found.items())]


def _adapting_most_often(records: Sequence[Record]) -> list[Record]:
    """Those with the fewest batches per adaptation: a slow method skips most steps."""
    every = [record.result.cell.protocol.adapts_every for record in records]
    fewest = min(every)
    return [record for record, batches in zip(records, every, strict=True) if batches == fewest]


def _store(
    store: Store, outcome: Outcome, todo: Sequence[Group], disagreed: Mapping[Key, str], seed: int, way: str
) -> None:
    """One line for each kind of machine of the results."""
    same = {group.key for group in outcome.same}
    lines: dict[str, dict[str, Any]] = {}
    for group in todo:
        for record in group.records:
            empty = {"environment": record.environment, "same": set(), "refused": set()}
            line = lines.setdefault(machine_of(record.environment), empty)
            link = record.source, group.key[1], stratum_of(record.data["cell"])
            if group.key in same:
                line["same"].add(link)
            elif group.key in disagreed:
                line["refused"].add((*link, disagreed[group.key]))
    executed = sorted(set().union(*(group.changed for group in outcome.same)))
    correct = {r.cell_id: r.result.correct for group in outcome.same for r in group.records}
    cells = [(cell_id, digest(correct[cell_id])) for cell_id in outcome.measured]
    operations = [(cell_id, of) for cell_id, of in outcome.cells if of]
    for line in lines.values():
        append(
            store.root, way=way, seed=seed, environment=line["environment"], same=sorted(line["same"]),
            refused=sorted(line["refused"]), cells=cells, operations=operations, executed=executed,
            accepted=outcome.accepted, shown_on=environment("cpu"), written=time.time(),
        )  # fmt: skip


def listed(groups: Sequence[Group]) -> list[str]:
    """What would be tried, a line for each group."""
    return [
        f"{counted(len(group.records), 'cell')} like {group.records[0].result.cell}: "
        f"{'; '.join(sorted(group.changed)[:3]) or 'other references'}"
        for group in groups
    ]


def summary(outcome: Outcome, checked: bool = False) -> list[str]:
    """What was shown, in sentences; `checked`: of cells that are attested already."""

    def cells(keys: Sequence[Key]) -> str:
        number = sum(len(outcome.groups[key].records) for key in keys)
        return counted(number, "attested cell" if checked else "stale cell")

    lines = []
    if outcome.same:
        keys = [group.key for group in outcome.same]
        shown = "shown again" if checked else "attested"
        lines.append(
            f"{cells(keys)} {shown}, with {counted(len(outcome.measured), 'cell')} of them run again."
        )
    if outcome.accepted:
        lines.append(f"Of the old code, this did not run and was accepted: {'; '.join(outcome.accepted)}.")
    for title, found in (("refused", outcome.refused), ("not tried", outcome.left)):
        by_reason: dict[str, list[Key]] = defaultdict(list)
        for key, why in found.items():
            by_reason[why].append(key)
        lines += [f"{cells(keys)} {title}: {why}." for why, keys in sorted(by_reason.items())]
    if checked and outcome.refused:
        lines.append(f"For the refused ones, delete their lines of {FILE}: the cells are stale then.")
    return lines


def to_json(outcome: Outcome) -> dict[str, Any]:
    """The outcome as JSON data."""
    same = {group.key: "" for group in outcome.same}
    return {
        "attested": _reasons(outcome, same), **_not_shown(outcome),
        "measured": outcome.measured, "accepted": list(outcome.accepted),
    }  # fmt: skip


def listed_json(groups: Sequence[Group], outcome: Outcome) -> dict[str, Any]:
    """What would be tried, and what would not, as JSON data."""
    to_try = [
        {
            "stratum": group.key[2], "cells": len(group.records), "like": str(group.records[0].result.cell),
            "changed": sorted(group.changed),
        }
        for group in groups
    ]  # fmt: skip
    return {"to_try": to_try, **_not_shown(outcome)}


def _not_shown(outcome: Outcome) -> dict[str, Any]:
    return {"refused": _reasons(outcome, outcome.refused), "not_tried": _reasons(outcome, outcome.left)}


def _reasons(outcome: Outcome, keys: Mapping[Key, str]) -> list[dict[str, Any]]:
    return [
        {"stratum": key[2], "cells": len(outcome.groups[key].records), "why": why}
        for key, why in keys.items()
    ]
