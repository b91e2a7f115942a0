"""Reading shards: every line is checked, and an incomplete last one is ignored."""

from __future__ import annotations

import hashlib
import typing
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from ttabench.cell import Cell, Status, canonical
from ttabench.errors import UserError
from ttabench.provenance.staleness import StoredCode
from ttabench.records import MARK, Damaged, decode, is_first_format
from ttabench.store.record import PROTOCOL, Record

UNKNOWN = StoredCode()
OPTIONAL = {"history", "baseline", "foreign"}  # stored where they are not empty
CELL_KEYS = {field.name for field in fields(Cell)} - OPTIONAL
STATUSES = typing.get_args(Status)


def name_key(digest: str, name: str) -> str:
    """What stands for a definition in a line of code: 12 hex digits for its hash and its name."""
    return hashlib.sha256(f"{digest} {name}".encode()).hexdigest()[:12]


def generation(shard: Path) -> int:
    """The generation in the first line of a shard; 0 for the first format and for incomplete shards."""
    with shard.open("rb") as file:
        line = file.readline()
    try:
        return int(decode(line.removesuffix(b"\n"), first_format=True).get("generation", 0))
    except (Damaged, ValueError, TypeError):
        return 0


def read_shard(shard: Path, quick: bool = False) -> Iterator[Record]:
    environment: dict[str, Any] = {}
    code: dict[str, StoredCode] = {}
    names: dict[str, tuple[str, str]] = {}  # of definitions
    old = False
    for number, line in _whole_lines(shard):
        place = f"{shard}, line {number}"
        try:
            old = is_first_format(line) if number == 1 else old
            data = decode(line, first_format=old)
            if data["kind"] == "environment":
                environment = {k: v for k, v in data.items() if k not in ("kind", "sum", "generation")}
            elif data["kind"] == "code" and not old:  # the first format had none
                listed = data.get("definitions", ())  # earlier versions stored hashes of modules instead
                if not names.keys() >= {*listed}:
                    raise Damaged("names of its definitions do not stand before it")
                code[data["source"]] = StoredCode((names[each][1], names[each][0]) for each in listed)
            elif data["kind"] == "definitions":
                names |= {name_key(digest, name): (digest, name) for digest, name in data["names"]}
            elif data["kind"] == "result":
                if not environment:
                    raise Damaged("no environment stands before it")
                check_result(data, quick)
                source = str(data["source"])
                if source and source not in code and not old:
                    raise Damaged(f"no record of its code {source[:12]} stands before it")
                yield Record(data, source, code.get(source, UNKNOWN), environment, place)
        except Damaged as problem:
            raise UserError(
                f"{place}, is not what ttabench wrote: {problem}; restore the file or move it out of "
                "the folder."
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(
                f"{place}, is not a record of ttabench; restore the file or move it out of the folder."
            ) from None


def _whole_lines(shard: Path) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line without newline) of each line; an incomplete last one is left out."""
    with shard.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n") or _is_whole(line[:-1]):  # the latter where the newline was damaged
                yield number, line.removesuffix(b"\n")


def _is_whole(line: bytes) -> bool:
    """Whether a line is a complete record."""
    try:
        return MARK in line and bool(decode(line))
    except Damaged:
        return False


def check_result(data: dict[str, Any], quick: bool = False) -> None:
    """Raises Damaged or another ValueError where a result is not one, or its id that of another cell."""
    cell = data["cell"]
    if cell.keys() - OPTIONAL != CELL_KEYS or cell["protocol"].keys() - PROTOCOL.keys():
        raise ValueError("it is not the cell of this version")
    if data["status"] not in STATUSES or not isinstance(data["written"], float | int):
        raise ValueError("it has no status or time")
    if quick:
        data.pop("correct", None)
        return
    identity = {name: value for name, value in cell.items() if name != "label"}
    if hashlib.sha256(canonical(identity).encode()).hexdigest() != data["id"]:
        raise Damaged("its id is not that of its cell")
