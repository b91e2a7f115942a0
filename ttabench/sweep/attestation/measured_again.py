"""A sample of stale cells is measured again: all bits of correctness have to be those that are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext

from ttabench.data.files.generated_cache import made_anew
from ttabench.provenance import forget
from ttabench.provenance.executed import Executed
from ttabench.provenance.roots import Code
from ttabench.provenance.shown_definitions import functions_of
from ttabench.provenance.staleness import REFERENCES, code_of
from ttabench.run import summary_cache
from ttabench.run.executors.workers import pick_executor
from ttabench.run.progress_events import CellProgress
from ttabench.store import Record, Store
from ttabench.store.attestations import machine_of
from ttabench.sweep.agreement import Check, here
from ttabench.sweep.attestation.groups import Group, Outcome, Shown, code_changed, names_in
from ttabench.sweep.attestation.image_sets import MAKING_IMAGES
from ttabench.sweep.available import find_available, sweeps_of
from ttabench.sweep.reproduce import run
from ttabench.system.variables import with_variables

OTHER_REFERENCES = (
    f"{REFERENCES}, and results do not store what it was; give the code before the change with --old CHECKOUT"
)
OLD_BRANCHES = "branches that only its old text has"
REPLACED = "a branch that another one replaced"
FEWER_BRANCHES = (
    "a branch of it was removed ({} then, {} now), and results do not store what it did; give the code "
    "before the change with --old CHECKOUT"
)

Comparable = Callable[[Sequence[Group], Outcome], Iterable[Group]]
"""The groups of which it is known what changed, references too; why others are not goes to the outcome."""


def from_results(groups: Sequence[Group], outcome: Outcome) -> Iterator[Group]:
    """The groups of which results store enough: references are the same as before, and no branch is gone."""
    for group in groups:
        first = group.records[0]
        now = code_of(first.result.cell)
        if not now.refers_as(Code(first.source, first.definitions)):
            outcome.refused[group.key] = OTHER_REFERENCES
        elif lost := fewer_branches(group.changed, first.definitions.branches, now.branches):
            outcome.refused[group.key] = lost
        else:
            yield group


class MeasuredAgain:
    """Only the kind of machine that made the results gives the same bits, and a GPU never does.

    Results store hashes of texts and how many branches each has, not texts. So a branch that another one
    replaced is not seen where definitions refer to the same as before; `accepted` says so.

    comparable  :func:`from_results`, or what knows the code before the change.
    """

    name = "measured again"
    varies = False
    compares_images = False
    accepted: Sequence[str] = ()

    def __init__(self, store: Store, comparable: Comparable = from_results) -> None:
        self._store, self._comparable = store, comparable
        self._executed = Executed({})
        self._makes_images = False
        self._groups: list[Group] = []
        self._names: dict[str, str] = {}
        self._uncounted: set[str] = set()
        self._executor = pick_executor(0, "cpu")

    def possible(self, groups: Sequence[Group], outcome: Outcome) -> list[Group]:
        of_this_machine = [group for group in groups if _of_this_machine(group, outcome)]
        self._groups = [*self._comparable(of_this_machine, outcome)]
        self._names = names_in(self._groups)
        for group in self._groups:
            self._uncounted |= group.changed - group.records[0].definitions.branches.keys()
        return self._groups

    def watch(self, changed: frozenset[str]) -> dict[str, str]:
        functions = functions_of(changed)
        self.accepted = [
            f"{name}: {OLD_BRANCHES if name in self._uncounted else REPLACED}" for name in sorted(changed)
        ]
        self._executed = Executed(functions)
        self._makes_images = any(name.startswith(MAKING_IMAGES) for name in changed)
        return dict.fromkeys(changed - functions.keys(), "it is no function; measure these cells again")

    def run(self, records: Sequence[Record], turn: int) -> Iterator[Shown | CellProgress]:
        """In this process, since the trace sees no other. What is kept on the disk would not run.

        What runs in a cell that differs shows nothing.
        """
        available = find_available(records, sweeps_of(self._store))
        images = made_anew() if self._makes_images else nullcontext()
        with self._executed.watched(), with_variables({summary_cache.LIMIT: "0"}), images:
            before = self._executed.noted()
            for event in run(self._store, records, available, "", self._executor, 0):
                if isinstance(event, CellProgress):
                    yield event
                    continue
                shown = _shown(event, self._names.get(event.cell.cell_id, str(event.cell)))
                if shown.why:
                    self._executed.go_back(before)
                before = self._executed.noted()
                yield shown

    def missing(self) -> dict[str, str]:
        return {shown: lacking[0][1] for shown, lacking in self._executed.missing().items()}

    def check_code(self) -> None:
        forget()
        if any(code_of(group.records[0].result.cell).source != group.key[1] for group in self._groups):
            raise code_changed()


def _of_this_machine(group: Group, outcome: Outcome) -> bool:
    first = group.records[0]
    environment = first.environment
    if str(environment.get("device", "")).startswith("cuda"):
        outcome.left[group.key] = "a GPU does not give the same bits twice; measure these cells again"
    elif machine_of(environment) != machine_of(here("cpu", first.result.cell)):
        processor = environment.get("processor", "unknown")
        outcome.left[group.key] = f"they were measured on another kind of machine ({processor})"
    return group.key not in outcome.left


def fewer_branches(changed: Iterable[str], then: Mapping[str, int], now: Mapping[str, int]) -> str:
    """Which of these definitions has fewer branches now, in a sentence; "" for none."""
    for name in sorted(changed):
        if now.get(name, 0) < then.get(name, 0):
            return f"{name}: {FEWER_BRANCHES.format(then[name], now.get(name, 0))}"
    return ""


def _shown(check: Check, name: str) -> Shown:
    if check.verdict == "same" and check.exact:
        return Shown(check.cell)
    if check.verdict in ("not here", "other weights"):
        why = check.notes[0] if check.notes else check.verdict  # the same sentence for all that lack it
        return Shown(check.cell, why.removesuffix("."), ran=False)
    now = "no number" if check.now is None else f"{check.now:.2f} %"
    return Shown(check.cell, f"{name} has {now} now and had {check.stored:.2f} %")
