"""Reading shards: every line is checked, and an incomplete last one is ignored."""

from __future__ import annotations

import hashlib
import typing
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ttabench.cell import Status, canonical, stored_identity
from ttabench.errors import UserError, counted, shortened
from ttabench.provenance.staleness import StoredCode
from ttabench.store.attestations import NONE, Attestations
from ttabench.store.new_records import LONGEST
from ttabench.store.record import Record
from ttabench.store.record_values import check_values
from ttabench.store.stored_environment import StoredEnvironment
from ttabench.system.checked_lines import MARK, Damaged, decode, is_first_format

UNKNOWN = StoredCode()
STATUSES = typing.get_args(Status)
LONGEST_REASON = 4000  # characters; a longer one takes a terminal minutes to lay out
ROUNDING = 1e-6  # of an accuracy, in points
BUFFER = 1 << 20  # bytes; lines have kilobytes, and each call of the system takes time


def name_key(digest: str, name: str) -> str:
    """What stands for a definition in a line of code: 12 hex digits for its hash and its name."""
    return hashlib.sha256(f"{digest} {name}".encode()).hexdigest()[:12]


def read_shard(shard: Path, quick: bool = False, attestations: Attestations = NONE) -> Iterator[Record]:
    environment = StoredEnvironment()
    code: dict[str, StoredCode] = {}
    names: dict[str, tuple[str, str]] = {}  # of definitions
    branches: dict[str, int] = {}
    old, name = False, str(shard)
    for number, line in _whole_lines(shard):
        place = f"{name}, line {number}"
        try:
            old = is_first_format(line) if number == 1 else old
            data = decode(line, first_format=old)
            if data["kind"] == "environment":
                facts = {k: v for k, v in data.items() if k not in ("kind", "sum", "generation")}
                environment = StoredEnvironment.checked(facts)
            elif data["kind"] == "code" and not old:  # the first format had none
                listed = data.get("definitions", ())  # earlier versions stored hashes of modules instead
                if not names.keys() >= {*listed}:
                    raise Damaged("names of its definitions do not stand before it")
                stored = StoredCode((names[each][1], names[each][0]) for each in listed)
                stored.branches = {names[each][1]: branches[each] for each in listed if each in branches}
                stored.method = canonical(data["method"]) if data.get("method") else ""
                code[data["source"]] = stored
            elif data["kind"] == "definitions":
                new = {name_key(digest, name): (str(digest), str(name)) for digest, name in data["names"]}
                names |= new
                if "branches" in data:  # earlier versions did not store them
                    counts = zip(new, data["branches"], strict=True)
                    branches |= {key: int(count) for key, count in counts if count is not None}
            elif data["kind"] == "result":
                if not environment:
                    raise Damaged("no environment stands before it")
                correct = check_result(data, quick)
                if len(data.get("reason", "")) > LONGEST_REASON:
                    data["reason"] = shortened(data["reason"], LONGEST_REASON)
                source = str(data["source"])
                if source and source not in code and not old:
                    raise Damaged(f"no record of its code {source[:12]} stands before it")
                stored = code.get(source, UNKNOWN)
                yield Record(data, source, stored, environment, place, attestations, correct)
        except Damaged as problem:
            raise UserError(
                f"{place}, is not what ttabench wrote: {problem}; restore the file or move it out of "
                "the folder."
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            raise UserError(
                f"{place}, is not a record of ttabench; restore the file or move it out of the folder."
            ) from None


def _whole_lines(shard: Path) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line without newline) of each line; an incomplete last one is left out.

    Raises UserError for a line longer than any that ttabench writes.
    """
    with shard.open("rb", buffering=BUFFER) as file:
        for number, line in enumerate(iter(partial(file.readline, LONGEST), b""), start=1):
            if len(line) == LONGEST:
                raise UserError(
                    f"{shard}, line {number}, has more than {LONGEST >> 20} MB, so it is not a record of "
                    "ttabench; restore the file or move it out of the folder."
                )
            # An editor can leave out the last newline, and damage can change it.
            if line.endswith(b"\n") or _is_whole(line) or _is_whole(line[:-1]):
                yield number, line.removesuffix(b"\n")


def _is_whole(line: bytes) -> bool:
    """Whether a line is a complete record."""
    try:
        return MARK in line and bool(decode(line))
    except Damaged:
        return False


def check_result(data: dict[str, Any], quick: bool = False) -> bytes:
    """The per-image correctness of a result, packed; b"" with `quick`, which takes it away from `data`.

    Raises Damaged or another ValueError where a result is not one, or its id that of another cell.
    """
    if quick:
        data.pop("correct", None)
        return check_values(data)
    correct = check_values(data)
    if stored_identity(data["cell"]) != data["id"]:
        raise Damaged("its id is not that of its cell")
    check_accuracy(data, correct)
    return correct


def check_accuracy(data: Mapping[str, Any], correct: bytes) -> None:
    """Raises Damaged where the accuracy of a result is not that of its stored images."""
    if data["status"] != "ok":
        return
    n_images = data["n_images"]
    room = 8 * len(correct)
    if not (n_images and 0 <= room - n_images < 8):
        raise Damaged(f"it has {counted(n_images, 'image')}, and the correctness of another number is stored")
    right = (int.from_bytes(correct, "big") >> (room - n_images)).bit_count()
    accuracy = 100 * right / n_images
    if abs(data["accuracy"] - accuracy) > ROUNDING:
        raise Damaged(
            f"its accuracy is {data['accuracy']} %, and {right:,} of its {counted(n_images, 'image')} are "
            f"right, {accuracy:g} %"
        )
