"""Show that a change of code changed no number of a results folder, by measuring a sample again.

The sample has cheap cells of each kind of cell that the change reaches. All bits of correctness have to be
those that were stored at first, and every changed function has to run in the sample with all its branches.
What this does not show is refused, and stays stale. The draw depends on the code and on the folder, so that
nobody can look for a seed that agrees; a refusal is stored too, and holds until the code changes.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ttabench.errors import UserError, counted
from ttabench.provenance import forget
from ttabench.provenance.executed import Executed
from ttabench.provenance.modules import OWN, module_file
from ttabench.provenance.roots import Code
from ttabench.provenance.staleness import code_of
from ttabench.run.executors.workers import pick_executor
from ttabench.run.progress_events import CellProgress
from ttabench.store import Record, Store
from ttabench.store.attestations import Attestations, append, digest, machine_of, stratum_of
from ttabench.sweep.verify import Check, find_available, here, run, sweeps_of

__all__ = ["Group", "Outcome", "attest", "changed_functions", "groups_of"]

MOST = 5
"""Cells of one group that are measured so that all changed branches run."""

Key = tuple[str, str, str]


@dataclass(frozen=True)
class Group:
    """Stored cells of one kind with one code, which the installed code is not.

    key      code of the results, installed code, stratum.
    changed  the definitions that have another text now, as they are shown.
    records  cheapest first.
    """

    key: Key
    changed: frozenset[str]
    records: tuple[Record, ...]


@dataclass
class Outcome:
    """What an attestation showed.

    same     groups whose numbers are the same.
    refused  group → why not.
    left     group → why it was not tried.
    cells    (id, digest) of the cells that were measured and are the same.
    """

    same: list[Group] = field(default_factory=list)
    refused: dict[Key, str] = field(default_factory=dict)
    left: dict[Key, str] = field(default_factory=dict)
    cells: list[tuple[str, str]] = field(default_factory=list)
    groups: dict[Key, Group] = field(default_factory=dict)


def groups_of(store: Store) -> list[Group]:
    """The stale cells of a folder that have a number, in groups."""
    found: dict[Key, list[Record]] = defaultdict(list)
    codes: dict[Key, Code] = {}
    for record in store.latest().values():
        if record.result.status != "ok" or not record.changes or not record.definitions:
            continue
        now = code_of(record.result.cell)
        if now.source:
            key = record.source, now.source, stratum_of(record.data["cell"])
            found[key].append(record)
            codes[key] = now
    return [
        Group(
            key,
            frozenset(_changed(records[0].definitions, codes[key].definitions)),
            tuple(sorted(records, key=lambda record: (record.result.seconds, record.cell_id))),
        )
        for key, records in sorted(found.items())
    ]


def _changed(then: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """The definitions of `now` whose text no definition of `then` has."""
    before = set(then.values())
    return (name for name, text in now.items() if text not in before)


def attest(store: Store) -> Iterator[Outcome | Check | CellProgress]:
    """Measure a sample of the stale cells again, and store what it shows; an `Outcome` comes last.

    Raises UserError where there is nothing stale, or the code changes meanwhile: nothing is stored then.
    """
    groups = groups_of(store)
    if not groups:
        raise UserError(f"{store.root} has no stale cell that has a number; there is nothing to attest.")
    outcome = Outcome(groups={group.key: group for group in groups})
    todo = _possible(groups, Attestations.read(store.root), outcome)
    seed = _seed(groups)
    changed = set().union(*(group.changed for group in todo))
    functions = changed_functions(changed)
    executed = Executed(_by_file(functions))
    sample: dict[str, Key] = {}
    different: dict[Key, str] = {}
    for turn in range(MOST):
        missing = _missing(executed, functions) if turn else {}
        drawn = _draw(todo, sample, missing, turn, seed, different)
        if not drawn:
            break
        sample |= {record.cell_id: group.key for group, record in drawn}
        with executed.watched():
            for event in _measured(store, [record for _, record in drawn]):
                if isinstance(event, Check):
                    _note(event, sample[event.cell.cell_id], store, outcome, different)
                yield event
    _same_code(todo)
    missing = _missing(executed, functions)
    missing |= dict.fromkeys(changed - functions.keys(), "it is no function; measure these cells again")
    for group in todo:
        if not group.changed:
            outcome.refused[group.key] = "what definitions refer to changed; measure these cells again"
            continue
        lacking = [f"{name}: {missing[name]}" for name in sorted(group.changed) if name in missing]
        if group.key in different:
            outcome.refused[group.key] = different[group.key]
        elif lacking:
            outcome.refused[group.key] = f"not all of the change ran in the sample ({lacking[0]})"
        else:
            outcome.same.append(group)
    if outcome.same or different:
        _store(store, outcome, todo, seed, sorted(functions))
    yield outcome


def _possible(groups: Sequence[Group], known: Attestations, outcome: Outcome) -> list[Group]:
    """The groups that this machine may attest, and that were not refused with this code before."""
    todo = []
    for group in groups:
        before, now, stratum = group.key
        first = group.records[0]
        cell, environment = first.result.cell, first.environment
        machine = machine_of(environment)
        if (why := known.refused.get((before, stratum, machine, now))) is not None:
            outcome.refused[group.key] = f"refused before, with the same code: {why}"
        elif str(environment.get("device", "")).startswith("cuda"):
            outcome.left[group.key] = "a GPU does not give the same bits twice; measure these cells again"
        elif machine != machine_of(here("cpu", cell)):
            outcome.left[group.key] = (
                f"they were measured on another kind of machine ({environment.get('processor', 'unknown')})"
            )
        else:
            todo.append(group)
    return todo


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
    different: Mapping[Key, str],
) -> list[tuple[Group, Record]]:
    """The next cell of each group: at first one of the cheapest; later others, while branches are missing."""
    drawn = []
    for group in groups:
        left = [record for record in group.records if record.cell_id not in sample]
        if not left or group.key in different or (turn and not group.changed & missing.keys()):
            continue
        cheap = left[: max(1, len(left) // 4)] if not turn else left
        drawn.append((group, random.Random(f"{seed} {turn} {group.key}").choice(cheap)))
    return drawn


def _measured(store: Store, records: Sequence[Record]) -> Iterator[Check | CellProgress]:
    """In this process, since the trace sees no other."""
    available = find_available(records, sweeps_of(store))
    yield from run(store, records, available, "", pick_executor(0, "cpu"), 0)


def _note(check: Check, key: Key, store: Store, outcome: Outcome, different: dict[Key, str]) -> None:
    if check.verdict == "same" and check.exact:
        record = next(r for r in outcome.groups[key].records if r.cell_id == check.cell.cell_id)
        outcome.cells.append((check.cell.cell_id, digest(record.result.correct)))
    elif check.verdict in ("not here", "other weights"):
        different[key] = (
            f"{check.cell} could not be measured: {check.notes[0] if check.notes else check.verdict}"
        )
    else:
        now = "no number" if check.now is None else f"{check.now:.2f} %"
        different[key] = f"{check.cell} has {now} now and had {check.stored:.2f} %"


def _same_code(groups: Sequence[Group]) -> None:
    forget()
    if any(code_of(group.records[0].result.cell).source != group.key[1] for group in groups):
        raise UserError("the code changed while it was attested; nothing is stored. Run the command again.")


def _store(store: Store, outcome: Outcome, todo: Sequence[Group], seed: int, executed: Sequence[str]) -> None:
    """One line for each kind of machine of the results; there is one, since only this one may attest."""
    environment = todo[0].records[0].environment
    tried = {group.key for group in todo}
    append(
        store.root, seed=seed, environment=environment, same=[group.key for group in outcome.same],
        refused=[(*key, why) for key, why in outcome.refused.items() if key in tried],
        cells=outcome.cells, executed=executed, written=time.time(),
    )  # fmt: skip


def changed_functions(changed: Iterable[str]) -> dict[str, tuple[Path, str]]:
    """The functions among changed definitions: as they are shown → file and qualified name."""
    found = {}
    for shown in changed:
        place, _, name = shown.partition(": ")
        file = _file(place)
        if name and file is not None and name in _function_names(file):
            found[shown] = file, name
    return found


def _by_file(functions: Mapping[str, tuple[Path, str]]) -> dict[Path, set[str]]:
    names: dict[Path, set[str]] = defaultdict(set)
    for file, name in functions.values():
        names[file].add(name)
    return names


def _missing(executed: Executed, functions: Mapping[str, tuple[Path, str]]) -> dict[str, str]:
    """The changed functions that did not run as a whole → the first thing that did not."""
    lacking = executed.missing()
    return {
        shown: lacking[str(file), name][0]
        for shown, (file, name) in functions.items()
        if (str(file), name) in lacking
    }


def _function_names(file: Path) -> set[str]:
    import ast

    names: set[str] = set()
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{each.name}"
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return names


def _file(place: str) -> Path | None:
    """The file of a shown place such as ``ttabench/nn/updates.py``; None for code that is not of ttabench."""
    if place.partition("/")[0] not in OWN:
        return None
    return module_file(place.removesuffix(".py").removesuffix("/__init__").replace("/", "."))


def summary(outcome: Outcome) -> list[str]:
    """What was shown, in sentences."""

    def cells(keys: Sequence[Key]) -> str:
        return counted(sum(len(outcome.groups[key].records) for key in keys), "stale cell")

    lines = []
    if outcome.same:
        keys = [group.key for group in outcome.same]
        lines.append(f"{cells(keys)} attested, with {counted(len(outcome.cells), 'cell')} measured again.")
    for title, found in (("refused", outcome.refused), ("not tried", outcome.left)):
        by_reason: dict[str, list[Key]] = defaultdict(list)
        for key, why in found.items():
            by_reason[why].append(key)
        lines += [f"{cells(keys)} {title}: {why}." for why, keys in sorted(by_reason.items())]
    return lines


def to_json(outcome: Outcome) -> dict[str, Any]:
    """The outcome as JSON data."""

    def listed(keys: Mapping[Key, str]) -> list[dict[str, Any]]:
        return [
            {"stratum": key[2], "cells": len(outcome.groups[key].records), "why": why}
            for key, why in keys.items()
        ]

    same = {group.key: "" for group in outcome.same}
    return {
        "attested": listed(same), "refused": listed(outcome.refused), "not_tried": listed(outcome.left),
        "measured": [cell for cell, _ in outcome.cells],
    }  # fmt: skip
