"""Evidence that a change of code changed no number: cells that ran again and gave the same bits.

The file ``attested.jsonl`` of a results folder has one line with a checksum for each time that
``ttabench attest`` looked: which hash of code gives the same numbers as which other one, for which kinds of
cells, on which machine, and the cells that were measured. Where numbers disagreed, this is stored too, and
counts more. A line counts while the folder has the cells that showed it, and for kinds of cells of which it
measured one. Where such a cell was measured again since then and has other bits, the line says nothing of its
kind any more. Somebody who has the folder can still write a line that looks true: `ttabench attest --check`
shows all again, and `ttabench verify` measures attested cells first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ttabench.cell import canonical
from ttabench.errors import UserError
from ttabench.provenance.staleness import REFERENCES
from ttabench.store.new_records import Held, held_among
from ttabench.store.stored_environment import StoredEnvironment
from ttabench.system.checked_lines import Damaged, decode, encode
from ttabench.system.environment import device_kind
from ttabench.system.files import read_plain, replace_file, writing
from ttabench.system.work_claims import WorkClaims

FILE = "attested.jsonl"
SIDE_BY_SIDE = "side by side"
"""The way that measures one cell of a `wider_kind`."""
KEPT = ("mode", "reset", "precision", "stream", "batch_size", "epochs", "held_out", "limit")
"""The fields of a protocol whose values are part of a kind."""


def stratum_of(cell: Mapping[str, Any]) -> str:
    """The kind of a stored cell: one measured cell speaks for all cells of its kind with the same code.

    Other settings, batch sizes, epochs or numbers of images are another kind: a change may do nothing with
    one step and much with ten. Cells of all paces are one kind, of which those are measured that adapt most
    often.
    """
    protocol = cell["protocol"]
    kinds = {
        key: str(protocol[key]).partition("(")[0] for key in ("order", "contamination") if key in protocol
    }
    kept = {key: protocol[key] for key in KEPT if key in protocol}
    paced = {"pace": True} if protocol.get("pace") else {}
    several = cell["corruption"] if "stream" in protocol or cell["corruption"] == "mixed" else ""
    how = {**kinds, **kept, **paced}
    return canonical([cell["method"], cell["config"], cell["arch"], cell["dataset"], several, how])


def wider_kind(stratum: str) -> tuple[str, ...]:
    """The kind of cells that go the same ways through two codes, of a kind that `stratum_of` gave.

    Settings, batch size, epochs, precision, and what a stream has besides its name are left out.
    """
    method, _, arch, dataset, several, how = json.loads(stratum)
    named = (how.get(name, "") for name in ("mode", "reset", "order", "contamination", "stream"))
    given = [f"{name} {how[name]}" for name in ("held_out", "limit", "pace") if how.get(name)]
    ways = [str(name).partition("(")[0] for name in named]
    return method, arch, dataset, "mixed" if several == "mixed" else "", *ways, *given


NOT_ALL_RAN = "not all of the change ran in the sample"
OTHER_OPERATIONS = "the two codes do other torch operations"
NOT_FINAL = (NOT_ALL_RAN, REFERENCES, OTHER_OPERATIONS)
"""How reasons begin that other cells, or another way, may remove. Earlier versions stored these too."""


@lru_cache(maxsize=1024)
def machine_of(environment: StoredEnvironment) -> str:
    """A hash of the kind of machine that results were made on: only the same kind may attest."""
    versions = {name: of for name, of in environment.get("versions", {}).items() if name != "ttabench"}
    facts = {name: environment.get(name) for name in ("threads", "machine", "processor")}
    facts |= {"device": device_kind(str(environment.get("device", ""))), "versions": versions}
    return hashlib.sha256(canonical(facts).encode()).hexdigest()[:16]


def digest(correct: bytes) -> str:
    """A hash of which images of a cell were right, as it is stored."""
    return hashlib.sha256(correct).hexdigest()[:16]


@dataclass(frozen=True)
class Attestations:
    """The attestations of a results folder.

    links    (code of a result, its stratum, its machine) → code that gives the same numbers.
    refused  the same → how the numbers disagreed, with the code that gave others.
    steps    how often cells were measured for it.
    cells    how many different cells were measured.
    """

    links: Mapping[tuple[str, str, str], frozenset[str]] = field(default_factory=dict)
    refused: Mapping[tuple[str, str, str, str], str] = field(default_factory=dict)
    steps: int = 0
    cells: int = 0

    def __hash__(self) -> int:
        return id(self)

    def joins(self, source: str, data: Mapping[str, Any], environment: StoredEnvironment, now: str) -> bool:
        """Whether a result with the code `source` is attested to be the same with the code `now`."""
        if not self.links:
            return False
        return now in self.links.get((source, stratum_of(data["cell"]), machine_of(environment)), ())

    @classmethod
    def read(cls, folder: Path) -> Attestations:
        """Those of a results folder. Raises UserError for a line that ttabench did not write."""
        path = folder / FILE
        try:
            *lines, _ = _whole_lines(read_plain(path)).split(b"\n")
        except FileNotFoundError:
            return NONE
        except OSError as problem:
            raise UserError(f"{path} cannot be read ({problem.strerror}).") from None
        found: list[_Line] = []
        for number, text in enumerate(lines, start=1):
            try:
                found.append(_parsed(text))
            except (
                Damaged, KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError
            ) as problem:  # fmt: skip
                raise UserError(
                    f"{path}, line {number}, is not what ttabench wrote ({problem}); delete the line, and "
                    "run `ttabench attest` again."
                ) from None
        held = held_among(folder, {cell for line in found for cell, _ in line.cells})
        refused = {key: why for line in found for key, why in line.refused.items()}
        links: dict[tuple[str, str, str], set[str]] = {}
        steps, cells = set(), set()
        for line in found:
            shown = {link for link in line.measured(held) if link not in refused}
            for before, stratum, machine, now in shown:
                links.setdefault((before, stratum, machine), set()).add(now)
            if shown:
                steps.add(line.seed)  # one line for each kind of machine
                cells |= {cell for cell, _ in line.cells}
        return cls({key: frozenset(of) for key, of in links.items()}, refused, len(steps), len(cells))


@dataclass(frozen=True)
class _Line:
    """A line of the file.

    same     (code of results, stratum, machine, code that gives the same numbers).
    refused  the same → how the numbers disagreed.
    cells    (id, digest of the stored bits) of the cells that were measured.
    wider    whether one cell of a `wider_kind` was measured.
    """

    same: frozenset[tuple[str, str, str, str]]
    refused: Mapping[tuple[str, str, str, str], str]
    cells: frozenset[tuple[str, str]]
    wider: bool
    seed: int

    def measured(self, held: Mapping[str, Held]) -> Iterator[tuple[str, str, str, str]]:
        """Those of `same` that have a measured cell: of this kind, with either code, and with its bits."""
        of_cells: set[tuple[str, str | tuple[str, ...]]] = set()
        changed: set[str | tuple[str, ...]] = set()
        for cell, bits in self.cells:
            try:
                kind = self._kind(stratum_of(held[cell].cell))
            except (KeyError, TypeError, AttributeError):  # it is not there, or is no cell
                return
            of_cells.add((held[cell].source, kind))
            if bits != digest(held[cell].correct):
                changed.add(kind)
        for link in self.same:
            before, stratum, _, now = link
            kind = self._kind(stratum)
            if kind not in changed and {(before, kind), (now, kind)} & of_cells:
                yield link

    def _kind(self, stratum: str) -> str | tuple[str, ...]:
        return wider_kind(stratum) if self.wider else stratum


def _parsed(line: bytes) -> _Line:
    """Raises Damaged, or another error of the values, for what ttabench did not write."""
    data = decode(line)
    machine = machine_of(StoredEnvironment.checked(data["environment"]))
    if data["same"] and not data["cells"]:
        raise Damaged("it names no cell that was measured")
    wider = data.get("way") == SIDE_BY_SIDE
    for _, _, stratum in data["same"] if wider else ():
        hash(wider_kind(stratum))  # raises for what is no kind
    return _Line(
        same=frozenset((before, stratum, machine, now) for before, now, stratum in data["same"]),
        refused={
            (before, stratum, machine, now): why
            for before, now, stratum, why in data["refused"]
            if not why.startswith(NOT_FINAL)
        },
        cells=frozenset((bytes.fromhex(identifier).hex(), of) for identifier, of in data["cells"]),
        wider=wider,
        seed=int(data["seed"]),
    )


NONE = Attestations()


def append(folder: Path, **facts: Any) -> None:
    """Add a line of these facts, after those that other processes add. Raises UserError where that fails.

    way       how the cells showed it.
    seed      of the draw.
    same      (code of results, code that gives the same numbers, stratum).
    refused   the same where the numbers disagree, with how they do.
    cells     (id, digest of the stored bits) of the cells that ran.
    operations  (id, digest of all that both codes computed) of those that ran side by side.
    executed  the changed definitions that ran.
    accepted  branches of the old code that did not.
    environment, shown_on  of the results, and of the process that ran the cells.
    written   when, in seconds since 1970.
    """
    path = folder / FILE
    with WorkClaims(folder, "attest") as claims, claims.alone("attest"), writing(path):
        before = _whole_lines(read_plain(path)) if path.exists() else b""
        replace_file(path, before + encode({"kind": "attestation", **facts}))


def _whole_lines(text: bytes) -> bytes:
    """The lines without an incomplete last one, which was never written. An editor may leave out its end."""
    lines, newline, last = text.rpartition(b"\n")
    try:
        decode(last)
    except Damaged:
        return lines + newline
    return text + b"\n"


def check_folder(folder: Path) -> None:
    """Raises UserError unless :func:`append` can write in a results folder."""
    WorkClaims(folder, "attest").close()
