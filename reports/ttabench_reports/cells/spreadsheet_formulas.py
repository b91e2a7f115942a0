"""Texts that spreadsheets would run as formulas: with an apostrophe in front they are shown as they are."""

from __future__ import annotations

from typing import Any

STARTS = ("=", "+", "-", "@", "\t", "\r")


def inert(value: Any) -> Any:
    """A text that would be a formula with an apostrophe in front; everything else as it is."""
    return f"'{value}" if isinstance(value, str) and value.startswith(STARTS) else value


def without_apostrophe(text: str) -> str:
    """The text that :func:`inert` made this one of."""
    return text[1:] if text.startswith("'") and text[1:].startswith(STARTS) else text
