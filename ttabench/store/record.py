"""A stored result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from ttabench.cell import Result
from ttabench.cell.protocol import Protocol
from ttabench.provenance.staleness import StoredCode, code_changes, code_now
from ttabench.store.attestations import NONE, Attestations
from ttabench.store.stored_environment import StoredEnvironment

PROTOCOL = {field.name: field.default for field in fields(Protocol)}
"""The fields of a protocol, with their defaults: only other values are stored."""


@dataclass(frozen=True)
class Record:
    """A stored result, with its code and environment.

    data         the stored record; :attr:`result` is made from it at first use.
    source       SHA-256 of the code that the number depends on.
    definitions  definition → hash of its text, see `provenance`; {} if unknown.
    environment  where it was made.
    place        file and line, for messages.
    attestations   of its folder.
    correct      the per-image correctness, see :class:`ttabench.cell.Result`; b"" where it was not asked for.
    """

    data: Mapping[str, Any]
    source: str
    definitions: StoredCode
    environment: StoredEnvironment
    place: str = ""
    attestations: Attestations = NONE
    correct: bytes = b""

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
        """Changes in this code since then, e.g. ``ttabench/nn/updates.py: minimise changed``; () if none.

        () too where the result is attested.
        """
        return () if self.attested else self.code_changes

    @property
    def stale(self) -> bool:
        """Whether the installed code differs from that of the result, and nothing attests the number."""
        return bool(self.changes)

    @property
    def attested(self) -> bool:
        """Whether the code changed since then, and cells that were measured again show the same numbers."""
        if self.attestations is NONE or not self.code_changes:
            return False
        now = code_now(self.data).source
        return bool(now) and self.attestations.joins(self.source, self.data, self.environment, now)

    @property
    def code_changes(self) -> tuple[str, ...]:
        """:attr:`changes`, also where the result is attested."""
        return code_changes(self.data, self.source, self.definitions)
