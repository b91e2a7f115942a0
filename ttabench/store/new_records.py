"""What is added to a results folder while others write to it. Imports no torch."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ttabench.cell import Result
from ttabench.system.checked_lines import Damaged, decode
from ttabench.system.files import check_plain

RESULT = re.compile(rb'"id":"([0-9a-f]{64})","kind":"result"')
LONGEST = 64 << 20  # bytes of a line
BLOCK = 1 << 16


def sizes(root: Path) -> dict[str, int]:
    """The size of each shard, in bytes: a point in time that :class:`NewRecords` starts from.

    A line that is being written at this moment comes after it. Raises UserError as :func:`_shards` does.
    """
    found: dict[str, int] = {}
    for path in _shards(root):
        with path.open("rb") as file:
            found[path.name] = _end_of_lines(file)
    return found


def _shards(root: Path) -> Iterator[Path]:
    """The shards of a results folder, by name. Raises UserError for a link, a pipe or a device."""
    for path in sorted((root / "cells").glob("*.jsonl")):
        check_plain(path)
        yield path


def _end_of_lines(file: BinaryIO) -> int:
    """The size of an open file without an incomplete last line; that of all of it where no line ends."""
    size = end = size_of(file)
    while size - end < LONGEST:
        start = max(0, end - BLOCK)
        file.seek(start)
        if newline := file.read(end - start).rfind(b"\n") + 1:
            return start + newline
        if not start:
            return 0
        end = start
    return size  # no line of ttabench is so long: who reads the shard says so


def size_of(file: BinaryIO) -> int:
    """The size of an open file in bytes. Only an open file has its true size: NFS keeps sizes for seconds."""
    return os.fstat(file.fileno()).st_size


def generation(shard: Path) -> int:
    """The generation in the first line of a shard; 0 for the first format and for incomplete shards."""
    with shard.open("rb") as file:
        line = file.readline(LONGEST)
    try:
        return int(decode(line.removesuffix(b"\n"), first_format=True).get("generation", 0))
    except (Damaged, ValueError, TypeError, OverflowError):
        return 0


class Held(NamedTuple):
    """What a folder has of a cell: the cell, the hash of its code, and which images were right, as stored."""

    cell: Mapping[str, Any]
    source: str
    correct: bytes


def held_among(root: Path, ids: Iterable[str]) -> dict[str, Held]:
    """The last result of those of these cells that a folder has one of.

    Other results are not read, and damaged ones do not count.
    """
    wanted = {each.encode() for each in ids}
    last: dict[str, tuple[int, float, Held]] = {}
    for path in _shards(root) if wanted else ():
        number = generation(path)
        for key, (written, held) in _held_in(path.read_bytes(), wanted).items():
            if key not in last or (number, written) >= last[key][:2]:
                last[key] = number, written, held
    return {key: held for key, (_, _, held) in last.items()}


def _held_in(shard: bytes, wanted: set[bytes]) -> dict[str, tuple[float, Held]]:
    """Id → time and content, of the last result of each of these cells in the text of a shard."""
    found: dict[str, tuple[float, Held]] = {}
    for match in RESULT.finditer(shard):
        if match[1] not in wanted:
            continue
        start, end = shard.rfind(b"\n", 0, match.start()) + 1, shard.find(b"\n", match.end())
        with suppress(ValueError, KeyError, TypeError, OverflowError):
            data = decode(shard[start : end if end >= 0 else None], first_format=True)
            correct = base64.b64decode(data.get("correct", ""), validate=True)
            held = Held(data["cell"], str(data["source"]), correct)
            found[match[1].decode()] = float(data["written"]), held
    return found


class NewRecords:
    """The results that are stored after `start`, see :func:`sizes`.

    Each look reads only what is new. Lines that are still being written are left for the next look.
    """

    def __init__(self, root: Path, start: Mapping[str, int]) -> None:
        self._root = root
        self._read = dict(start)
        self.stored: dict[str, tuple[Path, int, int]] = {}  # id → file, start and length of its last line

    def look(self) -> Iterator[tuple[str, bytes]]:
        """(id of the cell, line without newline) of each new result; `stored` then has them."""
        for path in _shards(self._root):
            start = self._read.get(path.name, 0)
            with path.open("rb") as file:
                if size_of(file) <= start:
                    continue
                file.seek(start)
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read[path.name] = start + len(whole)
            for line in whole.split(b"\n")[:-1]:
                if match := RESULT.search(line):
                    self.stored[match[1].decode()] = path, start, len(line)
                    yield match[1].decode(), line
                start += len(line) + 1

    def among(self, ids: Iterable[str]) -> set[str]:
        """Those of these cells that have been stored by now."""
        for _ in self.look():
            pass
        return self.stored.keys() & set(ids)

    def has(self, *ids: str) -> bool:
        """Whether all these cells have been stored by now."""
        return self.among(ids) == set(ids)

    def result(self, key: str) -> Result:
        """The last result of a cell in `stored`. Raises ValueError where it is damaged."""
        path, start, length = self.stored[key]
        with path.open("rb") as file:
            file.seek(start)
            return result_in(file.read(length))


def result_in(line: bytes) -> Result:
    """The result of a line that :meth:`NewRecords.look` gave. Raises ValueError where it is damaged."""
    return Result.from_json(decode(line))
