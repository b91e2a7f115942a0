"""Where in the code a cell failed, from the traceback that its result stores."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PLACE = re.compile(r'^  File "(.+)", line (\d+), in ', re.MULTILINE)
_LIBRARY = re.compile(r"[/\\](?:site|dist)-packages[/\\](?:torch|numpy|scipy|ttabench)[/\\]")
_HERE = str(Path(__file__).parents[1]) + "/"


def reason_and_place(reason: str, details: Mapping[str, Any]) -> str:
    """The reason of a failed cell; for an exception that no check expected, with file and line.

    A user looks for a line of the method or of the network. So it is the innermost one outside of torch,
    NumPy, SciPy and ttabench itself, or the innermost one where there is none outside.

    details   of the result, see :class:`ttabench.cell.Result`.
    """
    if "traceback" not in details:
        return reason
    trace = str(details["traceback"])
    kind = reason.removeprefix("out of memory: ").partition(":")[0]
    places = _PLACE.findall(trace)
    raised = kind.isidentifier() and re.search(rf"^(?:\w+\.)*{kind}(?::|$)", trace, re.MULTILINE)
    if not (places and raised):
        return reason
    own = [place for place in places if not _is_library(place[0])]
    file, line = (own or places)[-1]
    return f"{reason} ({file}, line {line})"


def _is_library(file: str) -> bool:
    """Whether a line of this file is none of the user's; ``<string>`` is code that a library made."""
    return file.startswith(("<", _HERE)) or _LIBRARY.search(file) is not None
