"""What an audit of a dataset on disk reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

# (what is being looked at, steps done, steps in all)
OnStep = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of an audit. level: ok | warning (usable) | error (must not be used)."""

    level: Literal["ok", "warning", "error"]
    text: str


def error(text: str) -> Finding:
    return Finding("error", text)


def sound(findings: list[Finding]) -> bool:
    """Whether nothing that must not be used was found."""
    return all(finding.level != "error" for finding in findings)
