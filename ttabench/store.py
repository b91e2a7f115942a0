"""The append-only store: results survive kill -9, full disks and many writers. Never imports torch.

A results folder holds ``sweep.json`` (the options of the sweep), ``plan.jsonl`` (every planned cell, with the
reason if it cannot be run) and ``cells/*.jsonl``: one shard per
writer, one JSON record per line, each appended by a single ``os.write`` and ``fsync``. The last
record of a cell counts; an incomplete last line is ignored. CSV and other tables are exports.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import socket
import sys
import time
import typing
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ttabench.cell import Cell, Result, Status, canonical
from ttabench.collector import paused
from ttabench.env import machine, processor, versions
from ttabench.errors import UserError, shortened
from ttabench.files import replace_file
from ttabench.protocol import Protocol
from ttabench.provenance import STREAMS, changes, combined, current_modules, libraries
from ttabench.records import MARK, Damaged, decode, encode, is_first_format

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

T = TypeVar("T")

FORMAT = "ttabench-results"
VERSION = 2
COST = (
    "images", "ms_per_image", "forward", "backward", "compute_ratio", "adapted_parameters", "device_mb",
    "host_mb",
)  # fmt: skip
"""The columns that a result has as details under "cost", see `ttabench.cost.Meter.cost`."""
DEAR_SCORES = ("consistency", "source_accuracy")
SCORES = ("entropy", "infomax", "nuclear_norm", "snd", *DEAR_SCORES)
"""The columns that a result has as details under "unlabelled", see `ttabench.unlabelled`."""
COLUMNS = (
    "method", "base", "config", "arch", "dataset", "corruption", "severity", "seed",
    "mode", "order", "batch_size", "epochs", "reset", "contamination", "held_out", "limit", "precision",
    "stream", "baseline", "pace", "pace_ratio",
    "history",
    "n_images", "clean_accuracy", "accuracy", "seconds", "status", "reason", "adapted", "scored_classes",
    "scores", "restores", "source_data", "source_used", "alarm", "warning", "stale",
    "stale_because", "code", "device", "threads", "versions", *COST, *SCORES,
    "checkpoint", "fingerprint", "cell_id", "written",
)  # fmt: skip

PLAN_FILE = "plan.jsonl"
PLAN = ("id", "method", "base", "arch", "dataset", "corruption", "severity", "seed", "reason")
"""The keys of a planned cell: its id, what tables call it, and why it cannot be run ("" if it can)."""

ASKED = "asked"
"""In the `attrs` of a table of cells: the options of its sweeps, see :meth:`Store.sweep`."""
MISSING = "missing"
"""Of a table of cells' `attrs`: the planned cells without a record, with their method as `base`."""

# Columns that are details of a result.
DETAILS = ("adapted", "scored_classes", "scores", "restores", "source_data", "source_used", "alarm")


@dataclass(frozen=True)
class Record:
    """A stored result, with its code and environment.

    data         the stored record; :attr:`result` is made from it at first use.
    source       SHA-256 of the code that the number depends on.
    modules      module → hash of its code, see `provenance`; {} if unknown.
    environment  versions of libraries, machine, processor, device and threads.
    place        file and line, for messages.
    """

    data: Mapping[str, Any]
    source: str
    modules: Modules
    environment: Mapping[str, Any]
    place: str = ""

    @property
    def written(self) -> float:
        """When it was stored, in unix seconds."""
        return float(self.data["written"])

    @property
    def cell_id(self) -> str:
        return str(self.data["id"])

    @cached_property
    def result(self) -> Result:
        return Result.from_json(dict(self.data))

    @property
    def changes(self) -> tuple[str, ...]:
        """Changes in this code since then, e.g. ``ttabench/nn/updates.py changed``; () if there are none."""
        return code_changes(self.data, self.modules)

    @property
    def stale(self) -> bool:
        """Whether the installed code differs from that of the result."""
        return bool(self.changes)


NOT_RECORDED = "it was stored by a version that did not record its code"
NOT_INSTALLED = " is not installed"


class Modules(dict[str, str]):
    """Module → hash. Hashable by identity, so that it is compared once for all records that share it."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def code_changes(data: Mapping[str, Any], modules: Modules) -> tuple[str, ...]:
    """:attr:`Record.changes` of stored data, made with the code in `modules`."""
    if data["status"] == "n/a":
        return ()
    if not modules:
        return (NOT_RECORDED,)
    cell = data["cell"]
    what = cell["corruption"] if cell["corruption"] in STREAMS else ""
    return _changes(cell["method"], cell["dataset"], what, cell["arch"], modules)


@lru_cache(maxsize=4096)
def _changes(method: str, dataset: str, corruption: str, arch: str, modules: Modules) -> tuple[str, ...]:
    now = current_modules(method, dataset, corruption, arch)
    return tuple(changes(modules, now)) if now else (f"{method}{NOT_INSTALLED}",)


def brief_changes(texts: Sequence[str], shown: int = 3) -> str:
    """The first of `changes` in one text, e.g. ``ttabench/nn/updates.py changed and 4 more``."""
    more = f" and {len(texts) - shown} more" if len(texts) > shown else ""
    return ", ".join(texts[:shown]) + more


def stale_reasons(texts: Iterable[str], wording: str) -> list[str]:
    """Why a result is stale: whole sentences, then the changed modules in place of {} in `wording`."""
    kinds: tuple[list[str], list[str]] = [], []
    for text in texts:
        kinds[text == NOT_RECORDED or text.endswith(NOT_INSTALLED)].append(text)
    changed, others = kinds
    return [*others, *([wording.format(brief_changes(changed))] if changed else [])]


def stale_cells(count: int, method: str, texts: Sequence[str]) -> str:
    """``2 stale cells of tent: ttabench/nn/updates.py changed since they were measured``; see `changes`."""
    they = "they were" if count > 1 else "it was"
    whys = stale_reasons(filter(None, texts), f"{{}} since {they} measured")
    why = "; ".join(w.replace("it was", they, 1) if w == NOT_RECORDED else w for w in whys)
    why = why or "made with other code"
    return f"{count} stale cell{'s' * (count > 1)} of {method}: {why}"


class Store:
    """A results folder. Open it with :meth:`create` to write, :meth:`at` to read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cells = root / "cells"

    @classmethod
    def at(cls, root: Path) -> Store:
        """An existing results folder. Raises UserError for anything else."""
        store = cls(Path(root))
        store.sweep()
        return store

    @classmethod
    def create(cls, root: Path, sweep: dict[str, Any], *, extend: bool = False) -> Store:
        """The folder of this sweep, created if necessary.

        Raises UserError if it holds another sweep (unless `extend`) or other files, or cannot be written.
        """
        store = cls(Path(root))
        try:
            before = store.sweep_before(sweep, extend=extend)
            if before == sweep:
                return store
            joined = sweep if before is None else _union(before, sweep)
            store.cells.mkdir(parents=True, exist_ok=True)
            manifest = {"format": FORMAT, "version": VERSION, "sweep": joined}
            text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
            replace_file(store.manifest, text.encode())
        except OSError as problem:
            raise UserError(
                f"{root} cannot be written ({problem.strerror}); choose another folder with --out."
            ) from None
        return store

    def sweep_before(self, sweep: dict[str, Any], *, extend: bool = False) -> dict[str, Any] | None:
        """The options of the sweep that the folder holds, None for a new folder. Writes nothing.

        Raises UserError if it holds another sweep (unless `extend`) or other files, or cannot be read.
        """
        try:
            exists = self.manifest.exists()
            if not exists and self.root.exists() and not _is_free(self.root):
                raise UserError(
                    f"{self.root} exists and is not a results folder of ttabench; choose another with --out."
                )
        except OSError as problem:
            raise UserError(
                f"{shortened(str(self.root))} cannot be read ({problem.strerror}); "
                "choose another folder with --out."
            ) from None
        before = self.sweep() if exists else None
        if before is not None and before != sweep and not extend:
            raise UserError(
                f"{self.root} holds the results of another sweep: {_differences(before, sweep)}. "
                "Choose another folder with --out, or add --extend to put both sweeps into this one."
            )
        return before

    @property
    def manifest(self) -> Path:
        return self.root / "sweep.json"

    def sweep(self) -> dict[str, Any]:
        """The options of the sweep that created the folder."""
        try:
            manifest = json.loads(self.manifest.read_text())
            if manifest["format"] != FORMAT or not isinstance(manifest["sweep"], dict):
                raise ValueError
            version = int(manifest["version"])
        except OSError as problem:
            if isinstance(problem, FileNotFoundError) and not self.root.exists():
                raise UserError(f"{self.root} does not exist; expected a results folder.") from None
            raise UserError(f"{self.root} is not a results folder of ttabench (no sweep.json).") from None
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{self.manifest} is not what ttabench wrote; restore it, or choose another folder."
            ) from None
        if version > VERSION:
            raise UserError(f"{self.root} was made by a newer ttabench; please upgrade.")
        sweep: dict[str, Any] = manifest["sweep"]
        return sweep

    def write_plan(self, rows: Iterable[Mapping[str, Any]], *, extend: bool = False) -> None:
        """Store the planned cells, see :data:`PLAN`; with `extend`, add them to those planned before.

        Raises UserError if the folder cannot be written.
        """
        planned = {row["id"]: dict(row) for row in (*(self.plan() if extend else ()), *rows)}
        try:
            replace_file(self.root / PLAN_FILE, b"".join(map(encode, planned.values())))
        except OSError as problem:
            raise UserError(
                f"{self.root} cannot be written ({problem.strerror}); choose another folder with --out."
            ) from None

    def plan(self) -> list[dict[str, Any]]:
        """The planned cells, one row each with the keys of :data:`PLAN`; [] if none are stored.

        Raises UserError if the file is damaged.
        """
        path = self.root / PLAN_FILE
        try:
            lines = path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        rows: list[dict[str, Any]] = []
        try:
            for line in lines:
                row = decode(line)
                rows.append({key: row[key] for key in PLAN})
            return rows
        except (Damaged, KeyError) as problem:
            raise UserError(
                f"{path}, line {len(rows) + 1}, is not what ttabench wrote: {problem}; delete the file and "
                "run the sweep again."
            ) from None

    def writer(self, device: str = "cpu") -> Writer:
        """A writer with a new shard. Use one per process; `device` is the device of its results."""
        return Writer(self.cells, device)

    def records(self) -> Iterator[Record]:
        """All records, shard by shard. Raises UserError for a damaged record."""
        for shard in self._shards():
            yield from _read_shard(shard)

    def latest(self, *, quick: bool = False) -> dict[str, Record]:
        """The last record of each cell, by cell id.

        quick   without the per-image correctness, and the ids are not computed again: for what counts cells.

        Within a shard, later lines are later records. Between shards, the generation decides: a writer's is
        one higher than all that existed when it started. For writers that ran in parallel, the clock decides.
        """
        return self.latest_as(lambda record: record, quick=quick)

    def latest_as(self, made: Callable[[Record], T], *, quick: bool = False) -> dict[str, T]:
        """Like :meth:`latest`, with what `made` makes of each record; only that is kept in memory."""
        last: dict[str, tuple[int, float, T]] = {}
        with paused():
            for shard in self._shards():
                generation = _generation(shard)
                in_shard = {
                    record.cell_id: (generation, record.written, made(record))
                    for record in _read_shard(shard, quick)
                }
                for key, value in in_shard.items():
                    if key not in last or value[:2] >= last[key][:2]:
                        last[key] = value
        return {key: value for key, (_, _, value) in last.items()}

    def merge(self) -> Path | None:
        """Replace all shards by one with the last record of each cell; its path, None for an empty store.

        Records keep their code, environment and time. No sweep may be writing to the folder. Raises UserError
        for a damaged record, or if the folder cannot be written; the old shards then remain.
        """
        old, last = self._shards(), self.latest()
        if not last:
            return None
        if len(old) == 1 and old[0].name.startswith("merged-"):
            return old[0]
        generation = 1 + max(map(_generation, old))
        lines: list[bytes] = []
        environment_written: dict[str, Any] = {}
        code_written: dict[str, Modules] = {}
        for record in sorted(last.values(), key=_merge_order):
            if not lines or record.environment != environment_written:
                environment_written = dict(record.environment)
                number = {} if lines else {"generation": generation}
                lines.append(encode({"kind": "environment", **number, **environment_written}))
            if record.source and code_written.get(record.source) != record.modules:  # {} of the first format
                lines.append(encode({"kind": "code", "source": record.source, "modules": record.modules}))
                code_written[record.source] = record.modules
            written = {"kind": "result", "written": record.written, "source": record.source}
            lines.append(encode({**written, **record.result.to_json()}))
        data = b"".join(lines)
        path = self.cells / f"merged-{hashlib.sha256(data).hexdigest()[:12]}.jsonl"
        try:
            replace_file(path, data)
            for shard in old:
                if shard != path:
                    shard.unlink()
        except OSError as problem:
            raise UserError(f"{self.cells} cannot be written ({problem.strerror}).") from None
        return path

    def _shards(self) -> list[Path]:
        return sorted(self.cells.glob("*.jsonl"))

    def correct(self, cell_id: str) -> NDArray[np.bool_]:
        """Which images of a cell were classified correctly, in the order of the test set."""
        import numpy as np

        result = self.latest()[cell_id].result
        bits = np.unpackbits(np.frombuffer(result.correct, np.uint8), count=result.n_images)
        return bits.astype(bool)

    def frame(self) -> pd.DataFrame:
        """One row per cell with the columns :data:`COLUMNS`; accuracies in percent."""
        import pandas as pd

        return pd.DataFrame([row(record) for record in self.latest().values()], columns=list(COLUMNS))


class Writer:
    """Appends results to its own shard."""

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}.jsonl"
        self.path = folder / name
        self._device = device
        self._file: int | None = None
        self._known: set[str] = set()
        self._further: tuple[str, ...] = ()  # libraries in the environment that was written last

    def append(self, result: Result) -> None:
        """Append a result; it is on disk when this returns. Raises UserError on a full disk."""
        self.extend([result])

    def extend(self, results: Iterable[Result]) -> None:
        """Append results, all or none of them. Raises UserError on a full disk."""
        lines, known, further = [], set(self._known), self._further
        for result in results:
            cell = result.cell
            modules = current_modules(cell.method, cell.dataset, cell.corruption, cell.arch)
            source = combined(modules)
            if (needed := libraries(cell.method, cell.arch)) != further:
                lines.append(encode({"kind": "environment", **environment(self._device, needed)}))
                further = needed
            if source and source not in known:
                lines.append(encode({"kind": "code", "source": source, "modules": dict(modules)}))
                known.add(source)
            record = {"kind": "result", "written": time.time(), "source": source, **result.to_json()}
            lines.append(encode(record))
        if lines:
            if self._file is None:
                self._open()
            self._write(b"".join(lines))
            self._known, self._further = known, further

    def _open(self) -> None:
        folder = self.path.parent
        generation = 1 + max(map(_generation, folder.glob("*.jsonl")), default=0)
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        except OSError as problem:
            raise UserError(
                f"{folder} cannot be written ({problem.strerror}); choose another folder with --out."
            ) from None
        about = {"kind": "environment", "generation": generation, **environment(self._device)}
        self._write(encode(about))

    def _write(self, lines: bytes) -> None:
        assert self._file is not None
        state = os.fstat(self._file)
        if not state.st_nlink:
            raise UserError(f"{self.path} was deleted while the sweep ran; run the same command again.")
        before = state.st_size
        try:
            if os.write(self._file, lines) != len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file)
        except OSError as problem:
            os.ftruncate(self._file, before)
            raise UserError(
                f"{self.path.parent} cannot take another result ({problem.strerror}); "
                "what was stored is kept; free some space and run the same command again."
            ) from None

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _is_free(root: Path) -> bool:
    """Whether this is an empty folder, or one that another sweep is filling at this moment.

    Folders that hold nothing but results folders may stand in it, such as the repository's results/reference.
    """
    return root.is_dir() and all(
        entry.name in ("sweep.json", "cells")
        or (entry.name[0] == "." and entry.name.endswith("-sweep.json"))
        or _holds_results_folders(entry)
        for entry in root.iterdir()
    )


def _holds_results_folders(folder: Path) -> bool:
    inner = list(folder.iterdir()) if folder.is_dir() else []
    return bool(inner) and all((each / "sweep.json").is_file() for each in inner)


UNKNOWN = Modules()


def environment(device: str, further: Sequence[str] = ()) -> dict[str, Any]:
    """The environment of results of this process: device, threads, versions, machine, processor.

    further   libraries whose versions count too, see `provenance.libraries`.
    """
    return {
        "device": device, "threads": _threads(), "versions": versions(further), "machine": machine(),
        "processor": processor(device),
    }  # fmt: skip


def _threads() -> int:
    """The threads of torch in this process; 0 where it is not imported."""
    torch = sys.modules.get("torch")
    return 0 if torch is None else int(torch.get_num_threads())


def _merge_order(record: Record) -> tuple[Any, ...]:
    """Sort key: records of one environment stay together; within it, the order of tables."""
    names = ("dataset", "arch", "label", "seed", "severity", "corruption")
    cell = record.data["cell"]
    return (canonical(dict(record.environment)), *(cell[name] for name in names), record.cell_id)


def _generation(shard: Path) -> int:
    """The generation in the first line of a shard; 0 for the first format and for incomplete shards."""
    with shard.open("rb") as file:
        line = file.readline()
    try:
        return int(decode(line.removesuffix(b"\n"), first_format=True).get("generation", 0))
    except (Damaged, ValueError, TypeError):
        return 0


def _read_shard(shard: Path, quick: bool = False) -> Iterator[Record]:
    environment: dict[str, Any] = {}
    code: dict[str, Modules] = {}
    old = False
    for number, line in _whole_lines(shard):
        place = f"{shard}, line {number}"
        try:
            old = is_first_format(line) if number == 1 else old
            data = decode(line, first_format=old)
            if data["kind"] == "environment":
                environment = {k: v for k, v in data.items() if k not in ("kind", "sum", "generation")}
            elif data["kind"] == "code" and not old:  # the first format had none
                code[data["source"]] = Modules(data["modules"])
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


OPTIONAL = {"history", "baseline"}  # stored where they are not empty
CELL_KEYS = {field.name for field in fields(Cell)} - OPTIONAL
PROTOCOL = {field.name: field.default for field in fields(Protocol)}
STATUSES = typing.get_args(Status)


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


def row(record: Record) -> dict[str, Any]:
    """A record as one row of the cells table."""
    data, cell, environment = record.data, record.data["cell"], record.environment
    details, changed = data.get("details", {}), record.changes
    return {
        "method": cell["label"], "base": cell["method"], "config": canonical(cell["config"]),
        **{name: cell[name] for name in ("arch", "dataset", "corruption", "severity", "seed")},
        **PROTOCOL, **cell["protocol"],
        "baseline": cell.get("baseline", ""), "history": " ".join(cell.get("history", ())),
        "n_images": data.get("n_images", 0), "clean_accuracy": data.get("clean_accuracy"),
        "accuracy": data.get("accuracy"), "seconds": data.get("seconds", 0.0), "status": data["status"],
        "reason": data.get("reason", ""),
        **{name: details.get(name, "") for name in DETAILS},
        **{name: details.get("cost", {}).get(name) for name in COST},
        **{name: details.get("unlabelled", {}).get(name) for name in SCORES},
        "warning": details.get("source_warning", ""),
        "stale": bool(changed), "stale_because": "; ".join(changed), "code": record.source,
        "device": environment.get("device", ""), "threads": environment.get("threads", 0),
        "versions": " ".join(f"{k} {v}" for k, v in environment.get("versions", {}).items()),
        "checkpoint": cell["checkpoint"], "fingerprint": cell["fingerprint"], "cell_id": record.cell_id,
        "written": record.written,
    }  # fmt: skip


def load_frame(root: Path | str) -> pd.DataFrame:
    """The cells of a results folder as a table (see :meth:`Store.frame`)."""
    return Store.at(Path(root)).frame()


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Options that two sweeps do not share: ``--limit was 50 and is now 200; --set was not given and …``"""
    differ = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    return "; ".join(
        f"{_flag(key)} was {_brief(before.get(key))} and is now {_brief(now.get(key))}" for key in differ
    )


def _flag(name: str) -> str:
    """How an option of a sweep is given: a flag, or a rule of a sweep file."""
    if name in ("include", "exclude", "per_method", "per_dataset"):
        return f"[{name}]"
    return "--set" if name == "settings" else f"--{name.replace('_', '-')}"


def _brief(value: Any) -> str:
    """An option's value, shortened. 0 and empty values have the meaning of an option that is not given."""
    if not value:
        return "not given"
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _union(before: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    """The options of two sweeps in one folder: lists are joined, other values are those of the later one."""
    joined = dict(before)
    for key, value in added.items():
        old = before.get(key)
        joined[key] = [*old, *(v for v in value if v not in old)] if isinstance(old, list) else value
    return joined
