"""What is added to a results folder while others write to it. Imports no torch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from ttabench.cell import Result
from ttabench.system.checked_lines import decode
from ttabench.system.files import check_plain

RESULT = re.compile(rb'"id":"([0-9a-f]{64})","kind":"result"')


def sizes(root: Path) -> dict[str, int]:
    """The size of each shard, in bytes: a point in time that :class:`NewRecords` starts from.

    Raises UserError for a link, a pipe or a device.
    """
    found: dict[str, int] = {}
    for path in (root / "cells").glob("*.jsonl"):
        check_plain(path)
        with path.open("rb") as file:
            found[path.name] = size_of(file)
    return found


def size_of(file: BinaryIO) -> int:
    """The size of an open file in bytes. Only an open file has its true size: NFS keeps sizes for seconds."""
    return os.fstat(file.fileno()).st_size


def stored_among(root: Path, ids: Iterable[str]) -> set[str]:
    """Those of these cells that a folder has a result of. The results are not read."""
    wanted, found = {each.encode() for each in ids}, set()
    for path in (root / "cells").glob("*.jsonl") if wanted else ():
        check_plain(path)
        found |= wanted.intersection(RESULT.findall(path.read_bytes()))
    return {each.decode() for each in found}


class NewRecords:
    """The results that are stored after `start`, see :func:`sizes`.

    Each look reads only what is new. Lines that are still being written are left for the next look.
    """

    def __init__(self, root: Path, start: Mapping[str, int]) -> None:
        self._cells = root / "cells"
        self._read = dict(start)
        self.stored: dict[str, tuple[Path, int, int]] = {}  # id → file, start and length of its last line

    def look(self) -> Iterator[tuple[str, bytes]]:
        """(id of the cell, line without newline) of each new result; `stored` then has them."""
        for path in sorted(self._cells.glob("*.jsonl")):
            check_plain(path)
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
