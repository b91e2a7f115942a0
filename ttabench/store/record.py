"""A stored result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from ttabench.cell import Result
from ttabench.protocol import Protocol
from ttabench.provenance.staleness import StoredCode, code_changes

PROTOCOL = {field.name: field.default for field in fields(Protocol)}
"""The fields of a protocol, with their defaults: only other values are stored."""


@dataclass(frozen=True)
class Record:
    """A stored result, with its code and environment.

    data         the stored record; :attr:`result` is made from it at first use.
    source       SHA-256 of the code that the number depends on.
    definitions  definition → hash of its text, see `provenance`; {} if unknown.
    environment  versions of libraries, machine, processor, device and threads.
    place        file and line, for messages.
    """

    data: Mapping[str, Any]
    source: str
    definitions: StoredCode
    environment: Mapping[str, Any]
    place: str = ""

    @property
    def written(self) -> float:
        """When it was stored, in unix seconds."""
        return float(self.data["written"])

    @property
    def cell_id(self) -> str:
        return str(self.data["id"])

    @cached_property
    def result(self) -> Result:
        return Result.from_json(dict(self.data))

    @property
    def changes(self) -> tuple[str, ...]:
        """Changes in this code since then, e.g. ``ttabench/nn/updates.py: minimise changed``; () if none."""
        return code_changes(self.data, self.source, self.definitions)

    @property
    def stale(self) -> bool:
        """Whether the installed code differs from that of the result."""
        return bool(self.changes)
