"""One line of a results file: JSON with a checksum. Imports no torch.

A line is a JSON object. Its last entry, ``sum``, is the start of the SHA-256 of the text before it. So a
changed line is detected before it is read.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import msgspec

from ttabench.cell import canonical
from ttabench.errors import plain

DIGITS = 16  # of the checksum: one in 10¹⁹ damaged lines is not detected
MARK = b',"sum":"'
END = b'"}'
_DECODER = msgspec.json.Decoder()
TWO_COLONS = re.compile(rb"::")  # which `in` takes three times as long to find


class Damaged(ValueError):
    """A line was changed or damaged. The message is the end of a sentence that says why."""


def encode(record: dict[str, Any]) -> bytes:
    """The record as one line, newline included."""
    head = canonical(record).encode()[:-1]
    return head + MARK + _digest(head) + END + b"\n"


def decode(line: bytes, *, first_format: bool = False) -> dict[str, Any]:
    """The record of a line without its newline. Raises Damaged if it is wrong or has no checksum.

    Its texts are as `ttabench.errors.plain` shows them, so that they can be printed.

    first_format   the line is from a file of the first format, which had no checksums.

    Git and editors on Windows end lines with a carriage return too; it is no part of the record.
    """
    line = line.removesuffix(b"\r")
    head, mark, tail = line.rpartition(MARK)
    if mark and (tail[:-2] != _digest(head) or tail[-2:] != END):
        raise Damaged("its checksum is not that of its content")
    try:
        data = _parsed(line)
        if not line.isascii() or b"\\" in line or b"#" in line or TWO_COLONS.search(line):
            data = plain(data)
    except ValueError:
        raise Damaged("it is not JSON") from None
    except RecursionError:
        raise Damaged("it is nested too deeply") from None
    if not isinstance(data, dict):
        raise Damaged("it is not a record")
    if not mark and not first_format:
        raise Damaged("it has no checksum")
    return data


def is_first_format(line: bytes) -> bool:
    """Whether a file has the first format, without checksums, by its first line."""
    return MARK not in line and b'"generation"' not in line


def _parsed(line: bytes) -> Any:
    try:
        return _DECODER.decode(line)
    except msgspec.DecodeError:  # Python also writes NaN and halves of surrogate pairs
        return json.loads(line)


def _digest(head: bytes) -> bytes:
    return hashlib.sha256(head).hexdigest()[:DIGITS].encode()
