"""Reads the docstrings of this project for Sphinx: columns of names and meanings become lists."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

# ``name   what it is``, perhaps indented, and its further lines, which start under "what".
COLUMNS = re.compile(r"^(?P<margin> *)(?P<names>[\w()%.:/]+(?:, [\w.]+)*)(?P<gap> {2,})(?P<text>\S.*)$")


def as_lists(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Turn columns of names and meanings in a docstring into a list, in place."""
    made: list[str] = []
    under = -1  # where the text of the current row starts; -1 outside of columns
    for line in lines:
        row = COLUMNS.match(line)
        if row:
            if under < 0:
                made.append("")
            under = row.start("text")
            made.append(f"* **{row['names']}**: {row['text']}")
        elif under >= 0 and line.startswith(" ") and line.strip():
            made.append(f"  {line.strip()}")
        else:
            if under >= 0 and line.strip():
                made.append("")
            under = -1
            made.append(line)
    lines[:] = made


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", as_lists)
    return {"parallel_read_safe": True}
