"""One line of a results file: JSON with a checksum. Imports no torch.

A line is a JSON object whose last entry, ``sum``, is the start of the SHA-256 of everything before it. What a
flipped bit or an editor changed is noticed before it is read as a number.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ttabench.cell import canonical

DIGITS = 16  # of the checksum: one in 10¹⁹ damaged lines goes unnoticed
MARK = b',"sum":"'
END = b'"}'


class Damaged(ValueError):
    """A line that is not what ttabench wrote; the message says why, for the end of a sentence."""


def encode(record: dict[str, Any]) -> bytes:
    """The record as one line, newline included."""
    head = canonical(record).encode()[:-1]
    return head + MARK + _digest(head) + END + b"\n"


def decode(line: bytes, *, first_format: bool = False) -> dict[str, Any]:
    """The record of a line without its newline. Raises Damaged, also where it has no checksum.

    first_format   the line is of a file that ttabench wrote before it stored checksums.
    """
    head, mark, tail = line.rpartition(MARK)
    if mark and (tail[:-2] != _digest(head) or tail[-2:] != END):
        raise Damaged("its checksum is not that of its content")
    try:
        data = json.loads(line)
    except ValueError:
        raise Damaged("it is not JSON") from None
    if not isinstance(data, dict):
        raise Damaged("it is not a record")
    if not mark and not first_format:
        raise Damaged("it has no checksum")
    return data


def is_first_format(line: bytes) -> bool:
    """Whether the first line of a file, an environment, was written before checksums were stored."""
    return MARK not in line and b'"generation"' not in line


def _digest(head: bytes) -> bytes:
    return hashlib.sha256(head).hexdigest()[:DIGITS].encode()
