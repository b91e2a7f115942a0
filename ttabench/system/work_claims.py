"""Which process computes which cell: claims in a results folder that several sweeps share. No torch.

The folder ``running/`` has two kinds of files. ``<name>.json`` is the lease of a process: its host, its
process id, and how far its cell is, written again every few seconds. ``<key>@<name>`` is its claim on a cell,
an empty file. A process makes its claim first and then lists the folder. If it finds a claim of another
living process, it takes its own away. So of two processes at least one sees the other, and no lock is needed.

A process that was killed leaves its files behind. On its own machine it is dead if its process id is gone; on
another machine, or where the system hides it, if its lease has not changed for :data:`SILENT` seconds, which
the observer measures with its own clock. Times of day are compared nowhere. Whoever finds a dead process
removes its files; in place of its claim on a cell, ``<key>!<name>`` is left and says that the cell lost a
process.

Assumed of a network folder: a file that was made is in every listing that starts later, and who opens a file
sees what was synchronised before. This holds for NFS from version 3, Lustre, GPFS and CephFS. Where it does
not hold, or where a process is silent for too long and
still lives, a cell may be computed twice. Both results are then stored and the last one counts.
"""

from __future__ import annotations

import errno
import json
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

from ttabench.errors import UserError, plain
from ttabench.system.files import check_plain

FOLDER = "running"
BEAT = 3.0  # seconds between two versions of a lease
SILENT = 90.0  # seconds without a new version after which a process of another machine is dead
ID = 64  # characters of the id of a cell; other keys are those of `WorkClaims.alone`
COUNTS = {"total", "seen", "scored", "right"}
LONGEST = 1 << 20  # bytes of a lease
TRIES = 8  # how often two processes step back from the same cell, or a file is read that others replace


@dataclass(frozen=True)
class Lease:
    """A process that works in a results folder, and how far it is.

    name      unique; never used again.
    since     when it started, in unix seconds of its own clock; for display.
    progress  how far its work is: ``cell``, ``key``, ``doing``, ``seen``, ``total``, ``right``, ``scored``.
    """

    name: str
    host: str
    pid: int
    machine: str
    started: int
    since: float
    progress: Mapping[str, Any]

    @property
    def here(self) -> bool:
        """Whether its process id means the same process here."""
        return bool(self.machine) and self.machine == machine()

    @property
    def where(self) -> str:
        """``host:pid``"""
        return f"{self.host}:{self.pid}"


@dataclass(frozen=True)
class Claim:
    """A claim on a cell; `since` in unix seconds of the file system's clock."""

    key: str
    lease: Lease
    since: float


class FolderProcesses:
    """The processes of a results folder as this process sees them. Reads only.

    Raises UserError where their folder is a link: it may lead to other files, and those of dead processes are
    deleted.
    """

    def __init__(self, root: Path) -> None:
        self.folder = root / FOLDER
        check_plain(self.folder, "folder")
        self.name = ""
        self._seen: dict[str, tuple[bytes, float]] = {}  # name → lease, and when this version came up

    def leases(self) -> list[Lease]:
        """The leases of all processes, living or dead."""
        names = [entry.removesuffix(".json") for entry in self._entries() if entry.endswith(".json")]
        return [entry[0] for name in sorted(names) if (entry := self._read(name))]

    def claims(self) -> list[Claim]:
        """All claims, of living and dead processes; without those whose lease is gone."""
        leases = {lease.name: lease for lease in self.leases()}
        claims = []
        for entry in sorted(self._entries()):
            key, mark, name = entry.partition("@")
            if mark and name in leases:
                with suppress(FileNotFoundError):  # it ended just now
                    claims.append(Claim(key, leases[name], (self.folder / entry).stat().st_mtime))
        return claims

    def alive(self, name: str) -> bool:
        """Whether a process lives, as far as can be seen from here."""
        entry = self._read(name)
        if entry is None:
            return False
        lease, text = entry
        if lease.here:
            started = process_start(lease.pid)
            if started or not is_hidden(lease.pid):
                return started == lease.started
        now = time.monotonic()
        if self._seen.get(name, (b"", 0.0))[0] != text:
            self._seen[name] = text, now
        return now - self._seen[name][1] < SILENT

    def others(self, role: str) -> list[Lease]:
        """Other living processes with this role."""
        return [
            lease for lease in self.leases()
            if lease.progress.get("role") == role and lease.name != self.name and self.alive(lease.name)
        ]  # fmt: skip

    def _claimants(self, key: str) -> list[str]:
        start = f"{key}@"
        return [entry.removeprefix(start) for entry in self._entries() if entry.startswith(start)]

    def _entries(self) -> list[str]:
        try:
            return os.listdir(self.folder)
        except FileNotFoundError:
            return []

    def _read(self, name: str) -> tuple[Lease, bytes] | None:
        """The lease of a process and its text; None if there is none, or it holds no lease.

        Raises UserError if the file cannot be read: its process may live.
        """
        try:
            text = self._text(name)
            data = plain(json.loads(text))
            return Lease(
                name, str(data["host"]), int(data["pid"]), str(data["machine"]), int(data["started"]),
                float(data["since"]), _progress(data["progress"]),
            ), text  # fmt: skip
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None  # a power cut may leave an empty file

    def _text(self, name: str) -> bytes:
        tries = TRIES
        while True:
            try:
                file = self.folder / f"{name}.json"
                check_plain(file)
                if file.lstat().st_size > LONGEST:
                    raise ValueError("no lease is as long")
                return file.read_bytes()
            except OSError as problem:
                tries -= 1
                if problem.errno != errno.ESTALE:  # NFS: the file was replaced while it was read
                    raise
                if not tries:
                    raise self._cannot_be("read", problem) from None
            time.sleep(0.05)

    def _cannot_be(self, done: str, problem: OSError) -> UserError:
        return UserError(
            f"{self.folder} cannot be {done} ({problem.strerror}); what was stored is kept; "
            "run the same command again once it can."
        )


class WorkClaims(FolderProcesses):
    """The claims of this process. Close it, or use it in a ``with`` block.

    role   what the process is: ``sweep``, ``worker`` or ``merge``.
    Raises UserError where the folder cannot be written.
    """

    def __init__(self, root: Path, role: str = "worker") -> None:
        super().__init__(root)
        self.name = uuid.uuid4().hex[:16]
        self._about = {
            "host": socket.gethostname(), "pid": os.getpid(), "machine": machine(),
            "started": process_start(os.getpid()), "since": time.time(),
        }  # fmt: skip
        self._progress: dict[str, Any] = {"role": role}
        self._beats = 0
        self._writing = threading.Lock()
        self._closed = threading.Event()
        try:
            self.folder.mkdir(exist_ok=True)
            self._beat()
        except OSError as problem:
            raise self._cannot_be("written", problem) from None
        threading.Thread(target=self._keep_beating, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.sweep_up(lost=False)  # after workers that this process has killed
        self.close()

    def take(self, key: str) -> bool:
        """Claim a cell. False if another living process has it."""
        try:
            for _ in range(TRIES):
                if self._others(key):
                    return False
                self._file(key).touch()
                if not self._others(key):
                    return True
                self.release(key)  # both processes claimed it at the same moment
                time.sleep(random.uniform(0, 0.05))
        except OSError as problem:
            raise self._cannot_be("written", problem) from None
        return False

    def is_free(self, key: str) -> bool:
        """Whether no other living process has a claim on a cell; claims of dead ones are removed."""
        return not self._others(key)

    def where(self, key: str) -> list[str]:
        """Where the processes with a claim on a cell are, as ``host:pid``."""
        return [entry[0].where for name in self._claimants(key) if (entry := self._read(name))]

    @contextmanager
    def alone(self, key: str, waiting: Callable[[list[str]], None] | None = None) -> Iterator[None]:
        """A block that processes run one after the other.

        waiting   called once if another process is in its block, with where it is, as ``host:pid``.
        """
        while not self.take(key):
            if waiting is not None and (where := self.where(key)):
                waiting(where)
                waiting = None
            time.sleep(0.2)
        try:
            yield
        finally:
            self.release(key)

    def release(self, key: str) -> None:
        """Give up a claim; there need not be one. Raises UserError where the folder cannot be written."""
        try:
            self._file(key).unlink(missing_ok=True)
        except OSError as problem:
            raise self._cannot_be("written", problem) from None

    def losses(self, key: str) -> int:
        """How many processes died with a claim on a cell, since `forget_losses`."""
        return sum(entry.startswith(f"{key}!") for entry in self._entries())

    def forget_losses(self) -> None:
        """A new sweep begins: what died before may have been killed on purpose."""
        for entry in self._entries():
            if "!" in entry:
                (self.folder / entry).unlink(missing_ok=True)

    def report(self, **progress: Any) -> None:
        """What `status` shows of this process, from the next beat on. JSON values."""
        self._progress = {"role": self._progress["role"], **progress}

    def sweep_up(self, *, lost: bool = True) -> None:
        """Remove the files of dead processes; `lost` counts their deaths, see `losses`."""
        entries = [entry for entry in self._entries() if not entry.startswith(".") and "!" not in entry]
        for name in {entry.rpartition("@")[2].removesuffix(".json") for entry in entries}:
            if not self.alive(name):
                self._bury(name, lost=lost)

    def close(self) -> None:
        """End the lease and all claims."""
        self._closed.set()
        with self._writing:
            self._bury(self.name, lost=False)

    def _others(self, key: str) -> list[str]:
        """The other living processes that claim `key`; what dead ones left behind is removed."""
        living = []
        for name in self._claimants(key):
            if name == self.name:
                continue
            if self.alive(name):
                living.append(name)
            else:
                self._bury(name, lost=True)
        return living

    def _bury(self, name: str, *, lost: bool) -> None:
        """Remove the lease of a process, then its claims; `lost` leaves a mark for each cell."""
        with suppress(OSError):  # another process does the same
            for entry in (f"{name}.json", f".{name}", *self._entries()):
                if lost and entry.endswith(f"@{name}") and entry.index("@") == ID:
                    (self.folder / entry).rename(self.folder / entry.replace("@", "!"))
                elif entry.endswith((f"@{name}", f".{name}", f"{name}.json")):
                    (self.folder / entry).unlink(missing_ok=True)

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}@{self.name}"

    def _keep_beating(self) -> None:
        while not self._closed.wait(BEAT):
            with suppress(OSError):  # a full disk stops the sweep when it stores a result
                self._beat()

    def _beat(self) -> None:
        with self._writing:
            if self._closed.is_set():
                return
            self._beats += 1
            text = json.dumps({**self._about, "beats": self._beats, "progress": self._progress})
            part = self.folder / f".{self.name}"
            part.write_text(text)
            part.replace(self.folder / f"{self.name}.json")


def _progress(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a progress, with values of other types than ttabench writes left out.

    Raises TypeError for what is no table.
    """
    known = {name: value for name, value in dict(given).items() if _is_kept(name, value)}
    return {"right": 0, **known} if "scored" in known else known


def _is_kept(name: str, value: Any) -> bool:
    if name not in COUNTS:
        return isinstance(value, str)
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


@cache
def machine() -> str:
    """What shares the process ids of this process: host, boot and container. "" where that is not known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()}/{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def process_start(pid: int) -> int:
    """When a process started, in clock ticks since the boot; 0 if it has ended or that is not known."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if state in "ZX" else int(rest[18])


def is_hidden(pid: int) -> bool:
    """Whether a process without a known start runs here, as one of another user with hidepid."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        pass
    return False


@dataclass(frozen=True)
class Running:
    """A cell that a process computes at this moment.

    cell      its id; "" until the process has reported it. key: that of the first cell of a continual run,
              or its own.
    where     ``host:pid``.
    since     in unix seconds.
    progress  see :class:`Lease`.
    silent    seconds since the last sign of a process on another machine, by the clocks of both; 0 here.
    """

    key: str
    cell: str
    where: str
    since: float
    progress: Mapping[str, Any]
    silent: float


def running(root: Path) -> list[Running]:
    """The cells that are computed in a results folder. A process on another machine is taken to live."""
    watch = FolderProcesses(root)
    cells = []
    for claim in watch.claims():
        lease = claim.lease
        if len(claim.key) != ID or (lease.here and not watch.alive(lease.name)):
            continue
        silent = 0.0
        if not lease.here:
            with suppress(FileNotFoundError):
                silent = max(0.0, time.time() - (watch.folder / f"{lease.name}.json").stat().st_mtime)
        cell = str(lease.progress.get("key", ""))
        cells.append(Running(claim.key, cell, lease.where, claim.since, lease.progress, silent))
    return cells
