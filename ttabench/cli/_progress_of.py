"""How far a results folder is: the state of each cell, and per method and architecture. Without torch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from statistics import median
from sys import intern
from typing import Any

from ttabench.cell import shift_name
from ttabench.cell.told_apart import told_apart
from ttabench.errors import UserError
from ttabench.run.failed_at import reason_and_place
from ttabench.store import Record, Store
from ttabench.store.contents import Contents, RecordFacts, facts
from ttabench.store.new_records import NewRecords, sizes
from ttabench.store.record import PROTOCOL
from ttabench.store.results_folder import FIXED_IN_PLAN, PLAN_FILE, PROTOCOL_OF_PLAN
from ttabench.system.checked_lines import Damaged, decode
from ttabench.system.work_claims import FolderProcesses, Running, running

STATES = ("done", "running", "failed", "stale", "missing", "n/a")
OPEN = ("running", "failed", "stale", "missing")
_NAMES_OF = itemgetter("label", "arch", "dataset", "method", "corruption")
RowKey = tuple[str, str, str]
"""Method, architecture, dataset."""
Protocol = tuple[tuple[str, Any], ...]
"""Its fields that differ from the defaults, and the baseline of a ccc stream."""


@dataclass(slots=True)
class State:
    """A cell: what it is, one of :data:`STATES`, and the reason of a failure or of what makes it stale.

    weights  ``weights 123456789abc``; "" of planned cells, unless the user gave them.
    """

    place: RowKey
    base: str
    corruption: str
    severity: int
    seed: int
    state: str
    seconds: float = 0.0
    reason: str = ""
    attested: bool = False
    facts: RecordFacts | None = None
    protocol: Protocol = ()
    weights: str = ""

    @property
    def name(self) -> str:
        """As `str` of a cell."""
        shift = shift_name(self.corruption, self.severity)
        return f"{' · '.join(self.place)} · {shift} · seed {self.seed}"


@dataclass
class Row:
    """The cells of one place: how many are in each state, and the seconds of work that are left.

    seconds   from the median of the cells that are done: of this place, else of this method, else of all.
    known     whether there is one of this place or method.
    taken     seconds of each cell that is done.
    """

    place: RowKey
    counts: Counter[str] = field(default_factory=Counter)
    taken: list[float] = field(default_factory=list)
    seconds: float = 0.0
    known: bool = True

    @property
    def complete(self) -> bool:
        return not any(self.counts[state] for state in OPEN)


class Progress:
    """A results folder at this moment; :meth:`refresh` reads only what was added since."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._watch = FolderProcesses(store.root)
        self._load()

    def _load(self) -> None:
        self._new_records = NewRecords(self.store.root, sizes(self.store.root))
        self._planned = self._plan_size()
        self._protocols: dict[Protocol, Protocol] = {}
        self._cells = self.store.latest_as(self._of_record, quick=True)
        plan = self.store.plan()
        self._in_plan = {row["id"] for row in plan}
        shared: dict[Protocol, Protocol] = {}
        for row in plan:
            if row["id"] not in self._cells:
                state = self._cells[row["id"]] = of_plan(row)
                state.protocol = shared.setdefault(state.protocol, state.protocol)
        self._at_work()

    def refresh(self) -> None:
        """Take in what was stored, planned and begun meanwhile. Raises UserError for a damaged record."""
        if self._plan_size() != self._planned:
            self._load()
            return
        for key, line in self._new_records.look():
            try:
                data = decode(line)
                self._cells[key] = self._noted(of_data(data))
            except Damaged as problem:
                raise UserError(f"{self.store.cells}: a new record is damaged: {problem}.") from None
        self._at_work()

    def _of_record(self, record: Record) -> State:
        state = self._noted(of_record(record))
        state.facts = facts(record)
        return state

    def _noted(self, state: State) -> State:
        """The state with the protocol that it shares with others, so that memory has it once."""
        state.protocol = self._protocols.setdefault(state.protocol, state.protocol)
        return state

    @property
    def contents(self) -> Contents:
        """What was stored when the folder was read."""
        return Contents.of(cell.facts for cell in self.cells() if cell.facts)

    def in_force(self, key: str, planned: Any) -> list[Any]:
        """The values of a field of the protocol: those of the stored cells, and `planned` for missing ones.

        They can be several: rules of a sweep file, --extend, and a stream, which is reset otherwise.
        """
        stored = {dict(protocol).get(key, PROTOCOL[key]) for protocol in self._protocols}
        if planned not in stored and (not stored or any(cell.state == "missing" for cell in self.cells())):
            stored.add(planned)
        return sorted(stored, key=lambda value: (value != planned, str(value)))

    def _at_work(self) -> None:
        self.running: list[Running] = running(self.store.root)
        self._busy = {one.cell or one.key for one in self.running}

    def _plan_size(self) -> tuple[int, int]:
        try:
            stat = (self.store.root / PLAN_FILE).stat()
        except FileNotFoundError:
            return 0, 0
        return stat.st_size, stat.st_mtime_ns

    def is_open(self) -> bool:
        """Whether a cell runs or is missing, or a sweep that is at work can still compute one again."""
        states = {cell.state for cell in self.cells()}
        if self.running or "missing" in states:
            return True
        return not states.isdisjoint(OPEN) and any(
            self._watch.alive(one.name) for one in self._watch.leases()
        )

    def cells(self) -> Iterator[State]:
        """Every stored or planned cell."""
        return iter(self._cells.values())

    def left_behind(self) -> Counter[str]:
        """Of each method, how many stale cells are in no sweep of the folder: none measures them again.

        Empty where the folder has no plan.
        """
        stale = {key: cell for key, cell in self._cells.items() if self._in_plan and cell.state == "stale"}
        return Counter(cell.place[0] for key, cell in stale.items() if key not in self._in_plan)

    def names(self) -> dict[str, str]:
        """What each cell is called, by its id; no two are called alike."""
        names = zip(self._cells, apart(self._cells.values()), strict=True)
        return {key: f"{self._cells[key].name}{what}" for key, what in names}

    def rows(self) -> list[Row]:
        """One row for each method, architecture and dataset, in the order of the plan."""
        rows: dict[RowKey, Row] = {}
        for key, cell in self._cells.items():
            row = rows.get(cell.place)
            if row is None:
                row = rows[cell.place] = Row(cell.place)
            row.counts["running" if key in self._busy and cell.state != "done" else cell.state] += 1
            if cell.state == "done":
                row.taken.append(cell.seconds)
        times = Times(rows.values())
        for row in rows.values():
            if count := sum(row.counts[state] for state in OPEN):
                each, row.known = times.of_cell(row.place)
                row.seconds = count * each
        return list(rows.values())


class Times:
    """Seconds of the cells that are done, by place and by method.

    Medians: a cell that ran while the machine was suspended may have hours.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self._taken: defaultdict[Any, list[float]] = defaultdict(list)
        for row in rows:
            for kind in (row.place, row.place[0], None):
                self._taken[kind] += row.taken

    def of_cell(self, place: RowKey) -> tuple[float, bool]:
        """Seconds of a cell at a place, and whether cells of this place or method are done."""
        for kind in (place, place[0], None):
            if taken := self._taken[kind]:
                return median(taken), kind is not None
        return 0.0, False


def apart(cells: Iterable[State]) -> list[str]:
    """What tells each of these cells from the others of its name; "" where it is the only one."""
    by_key = {str(at): cell for at, cell in enumerate(cells)}
    names = told_apart((key, cell.name, dict(cell.protocol)) for key, cell in by_key.items())
    names = told_apart((key, names[key], {"weights": cell.weights}) for key, cell in by_key.items())
    return [names[key].removeprefix(cell.name) for key, cell in by_key.items()]


def seconds_left(rows: Iterable[Row], workers: int) -> tuple[float, bool] | None:
    """Seconds by the clock for this number of workers, and whether they are known of every row.

    None where nothing is left, or nothing is known.
    """
    left = [row for row in rows if not row.complete]
    total = sum(row.seconds for row in left)
    if not total:
        return None
    cells = sum(row.counts[state] for row in left for state in OPEN)
    return total / max(1, min(workers, cells)), all(row.known for row in left)


def of_record(record: Record) -> State:
    """The state of a stored cell."""
    state = of_data(record.data)
    if changes := record.code_changes:
        state.attested = record.attested
        if state.state == "done" and not state.attested:
            state.state, state.reason = "stale", "; ".join(changes)
    return state


def of_data(data: Any) -> State:
    """The state of a cell that was stored just now.

    A name that many cells share is one object, so that the memory of a record is free for the next one.
    """
    cell = data["cell"]
    label, arch, dataset, method, corruption = map(intern, _NAMES_OF(cell))
    state = {"ok": "done"}.get(data["status"], data["status"])
    reason = reason_and_place(data.get("reason", ""), data.get("details", {}))
    return State(
        (label, arch, dataset), method, corruption, cell["severity"], cell["seed"], state,
        float(data.get("seconds", 0.0)), reason,
        protocol=(*cell["protocol"].items(), ("baseline", cell.get("baseline", ""))),
        weights=intern(f"weights {cell['checkpoint'][:12]}"),
    )  # fmt: skip


def of_plan(row: Any) -> State:
    """The state of a planned cell that is not stored."""
    state = "n/a" if row["reason"] else "missing"
    given = (text.split()[-1] for text in row.get(FIXED_IN_PLAN, ()) if text.startswith("checkpoint "))
    return State(
        (row["method"], row["arch"], row["dataset"]), row["base"], row["corruption"], row["severity"],
        row["seed"], state, reason=row["reason"], protocol=tuple(row.get(PROTOCOL_OF_PLAN, {}).items()),
        weights=next((intern(f"weights {sha256[:12]}") for sha256 in given), ""),
    )  # fmt: skip
