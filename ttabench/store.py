"""The append-only store: results survive kill -9, full disks and many writers. Never imports torch.

A results folder holds ``sweep.json`` (what was asked for) and ``cells/*.jsonl``: one shard per
writer, one JSON record per line, each appended by a single ``os.write`` and ``fsync``. The last
record of a cell wins; a torn last line is ignored. CSV and other tables are exports.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ttabench.cell import Result, canonical
from ttabench.errors import UserError
from ttabench.registry import source_hash

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

FORMAT = "ttabench-results"
VERSION = 1
COLUMNS = (
    "method", "base", "config", "arch", "dataset", "corruption", "severity", "seed",
    "mode", "order", "batch_size", "epochs", "reset", "contamination", "held_out", "limit", "precision",
    "history",
    "n_images", "clean_accuracy", "accuracy", "seconds", "status", "reason", "adapted", "scores", "restores",
    "source_data", "alarm", "warning", "stale", "checkpoint", "fingerprint", "cell_id", "written",
)  # fmt: skip

DETAILS = ("adapted", "scores", "restores", "source_data", "alarm")  # columns that are details of a result


@dataclass(frozen=True)
class Record:
    """A stored result, when it was written (unix seconds) and with which method source (SHA-256)."""

    result: Result
    written: float
    source: str

    @property
    def stale(self) -> bool:
        """Made with another version of the method's code than the one installed now."""
        return self.source != source_hash(self.result.cell.method)


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
        """The folder of this sweep, made if need be.

        Raises UserError if it holds another sweep (unless `extend`), something that is not ours,
        or cannot be written.
        """
        store = cls(Path(root))
        manifest = {"format": FORMAT, "version": VERSION, "sweep": sweep}
        try:
            if store.manifest.exists():
                held = store.sweep()
                if held == sweep:
                    return store
                if not extend:
                    differ = sorted(k for k in held.keys() | sweep.keys() if held.get(k) != sweep.get(k))
                    was = "; ".join(f"{k}: {_brief(held.get(k))} → {_brief(sweep.get(k))}" for k in differ)
                    raise UserError(
                        f"{root} holds another sweep ({was}); "
                        "choose another folder with --out, or add --extend to put both into this one."
                    )
                manifest["sweep"] = _union(held, sweep)
            elif store.root.exists() and (not store.root.is_dir() or any(store.root.iterdir())):
                raise UserError(
                    f"{root} exists and is not a results folder of ttabench; choose another with --out."
                )
            store.cells.mkdir(parents=True, exist_ok=True)
            part = store.manifest.with_suffix(f".{os.getpid()}.part")
            part.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
            part.replace(store.manifest)
        except OSError as problem:
            raise UserError(
                f"{root} cannot be written ({problem.strerror}); choose another folder with --out."
            ) from None
        return store

    @property
    def manifest(self) -> Path:
        return self.root / "sweep.json"

    def sweep(self) -> dict[str, Any]:
        """What was asked for when the folder was made."""
        try:
            manifest = json.loads(self.manifest.read_text())
            if manifest["format"] != FORMAT or not isinstance(manifest["sweep"], dict):
                raise ValueError
            version = int(manifest["version"])
        except OSError:
            raise UserError(f"{self.root} is not a results folder of ttabench (no sweep.json).") from None
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{self.manifest} is not what ttabench wrote; restore it, or choose another folder."
            ) from None
        if version > VERSION:
            raise UserError(f"{self.root} was made by a newer ttabench; please upgrade.")
        sweep: dict[str, Any] = manifest["sweep"]
        return sweep

    def writer(self) -> Writer:
        """A new shard of one's own. One per process."""
        return Writer(self.cells)

    def records(self) -> Iterator[Record]:
        """Everything ever written, shard by shard."""
        for shard in sorted(self.cells.glob("*.jsonl")):
            *lines, _torn = shard.read_bytes().split(b"\n")
            for number, line in enumerate(lines, start=1):
                try:
                    data = json.loads(line)
                    if data["kind"] == "result":
                        yield Record(Result.from_json(data), float(data["written"]), data["source"])
                except (ValueError, KeyError, TypeError, AttributeError):
                    raise UserError(
                        f"{shard}, line {number}, is not a record of ttabench; "
                        "restore the file or move it out of the folder."
                    ) from None

    def latest(self) -> dict[str, Record]:
        """The last record of each cell, by cell id."""
        last: dict[str, Record] = {}
        for record in self.records():
            key = record.result.cell.cell_id
            if key not in last or record.written >= last[key].written:
                last[key] = record
        return last

    def correct(self, cell_id: str) -> NDArray[np.bool_]:
        """Which images of a cell were right, in the order of the test set."""
        result = self.latest()[cell_id].result
        bits = np.unpackbits(np.frombuffer(result.correct, np.uint8), count=result.n_images)
        return bits.astype(bool)

    def frame(self) -> pd.DataFrame:
        """One row per cell with the columns :data:`COLUMNS`; accuracies in percent."""
        import pandas as pd

        return pd.DataFrame([row(record) for record in self.latest().values()], columns=list(COLUMNS))


class Writer:
    """Appends results to one shard of its own."""

    def __init__(self, folder: Path) -> None:
        name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}.jsonl"
        self.path = folder / name
        self._file: int | None = None

    def append(self, result: Result) -> None:
        """Durable when this returns. Raises UserError on a full disk; what was stored before stays."""
        from ttabench.env import machine, versions

        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
            self._write({"kind": "environment", "versions": versions(), "machine": machine()})
        source = source_hash(result.cell.method)
        self._write({"kind": "result", "written": time.time(), "source": source, **result.to_json()})

    def _write(self, record: dict[str, Any]) -> None:
        assert self._file is not None
        line = canonical(record).encode() + b"\n"
        before = os.fstat(self._file).st_size
        try:
            if os.write(self._file, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file)
        except OSError as problem:
            os.ftruncate(self._file, before)
            raise UserError(
                f"{self.path.parent} cannot take another result ({problem.strerror}); "
                "what was stored is kept: make room and run the same command again."
            ) from None

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def row(record: Record) -> dict[str, Any]:
    """A record as one row of the cells table."""
    result, cell = record.result, record.result.cell
    protocol = cell.protocol
    return {
        "method": cell.label, "base": cell.method, "config": canonical(dict(cell.config)),
        "arch": cell.arch, "dataset": cell.dataset, "corruption": cell.corruption,
        "severity": cell.severity, "seed": cell.seed,
        "mode": protocol.mode, "order": protocol.order, "batch_size": protocol.batch_size,
        "epochs": protocol.epochs, "reset": protocol.reset, "contamination": protocol.contamination,
        "held_out": protocol.held_out, "limit": protocol.limit, "precision": protocol.precision,
        "history": " ".join(cell.history),
        "n_images": result.n_images, "clean_accuracy": result.clean_accuracy, "accuracy": result.accuracy,
        "seconds": result.seconds, "status": result.status, "reason": result.reason,
        **{name: result.details.get(name, "") for name in DETAILS},
        "warning": result.details.get("source_warning", ""), "stale": record.stale,
        "checkpoint": cell.checkpoint, "fingerprint": cell.fingerprint, "cell_id": cell.cell_id,
        "written": record.written,
    }  # fmt: skip


def load_frame(root: Path | str) -> pd.DataFrame:
    """The cells of a results folder as a table (see :meth:`Store.frame`)."""
    return Store.at(Path(root)).frame()


def _brief(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _union(held: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    """Two sweeps in one folder: lists are joined, everything else is the later one's."""
    joined = dict(held)
    for key, value in asked.items():
        old = held.get(key)
        joined[key] = [*old, *(v for v in value if v not in old)] if isinstance(old, list) else value
    return joined
