"""A results folder: the sweep, its plan, and the last record of each cell."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ttabench.cell import canonical
from ttabench.errors import UserError, shortened
from ttabench.store import new_records, read_results
from ttabench.store.attestations import Attestations
from ttabench.store.columns import row
from ttabench.store.manifest import read_manifest, write_manifest
from ttabench.store.record import Record
from ttabench.store.record_values import check_planned
from ttabench.store.sweep_options import differences, union
from ttabench.store.writer import ANOTHER, Writer, code_lines
from ttabench.system.checked_lines import Damaged, decode, encode
from ttabench.system.files import check_plain, read_plain, replace_file, writing
from ttabench.system.garbage_collection import paused
from ttabench.system.work_claims import FOLDER as RUNNING
from ttabench.system.work_claims import WorkClaims

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")

PLAN_FILE = "plan.jsonl"
PLAN = ("id", "method", "base", "arch", "dataset", "corruption", "severity", "seed", "reason")
"""The keys of a planned cell: its id, what tables call it, and why it cannot be run ("" if it can)."""
PROTOCOL_OF_PLAN = "protocol"
"""One more key, which older plans do not have: what :meth:`ttabench.cell.protocol.Protocol.to_json` gives."""
FIXED_IN_PLAN = "fixed"
"""One more key, where the user gave the weights or the compute ratio: what distinguishes cells besides."""


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
        store.make_folder(sweep, extend=extend)
        store.join(sweep, extend=extend)
        return store

    def make_folder(self, sweep: dict[str, Any], *, extend: bool = False) -> None:
        """The first half of :meth:`create`: the folder, where processes can have claims, without the sweep.

        Raises UserError like :meth:`create`.
        """
        self.sweep_before(sweep, extend=extend)
        with writing(self.root, ANOTHER):
            self.cells.mkdir(parents=True, exist_ok=True)  # git and zip lose empty folders

    def join(self, sweep: dict[str, Any], *, extend: bool = False) -> None:
        """The second half of :meth:`create`. Other sweeps may do it too: only one at a time."""
        before = self.sweep_before(sweep, extend=extend)
        if before == sweep:
            return
        joined = sweep if before is None else union(before, sweep)
        with writing(self.root, ANOTHER):
            write_manifest(self.manifest, joined)

    def sweep_before(self, sweep: dict[str, Any], *, extend: bool = False) -> dict[str, Any] | None:
        """The options of the sweep that the folder holds, None for a new folder. Writes nothing.

        Raises UserError if it holds another sweep (unless `extend`) or other files, or cannot be read.
        """
        try:
            exists = self.manifest.exists()
            is_taken = not exists and self.root.exists() and not _is_free(self.root)
            if is_taken and not (exists := self.manifest.exists()):  # or another sweep has just made it
                raise UserError(
                    f"{self.root} exists and is not a results folder of ttabench; choose another with --out."
                )
        except OSError as problem:
            raise UserError(
                f"{shortened(str(self.root))} cannot be read ({problem.strerror}); {ANOTHER}."
            ) from None
        before = self.sweep() if exists else None
        if before is not None and before != sweep and not extend:
            raise UserError(
                f"{self.root} holds the results of another sweep: {differences(before, sweep)}. "
                "Choose another folder with --out, or add --extend to put both sweeps into this one."
            )
        return before

    @property
    def manifest(self) -> Path:
        return self.root / "sweep.json"

    def sweep(self) -> dict[str, Any]:
        """The options of the sweep that created the folder. Raises UserError if they cannot be read."""
        try:
            return read_manifest(self.manifest)
        except (FileNotFoundError, NotADirectoryError) as problem:
            if isinstance(problem, FileNotFoundError) and not self.root.exists():
                raise UserError(f"{self.root} does not exist; expected a results folder.") from None
            near = next(_results_folders_near(self.root), None)
            one = f"; name one, such as {near}" if near else ""
            raise UserError(
                f"{self.root} is not a results folder of ttabench (no sweep.json){one}."
            ) from None
        except OSError as problem:
            raise _unreadable(self.manifest, problem) from None

    def write_plan(self, rows: Iterable[Mapping[str, Any]], *, extend: bool = False) -> None:
        """Store the planned cells, see :data:`PLAN`; with `extend`, add them to those planned before.

        Raises UserError if the folder cannot be written.
        """
        rows = list(rows)
        before = self._still_planned(rows) if extend else []
        planned = {row["id"]: dict(row) for row in (*before, *rows)}
        with writing(self.root, ANOTHER):
            replace_file(self.root / PLAN_FILE, b"".join(map(encode, planned.values())))

    def _still_planned(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The rows of the plan that a sweep with `rows` leaves: without cells that it replaces.

        A cell gets another id if its weights, its data, its compute ratio or a default of its method changes.
        One with a result of the installed code stays.
        """
        plan, ids = self.plan(), {row["id"] for row in rows}
        others = [row for row in plan if row["id"] not in ids]
        if not others:
            return plan
        new = set(map(_replaceable, rows))
        replaced = {row["id"] for row in others if _replaceable(row) in new}
        if replaced:
            stale = self.latest_as(lambda record: record.stale, quick=True)
            replaced = {key for key in replaced if stale.get(key, True)}  # or never run
        return [row for row in plan if row["id"] not in replaced]

    def plan(self) -> list[dict[str, Any]]:
        """The planned cells, one row each with the keys of :data:`PLAN`, and where they are stored
        :data:`PROTOCOL_OF_PLAN` and :data:`FIXED_IN_PLAN`; [] if none are stored.

        Raises UserError if the file is damaged.
        """
        path = self.root / PLAN_FILE
        try:
            lines = read_plain(path).splitlines()
        except FileNotFoundError:
            return []
        rows: list[dict[str, Any]] = []
        try:
            for line in lines:
                row = decode(line)
                check_planned(row)
                more = (key for key in (PROTOCOL_OF_PLAN, FIXED_IN_PLAN) if key in row)
                rows.append({key: row[key] for key in (*PLAN, *more)})
            return rows
        except Damaged as problem:
            raise UserError(
                f"{path}, line {len(rows) + 1}, is not what ttabench wrote: {problem}; delete the file and "
                "run the sweep again."
            ) from None

    def writer(self, device: str = "cpu", threads: int | None = None) -> Writer:
        """A writer with a new shard, for results of this device, see :class:`Writer`. Use one per process."""
        return Writer(self.cells, device, threads)

    def records(self) -> Iterator[Record]:
        """All records, shard by shard. Raises UserError for a damaged record."""
        attestations = Attestations.read(self.root)
        for shard in self._shards():
            yield from read_results.read_shard(shard, attestations=attestations)

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
        attestations = Attestations.read(self.root)
        with paused():
            for shard in self._shards():
                generation = new_records.generation(shard)
                in_shard = {
                    record.cell_id: (generation, record.written, made(record))
                    for record in read_results.read_shard(shard, quick, attestations)
                }
                for key, value in in_shard.items():
                    if key not in last or value[:2] >= last[key][:2]:
                        last[key] = value
        return {key: value for key, (_, _, value) in last.items()}

    def merge(self) -> Path | None:
        """Replace all shards by one with the last record of each cell; its path, None for an empty store.

        Records keep their code, environment and time. Raises UserError if a sweep runs in the folder, for a
        damaged record, or if the folder cannot be written; the old shards then remain.
        """
        with ExitStack() as stack:
            for folder in (self.root, *self.linked_to()):
                claims = stack.enter_context(WorkClaims(folder, "merge"))
                stack.enter_context(claims.alone("plan"))  # a sweep that starts now waits
                others = [lease for lease in claims.leases() if lease.name != claims.name]
                if running := [lease.where for lease in others if claims.alive(lease.name)]:
                    raise UserError(
                        f"{self.root} cannot be merged while a sweep runs there, or another merge "
                        f"({', '.join(running)}); wait until it has ended. If none runs, delete "
                        f"{claims.folder}."
                    )
            return self._merge()

    def linked_to(self) -> list[Path]:
        """Where processes are seen by all who have these shards, where `cells` is a link; else [].

        It is the results folder that has them, or the folder of the shards itself where they are in none.
        """
        shards = Path(os.path.realpath(self.cells))
        home = shards.parent  # its own folder for a link to itself
        if home == Path(os.path.realpath(self.root)) or not shards.is_dir():
            return []
        return [home] if (home / "sweep.json").is_file() else [shards]

    def _merge(self) -> Path | None:
        old, last = self._shards(), self.latest()
        if not last:
            return None
        if len(old) == 1 and old[0].name.startswith("merged-"):
            return old[0]
        generation = 1 + max(map(new_records.generation, old))
        lines: list[bytes] = []
        environment_written: dict[str, Any] = {}
        code_written: dict[str, Mapping[str, str]] = {}
        names_written: set[str] = set()
        for record in sorted(last.values(), key=_merge_order):
            if not lines or record.environment != environment_written:
                environment_written = dict(record.environment)
                number = {} if lines else {"generation": generation}
                lines.append(encode({"kind": "environment", **number, **environment_written}))
            source, code = record.source, record.definitions
            if source and code_written.get(source) != code:  # {} of the first format
                facts = json.loads(code.method or "{}")
                lines += code_lines(source, code, code.branches, names_written, facts)
                code_written[source] = code
            written = {"kind": "result", "written": record.written, "source": source}
            lines.append(encode({**written, **record.result.to_json()}))
        data = b"".join(lines)
        path = self.cells / f"merged-{hashlib.sha256(data).hexdigest()[:12]}.jsonl"
        with writing(self.cells):
            replace_file(path, data)
            for shard in old:
                if shard != path:
                    shard.unlink()
        return path

    def _shards(self) -> list[Path]:
        """Raises UserError for a folder that cannot be read, which `glob` takes to be empty."""
        try:
            found = sorted(path for path in self.cells.iterdir() if path.match("*.jsonl"))
        except FileNotFoundError:
            if self.cells.is_symlink():  # perhaps to a disk that is not there now
                raise UserError(f"{self.cells} is a link that leads nowhere; put its folder there.") from None
            return []
        except OSError as problem:
            raise _unreadable(self.cells, problem) from None
        for path in found:
            check_plain(path)
        return found

    def frame(self) -> pd.DataFrame:
        """One row per cell with the columns of :func:`ttabench.store.table.table`."""
        from ttabench.store.table import table

        return table(map(row, self.latest().values()))


def _replaceable(row: Mapping[str, Any]) -> str:
    """What two rows of plans have in common if the later one replaces the earlier; else the id.

    In a continual run, the corruptions before a cell are part of its id, and rows do not tell them.
    """
    protocol = row.get(PROTOCOL_OF_PLAN)
    if protocol is None or protocol.get("reset") == "continual":
        return str(row["id"])
    of_folder = {key: value for key, value in protocol.items() if key != "pace_ratio"}
    return canonical(
        [*(row[key] for key in PLAN if key not in ("id", "reason")), of_folder, row.get(FIXED_IN_PLAN)]
    )


def _unreadable(path: Path, problem: OSError) -> UserError:
    return UserError(f"{path} cannot be read ({problem.strerror}).")


def _results_folders_near(root: Path) -> Iterator[Path]:
    """The results folders that are in this one, and the one that it is a part of, as ``results/cells``."""
    with suppress(OSError):
        inside = sorted(root.iterdir()) if root.is_dir() else []
        yield from (folder for folder in (*inside, root.parent) if (folder / "sweep.json").is_file())


def _is_free(root: Path) -> bool:
    """Whether this is an empty folder, or one that another sweep is filling at this moment.

    Folders that hold nothing but results folders may stand in it, such as the repository's results/reference.
    """
    return root.is_dir() and all(
        entry.name in ("sweep.json", "cells", RUNNING)
        or (entry.name[0] == "." and entry.name.endswith("-sweep.json.part"))
        or _holds_results_folders(entry)
        for entry in root.iterdir()
    )


def _holds_results_folders(folder: Path) -> bool:
    inner = list(folder.iterdir()) if folder.is_dir() else []
    return bool(inner) and all((each / "sweep.json").is_file() for each in inner)


def _merge_order(record: Record) -> tuple[Any, ...]:
    """Sort key: records of one environment stay together; within it, the order of tables."""
    names = ("dataset", "arch", "label", "seed", "severity", "corruption")
    cell = record.data["cell"]
    return (canonical(dict(record.environment)), *(cell[name] for name in names), record.cell_id)


def load_frame(root: Path | str) -> pd.DataFrame:
    """The cells of a results folder as a table (see :meth:`Store.frame`)."""
    return Store.at(Path(root)).frame()
