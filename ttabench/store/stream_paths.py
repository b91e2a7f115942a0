"""Paths of ccc streams in a results folder, ``streams/ccc-….json``: checked before they are followed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ttabench.errors import UserError
from ttabench.system.checked_lines import Damaged, decode
from ttabench.system.files import check_plain

FILE = re.compile(r"streams/ccc-[0-9a-f]{16}\.json")
LARGEST = 8 << 20
"""Bytes of a file. One with every pair of all corruptions has about 1 MB."""
STEPS, PERCENT = 20, 100
"""The largest severity, in steps, and the largest accuracy."""


def check_path(file: Path) -> None:
    """Raises UserError for a file that ttabench did not write: its path could fail, or never end."""
    check_plain(file)
    try:
        with file.open("rb") as opened:
            text = opened.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise Damaged(f"it has more than {LARGEST >> 20} MB")
        known = decode(text.removesuffix(b"\n"))
        alone, legs = known.get("alone"), known.get("legs")
        if not isinstance(alone, dict) or not isinstance(legs, dict):
            raise Damaged("it has no path")
        if not all(_is_row(row, STEPS, PERCENT) for row in alone.values()):
            raise Damaged("it has a corruption without severity or accuracy")
        if not all(map(_is_leg, legs.values())):
            raise Damaged("it has a step without severities or accuracy")
    except OSError as problem:
        raise UserError(f"{file} cannot be read ({problem.strerror}).") from None
    except Damaged as problem:
        raise UserError(
            f"{file} is not what ttabench wrote: {problem}; delete the file, and the path is computed again."
        ) from None


def _is_leg(value: Any) -> bool:
    """Whether these are steps, at least one; a path with empty legs has no end."""
    return (
        bool(value) and isinstance(value, list) and all(_is_row(row, STEPS, STEPS, PERCENT) for row in value)
    )


def _is_row(value: Any, *largest: int) -> bool:
    """Whether these are numbers from 0 to `largest`: severities in whole steps, then an accuracy."""
    return (
        isinstance(value, list)
        and len(value) == len(largest)
        and all(type(number) is int for number in value[:-1])
        and type(value[-1]) in (int, float)
        and all(0 <= number <= most for number, most in zip(value, largest, strict=True))
    )
