"""Writing results: each is on disk when the call returns, or none of it is."""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ttabench.cell import Result
from ttabench.errors import UserError
from ttabench.provenance import libraries
from ttabench.provenance.staleness import code_of
from ttabench.registry import method_facts
from ttabench.store import new_records, read_results
from ttabench.system.checked_lines import encode
from ttabench.system.environment import device_kind, machine, processor, versions
from ttabench.system.files import writing

ANOTHER = "choose another folder with --out"
ADVICE = {
    errno.ENOSPC: "free some space and ", errno.EDQUOT: "free some of your quota and ",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f) and ",
}  # fmt: skip
"""What to do where a result cannot be written."""


class Writer:
    """Appends results to its own shard.

    device, threads   of the process that computed them; None: the threads of this process.
    """

    def __init__(self, folder: Path, device: str = "cpu", threads: int | None = None) -> None:
        name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}.jsonl"
        self.path = folder / name
        self._device, self._threads = device, threads
        self._file: int | None = None
        self._known: set[str] = set()
        self._names: set[str] = set()  # the definitions whose names were written
        self._libraries: tuple[str, ...] = ()  # libraries in the environment that was written last

    def append(self, result: Result) -> None:
        """Append a result; it is on disk when this returns. Raises UserError where that fails."""
        self.extend([result])

    def extend(self, results: Iterable[Result]) -> None:
        """Append results, all or none of them. Raises UserError where that fails."""
        lines: list[bytes] = []
        known, names, more_libraries = set(self._known), set(self._names), self._libraries
        for result in results:
            cell = result.cell
            code = code_of(cell)
            source = code.source
            if (needed := libraries(cell.method, cell.arch)) != more_libraries:
                lines.append(encode({"kind": "environment", **self._environment(needed)}))
                more_libraries = needed
            if source and source not in known:
                facts = method_facts(cell.method, dict(cell.config).values())
                lines += code_lines(source, code.definitions, code.branches, names, facts)
                known.add(source)
            record = {"kind": "result", "written": time.time(), "source": source, **result.to_json()}
            lines.append(encode(record))
        if lines:
            self._write(self._head() + b"".join(lines))
            self._known, self._names, self._libraries = known, names, more_libraries

    def _head(self) -> bytes:
        """The first line of the shard, which is made now; nothing where the shard has it already."""
        if self._file is not None and os.fstat(self._file).st_size:
            return b""
        folder = self.path.parent
        generation = 1 + max(map(new_records.generation, folder.glob("*.jsonl")), default=0)
        if self._file is None:
            with writing(folder, ANOTHER):
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        return encode({"kind": "environment", "generation": generation, **self._environment()})

    def _environment(self, more_libraries: Sequence[str] = ()) -> dict[str, Any]:
        threads = {} if self._threads is None else {"threads": self._threads}
        return {**environment(self._device, more_libraries), **threads}

    def _write(self, lines: bytes) -> None:
        assert self._file is not None
        state = os.fstat(self._file)
        if not state.st_nlink:
            raise UserError(f"{self.path} was deleted while the sweep ran; run the same command again.")
        before = state.st_size
        try:
            rest = memoryview(lines)
            while rest:  # a write that comes up short does not say why; the next one does
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except OSError as problem:
            with suppress(OSError):  # after an error of the disk; readers leave out a part of a line
                os.ftruncate(self._file, before)
            advice = ADVICE.get(problem.errno or 0, "")
            raise UserError(
                f"{self.path.parent} cannot take another result ({problem.strerror}); "
                f"what was stored is kept; {advice}run the same command again."
            ) from None

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def code_lines(
    source: str,
    definitions: Mapping[str, str],
    branches: Mapping[str, int],
    written: set[str],
    method: Mapping[str, Any],
) -> list[bytes]:
    """The lines that say which code `source` is. Definitions stand in it by hash, their names once per file.

    branches  definition → how often it decides what runs, where that is known.
    written   what has its name in the file already; what gets one now is added.
    method    what :func:`ttabench.registry.method_facts` says of the method; {} if unknown.
    """
    keys = {read_results.name_key(digest, name): [digest, name] for name, digest in definitions.items()}
    new = sorted(keys.keys() - written)
    written.update(keys)
    decide = [branches.get(keys[key][1]) for key in new]
    named = {"kind": "definitions", "names": [keys[key] for key in new], "branches": decide}
    names = [encode(named)] if new else []
    facts = {"method": dict(method)} if method else {}
    return [*names, encode({"kind": "code", "source": source, "definitions": sorted(keys), **facts})]


def environment(device: str, more_libraries: Sequence[str] = ()) -> dict[str, Any]:
    """The environment of results of this process: device, threads, versions, machine, processor.

    more_libraries   libraries whose versions count too, see :func:`ttabench.provenance.libraries`.

    The device is ``cuda`` for ``cuda:1`` too: the processor says what GPU it is, its number does not matter.
    """
    return {
        "device": device_kind(device), "threads": _threads(), "versions": versions(more_libraries),
        "machine": machine(), "processor": processor(device),
    }  # fmt: skip


def _threads() -> int:
    """The threads of torch in this process; 0 where it is not imported."""
    torch = sys.modules.get("torch")
    return 0 if torch is None else int(torch.get_num_threads())
