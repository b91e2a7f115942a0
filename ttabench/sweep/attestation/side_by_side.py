"""Show that a change of code changed no number, by running the code before and after it side by side.

Two processes run the same cells, one with the old code and one with the installed one. Both have to do the
same torch operations with the same numbers, so it does not matter which kind of machine made the results. A
change of the loop, of the worker and of what is measured beside is shown on few images, which run through
each of its steps. Any other change is shown on whole cells. All changed functions have to run with all their
branches, in the old code too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from ttabench.cell import Cell
from ttabench.errors import UserError
from ttabench.provenance.executed import NOT_AT_ALL
from ttabench.provenance.shown_definitions import functions_of
from ttabench.run import summary_cache
from ttabench.run.progress_events import CellProgress
from ttabench.store import Record, Store
from ttabench.store.attestations import OTHER_OPERATIONS, SIDE_BY_SIDE, wider_kind
from ttabench.sweep.attestation.groups import Group, Outcome, Shown, code_changed, names_in, texts_of
from ttabench.sweep.attestation.image_sets import images_of
from ttabench.sweep.reproduce import before, copied_paths

ON_FEW_IMAGES = (
    "ttabench/corruptions/", "ttabench/measure/contamination.py", "ttabench/measure/foreign_positions.py",
    "ttabench/measure/image_stream.py", "ttabench/measure/order_and_batches.py",
    "ttabench/measure/scoring.py", "ttabench/measure/stream", "ttabench/measure/test_set.py",
    "ttabench/observe/", "ttabench/run/", "ttabench/data/", "ttabench/cell/",
)  # fmt: skip
"""Code that reads and scores the images of a cell: it does the same with each batch. Whole sets are read."""
READING = (
    "ttabench/data/files/", "ttabench/data/generated_datasets.py", "ttabench/data/on_disk.py",
    "ttabench/data/own/", "ttabench/data/published/",
)  # fmt: skip
"""Code that reads images and labels: what it reads for all cells is compared, so it need not run besides."""
CORRUPTING = "ttabench/corruptions/"
"""The same, except in ccc streams, which make their images as they go."""
OLD = ", in the old code"
"""After the name of a definition."""
PACKAGES = ("", "methods", "reports")
"""Folders of a checkout from which ttabench is imported."""


class CodeProcess:
    """A process that answers with one of the two codes, see `ttabench.sweep.attestation.one_side`."""

    def __init__(self, name: str, process: subprocess.Popen[str], errors: Any) -> None:
        self.name, self._process, self._errors = name, process, errors

    def send(self, ask: str, **question: Any) -> None:
        try:
            print(json.dumps({"ask": ask, **question}), file=self._process.stdin, flush=True)
        except OSError:
            raise self._ended() from None

    def receive(self) -> Any:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise self._ended()
        return json.loads(line)

    def ask(self, ask: str, **question: Any) -> Any:
        self.send(ask, **question)
        return self.receive()

    def _ended(self) -> UserError:
        self._process.wait()
        self._errors.seek(0)
        said = [line for line in self._errors.read().splitlines() if line.strip()] or ["it printed nothing"]
        return UserError(f"the process with the {self.name} ended ({said[-1].strip()}); nothing is stored.")


@contextmanager
def _started(name: str, folder: Path | None) -> Iterator[CodeProcess]:
    """A process with the code of a checkout, or with the installed code for None."""
    # Of summaries that one process keeps on the disk, the other would not do the operations.
    changed = {summary_cache.LIMIT: "0", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if folder is not None:
        further = os.environ.get("PYTHONPATH", "")
        places = [str(folder / package) for package in PACKAGES]
        changed["PYTHONPATH"] = os.pathsep.join([*places, *filter(None, [further])])
    with TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("one_side.py"))], text=True,
            env={**os.environ, **changed}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip
        try:
            yield CodeProcess(name, process, errors)
        finally:
            process.kill()
            process.communicate()


@contextmanager
def side_by_side(store: Store, old: Path, accept_old: bool = False) -> Iterator[SideBySide]:
    """The installed code beside that of a checkout.

    accept_old  take branches of the old code that did not run as read; they are listed in `accepted`.

    Raises UserError where the checkout has no code that answers.
    """
    old = Path(os.path.realpath(old))  # `resolve` fails for a link to itself
    if not (old / "ttabench" / "provenance" / "operations.py").is_file():
        raise UserError(
            f"{old} has no ttabench that can run side by side; expected a checkout of the commit before the "
            "change, for example: git worktree add ../before COMMIT."
        )
    with ExitStack() as stack:
        sides = [
            stack.enter_context(_started("old code", old)),
            stack.enter_context(_started("installed code", None)),
        ]
        if Path(sides[0].ask("place")) != old:
            raise UserError(f"Python imports ttabench from elsewhere than {old}.")
        folders = [stack.enter_context(copied_paths(store)) for _ in sides]
        yield SideBySide(old, sides, folders, accept_old)


class SideBySide:
    """Two codes that run the same cells, the old one first; see `side_by_side`.

    folders  where each of them keeps the states of its streams.
    """

    name = SIDE_BY_SIDE
    varies = True
    compares_images = True
    accepted: Sequence[str] = ()

    def __init__(
        self, old: Path, sides: Sequence[CodeProcess], folders: Sequence[Path], accept_old: bool = False
    ) -> None:
        self._old, self._sides, self._accept_old = old, sides, accept_old
        self._folders = [{"folder": str(folder)} for folder in folders]
        self._codes: list[list[Any]] = []
        self._cells: list[dict[str, Any]] = []
        self._names: dict[str, str] = {}
        self._after: set[str] = set()
        self._others: dict[tuple[str, str], frozenset[str]] = {}
        self._alike: set[tuple[str, ...]] = set()
        self._whole = True
        self._compared: tuple[str, ...] = READING

    def _both(self, ask: str, own: Sequence[Mapping[str, Any]] = ({}, {}), **shared: Any) -> list[Any]:
        """The answers of both, which work at the same time. `own` is what only one of them is asked."""
        for side, question in zip(self._sides, own, strict=True):
            side.send(ask, **question, **shared)
        return [side.receive() for side in self._sides]

    def possible(self, groups: Sequence[Group], outcome: Outcome) -> list[Group]:
        """Groups that differ in settings, batch size or machine alone are joined."""
        as_they_go = any(group.records[0].data["cell"]["corruption"].startswith("ccc") for group in groups)
        self._compared = READING if as_they_go else (*READING, CORRUPTING)
        joined: dict[tuple[str, ...], list[Group]] = defaultdict(list)
        for group in self._known(groups, outcome):
            if self._read_alike(group, outcome):
                before, now, stratum, _ = group.key
                joined[before, now, *wider_kind(stratum)].append(group)
        groups = [_joined(parts) for parts in joined.values()]
        self._names = names_in(groups)
        return groups

    def changed_now(self, groups: Sequence[Group], outcome: Outcome) -> Iterator[Group]:
        """The groups with all definitions of the installed code that changed, or refer to something else."""
        for group in self._known(groups, outcome):
            yield replace(group, changed=frozenset(name for name in group.changed if not name.endswith(OLD)))

    def _known(self, groups: Sequence[Group], outcome: Outcome) -> Iterator[Group]:
        """The groups whose code the checkout has, with all definitions of either code that changed."""
        self._cells = [group.records[0].data["cell"] for group in groups]
        self._codes = self._both("code", cells=self._cells)
        for group, (old, old_texts), (now, texts) in zip(groups, *self._codes, strict=True):
            before, expected, stratum, machine = group.key
            if now != expected:
                raise code_changed()
            first = group.records[0]
            links = {} if first.attested else first.attestations.links  # a line does not show itself
            if old != before and old not in links.get((before, stratum, machine), ()):
                outcome.left[group.key] = f"{self._old} has not the code of these results"
                continue
            changed = [*texts_of(texts, old_texts), *(f"{name}{OLD}" for name in texts_of(old_texts, texts))]
            others = self._with_other_references(group, old, old_texts, texts)
            changed += [*others, *(f"{name}{OLD}" for name in others if name in old_texts)]
            yield replace(group, changed=frozenset(changed))

    def _with_other_references(
        self, group: Group, old: str, old_texts: Mapping[str, str], texts: Mapping[str, str]
    ) -> frozenset[str]:
        """The definitions that have the same text and refer to something else; asked once for two codes."""
        key = old, group.key[1]
        if key not in self._others:
            (then,), (now,) = self._both("references", cells=[group.records[0].data["cell"]])
            self._others[key] = frozenset(with_other_references(texts, now, old_texts, then))
        return self._others[key]

    def _read_alike(self, group: Group, outcome: Outcome) -> bool:
        """Whether both codes read the same for all cells of a group, if code that reads images changed."""
        if not any(name.startswith((*READING, CORRUPTING)) for name in group.changed):
            return True
        cells = {images_of(record.data["cell"]): record.data["cell"] for record in group.records}
        new = [key for key in cells if key not in self._alike]
        for key, old, now in zip(new, *self._both("read", cells=[cells[key] for key in new]), strict=True):
            if "reason" in old:
                outcome.left[group.key] = f"{key[0]}, {key[1]} cannot be read: {old['reason']}".rstrip(".")
                return False
            if old != now:
                outcome.refused[group.key] = f"the two codes read other images or labels for {key[0]}"
                return False
            self._alike.add(key)
        return True

    def watch(self, changed: frozenset[str]) -> dict[str, str]:
        before = [name.removesuffix(OLD) for name in changed if name.endswith(OLD)]
        after = [name for name in changed if not name.endswith(OLD)]
        old, now = self._both("watch", [{"changed": before}, {"changed": after}])
        self._after = {*after}
        self._whole = not all(name.startswith(ON_FEW_IMAGES) for name in changed)
        changed_values = {*now["values"]} & {*old["values"]}
        not_run = [*now["unknown"], *changed_values, *(f"{name}{OLD}" for name in old["unknown"])]
        unshown = dict.fromkeys(not_run, "it is neither a function nor a class; measure these cells again")
        known = {constant for constants in old["constants"].values() for constant in constants}
        for name, constants in now["constants"].items():
            if not self._whole and (new := [constant for constant in constants if constant not in known]):
                unshown[name] = f"{new[0]} is new in it, and few images may not show what it does"
        if old["for_gpus"] != now["for_gpus"]:
            unshown |= dict.fromkeys(
                changed, "branches for a GPU are not word for word those of the old code"
            )
        tables = {*after} & {*frozenset().union(*self._others.values())} - functions_of(after).keys()
        unshown |= dict.fromkeys(tables, "it refers to something else and is no function; measure again")
        return {name: why for name, why in unshown.items() if not name.startswith(self._compared)}

    def run(self, records: Sequence[Record], turn: int) -> Iterator[Shown | CellProgress]:
        how = {"whole": self._whole, "varied": bool(turn)}
        for record in records:
            cell = record.result.cell
            cells = [each.to_json() for each in (*before(cell), cell)]
            name = self._names.get(record.cell_id, str(cell))
            yield CellProgress(name, 1, 0, 0, 0, "with both codes")
            yield _compared(cell, name, *self._both("run", self._folders, cells=cells, **how))

    def missing(self) -> dict[str, str]:
        old, now = (
            {name: whys for name, whys in lacking.items() if not name.startswith(self._compared)}
            for lacking in self._both("missing")
        )
        if self._accept_old:  # a function that is still reached has to run, and its branches need not
            self.accepted = sorted(f"{name}: {why}" for name, whys in old.items() for why in whys)
            old = {name: whys for name, whys in old.items() if NOT_AT_ALL in whys and name in self._after}
        old = {f"{name}{OLD}": whys for name, whys in old.items()}
        return {name: whys[0] for name, whys in (now | old).items()}

    def check_code(self) -> None:
        if self._both("code", cells=self._cells) != self._codes:
            raise code_changed()


def with_other_references(
    texts: Mapping[str, str],
    now: Mapping[str, Sequence[str]],
    old_texts: Mapping[str, str],
    then: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    """The definitions that have a text of before and refer to other definitions.

    texts, old_texts  definition → hash of its text, in which references are numbers.
    now, then         definition → what it refers to. What has a new name and the same text is the same.
    """
    gone: dict[str, list[str]] = defaultdict(list)
    for name in old_texts.keys() - texts.keys():
        gone[old_texts[name]].append(name)

    def same(one: str, other: str) -> bool:
        return one == other or (other not in old_texts and one in gone[texts.get(other, "")])

    for name, text in texts.items():
        names = [name] if name in old_texts else gone[text]
        before = [then[each] for each in names if old_texts[each] == text]
        if before and not any(
            len(targets) == len(now[name]) and all(map(same, targets, now[name])) for targets in before
        ):
            yield name


def _compared(cell: Cell, name: str, old: Mapping[str, str], now: Mapping[str, str]) -> Shown:
    if why := old.get("reason", ""):
        return Shown(cell, why.removesuffix("."), ran=False)
    if why := now.get("reason", ""):
        return Shown(cell, f"{name} fails with the installed code: {why}".removesuffix("."))
    if old["digest"] == now["digest"]:
        return Shown(cell, operations=now["digest"])
    if old["numbers"] == now["numbers"]:
        return Shown(cell, f"{OTHER_OPERATIONS} for {name}; --other-operations compares bits alone")
    return Shown(cell, f"the two codes compute something else for {name}")


def _joined(parts: Sequence[Group]) -> Group:
    records = sorted((r for part in parts for r in part.records), key=lambda r: (r.result.seconds, r.cell_id))
    changed = frozenset().union(*(part.changed for part in parts))
    return Group(parts[0].key, changed, tuple(records))
