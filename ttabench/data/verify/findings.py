"""What an audit of a dataset on disk reports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ttabench.data.published.facts import Published

# (what is being looked at, steps done, steps in all)
OnStep = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of an audit. level: ok | warning (usable) | error (must not be used)."""

    level: Literal["ok", "warning", "error"]
    text: str


@dataclass(frozen=True)
class Audit(ABC):
    """An audit of a published dataset below `root`; `deep` looks at every byte."""

    facts: Published
    root: Path
    deep: bool
    step: OnStep

    @property
    def folder(self) -> Path:
        return self.root / self.facts.corrupted_folder

    @abstractmethod
    def corruptions(self) -> list[str]:
        """Those that are there, in canonical order."""

    @abstractmethod
    def run(self) -> Iterator[Finding]:
        """What is wrong, or one line that all is well."""


def error(text: str) -> Finding:
    return Finding("error", text)


def sound(findings: list[Finding]) -> bool:
    """Whether nothing that must not be used was found."""
    return all(finding.level != "error" for finding in findings)
