"""What an audit of a dataset on disk reports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from ttabench.data.published.description import PublishedDataset
from ttabench.system.progress import OnProgress


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of an audit. level: ok | warning (usable) | error (must not be used)."""

    level: Literal["ok", "warning", "error"]
    text: str


@dataclass(frozen=True)
class Audit(ABC):
    """An audit of a published dataset below `root`; `deep` reads every byte.

    partial   whether a sweep accepts that corruptions and severities are missing, and says which are there.
    """

    partial: ClassVar[bool] = False

    facts: PublishedDataset
    root: Path
    deep: bool
    on_progress: OnProgress

    @property
    def folder(self) -> Path:
        return self.root / self.facts.corrupted_folder

    def lacking(self, text: str) -> Finding:
        """What to say of a corruption or a severity that is missing."""
        return warning(text) if self.partial else error(text)

    @abstractmethod
    def run(self) -> Iterator[Finding]:
        """What is wrong, or one line with the level "ok"."""


def error(text: str) -> Finding:
    return Finding("error", text)


def warning(text: str) -> Finding:
    return Finding("warning", text)


def is_usable(findings: list[Finding]) -> bool:
    """Whether no finding is an error."""
    return all(finding.level != "error" for finding in findings)
