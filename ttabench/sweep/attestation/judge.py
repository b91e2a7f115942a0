"""The attestation of one results folder: what is tried, how it is judged, and what is stored."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ttabench.provenance.modules import OWN
from ttabench.provenance.staleness import REFERENCES
from ttabench.run.progress_events import CellProgress
from ttabench.store import Store
from ttabench.store.attestations import (
    NOT_ALL_RAN,
    append,
    check_folder,
    digest,
    machine_of,
    stratum_of,
)
from ttabench.store.writer import environment
from ttabench.sweep.attestation.groups import Group, Key, Outcome, Shown, Way
from ttabench.sweep.attestation.sample import Sample, seed_of

COUNTS_WHOLE = "{} is of another package and counts whole, so no sample shows its change; measure them again"


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
    unshown = way.watch(frozenset().union(*(group.changed for group in todo)))
    sample = Sample(todo, way, seed_of(groups))
    try:
        yield from sample.run()
    except BaseException:  # whoever stops it has seen which numbers disagree
        if keep and sample.disagreed():
            way.check_code()
            _store(store, outcome, todo, sample, way.name)
        raise
    way.check_code()
    _judge(todo, sample.failed, way.missing() | unshown, outcome)
    outcome.cells = sample.of(outcome.same)
    if outcome.same or sample.disagreed():
        outcome.accepted = way.accepted
        if keep:
            _store(store, outcome, todo, sample, way.name)
    yield outcome


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


def _store(store: Store, outcome: Outcome, todo: Sequence[Group], sample: Sample, way: str) -> None:
    """One line for each kind of machine of the results."""
    disagreed = sample.disagreed()
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
            store.root, way=way, seed=sample.seed, environment=line["environment"], same=sorted(line["same"]),
            refused=sorted(line["refused"]), cells=cells, operations=operations, executed=executed,
            accepted=outcome.accepted, shown_on=environment("cpu"), written=time.time(),
        )  # fmt: skip
