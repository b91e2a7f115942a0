"""What a results folder holds, from its records: methods × protocols, when, with which code, where."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from ttabench.cell.protocol import Protocol
from ttabench.cell.subset_names import everything
from ttabench.store.record import PROTOCOL, Record
from ttabench.store.stored_environment import StoredEnvironment


class RecordFacts(NamedTuple):
    """What the contents are made of: of one record. part: method, network, dataset, protocol in words."""

    part: tuple[str, str, str, str]
    state: str
    written: float
    code: str
    machine: str


def facts(record: Record) -> RecordFacts:
    """Those of a record."""
    cell, status = record.data["cell"], str(record.data["status"])
    part = _part(cell["label"], cell["arch"], cell["dataset"], tuple(cell["protocol"].items()))
    state = "done" if status == "ok" else status
    return RecordFacts(part, state, record.written, _code(record.environment), _machine(record.environment))


@dataclass
class ContentsPart:
    """The cells of one method on one network under one protocol: how many, and when they were stored."""

    states: Counter[str] = field(default_factory=Counter)
    first: float = float("inf")
    last: float = float("-inf")

    @property
    def days(self) -> str:
        """``2026-11-26``, or ``2026-11-24 to 2026-11-26`` (UTC)."""
        one, other = (time.strftime("%Y-%m-%d", time.gmtime(at)) for at in (self.first, self.last))
        return one if one == other else f"{one} to {other}"


@dataclass
class Contents:
    """Everything in a folder.

    parts           by what a part is, see :class:`RecordFacts`.
    code, machines  how many cells were measured with what, and where.
    """

    parts: defaultdict[tuple[str, str, str, str], ContentsPart] = field(
        default_factory=lambda: defaultdict(ContentsPart)
    )
    code: Counter[str] = field(default_factory=Counter)
    machines: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, all_facts: Iterable[RecordFacts]) -> Contents:
        """The contents of cells, each once."""
        found = cls()
        for one in all_facts:
            part = found.parts[one.part]
            part.states[one.state] += 1
            part.first, part.last = min(part.first, one.written), max(part.last, one.written)
            if one.state != "n/a":  # nothing ran
                found.code[one.code] += 1
                found.machines[one.machine] += 1
        return found

    def rows(self) -> Iterator[tuple[str, ...]]:
        """(method, network, dataset, protocol, cells, days) of each part."""
        for names, part in self.parts.items():
            states = ", ".join(f"{count} {state}" for state, count in part.states.items())
            yield *names, states, part.days

    def datasets(self) -> list[str]:
        """Their names, each once."""
        return list(dict.fromkeys(dataset for _, _, dataset, _ in self.parts))


@lru_cache(maxsize=4096)
def _part(
    label: str, arch: str, dataset: str, protocol: tuple[tuple[str, Any], ...]
) -> tuple[str, str, str, str]:
    """With the stored protocol in words, without the compute ratio, which differs from method to method."""
    held = {**PROTOCOL, **dict(protocol), "pace_ratio": PROTOCOL["pace_ratio"]}
    caption = Protocol(**held).caption(everything([dataset]))
    return label, arch, dataset, caption.removesuffix(f" at compute ratio {PROTOCOL['pace_ratio']:g}")


@lru_cache(maxsize=1024)
def _code(environment: StoredEnvironment) -> str:
    versions = environment.get("versions", {})
    named = (f"{name} {versions[name]}" for name in ("ttabench", "torch", "python") if name in versions)
    return ", ".join(named) or "not recorded"


@lru_cache(maxsize=1024)
def _machine(environment: StoredEnvironment) -> str:
    parts = (environment.get(name, "") for name in ("machine", "processor", "device"))
    return ", ".join(filter(None, map(str, parts))) or "not recorded"
