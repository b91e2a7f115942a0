"""Text and lines of tables as Markdown prints them."""

from __future__ import annotations

import html
from collections.abc import Iterable


def escape(text: str) -> str:
    """`text` so that Markdown prints it as it is."""
    plain = html.escape(text, quote=False)
    for sign in "\\`*_[]|~":
        plain = plain.replace(sign, "\\" + sign)
    return " ".join(plain.split())


def table_row(texts: Iterable[str]) -> str:
    """A line of a table, of texts that are escaped already."""
    return f"| {' | '.join(texts)} |"
