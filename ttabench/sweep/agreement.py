"""A stored result beside a new one of the same cell: whether the number is reproduced.

On the same kind of machine (processor, device, threads, versions of the libraries) results must be bitwise
equal. On another kind, sums have another order. Rounding then changes the predictions of a few images, and
learning passes these changes on from batch to batch. There, at most a share `BOUND` of the images may differ.
The same holds on a GPU, where some sums have another order in each run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ttabench.cell import Cell, Result
from ttabench.provenance import libraries
from ttabench.provenance.staleness import stale_reasons
from ttabench.store import Record
from ttabench.store.stored_environment import StoredEnvironment
from ttabench.store.writer import environment
from ttabench.system.environment import device_kind

BOUND = 0.01
"""Share of a cell's images whose correctness may differ on another kind of machine, or on a GPU.

Six times the largest share of 48 cells made with AVX-512 and again with AVX2, see docs/verify.md.
"""


Verdict = Literal["same", "within", "differs", "failed", "other weights", "not here", "stopped"]


@dataclass(frozen=True)
class Check:
    """A stored cell, and its new result.

    verdict    same: bitwise equal. within: on another kind of machine or a GPU, and within `BOUND`. differs,
               failed: the result is not reproduced. other weights: not comparable, because the recipe trains
               other weights on this kind of machine. not here: not run, because data, weights or code are
               missing.
               stopped: not run to its end, because it took longer than it may.
    stored, now   accuracies in percent; `now` is None without a new result.
    differing  images whose correctness differs; None if they cannot be compared.
    exact      whether the result must be bitwise equal.
    notes      what has changed since it was stored.
    """

    cell: Cell
    verdict: Verdict
    stored: float
    n_images: int
    now: float | None = None
    differing: int | None = None
    exact: bool = False
    notes: tuple[str, ...] = ()

    @property
    def measured(self) -> bool:
        """Whether the cell has a new result to compare with."""
        return self.verdict in ("same", "within", "differs", "failed")

    def to_json(self) -> dict[str, Any]:
        return {
            "cell": str(self.cell), "mode": self.cell.protocol.mode, "id": self.cell.cell_id,
            "verdict": self.verdict, "stored": self.stored, "now": self.now, "n_images": self.n_images,
            "differing": self.differing, "exact": self.exact, "notes": list(self.notes),
        }  # fmt: skip


def compare(record: Record, result: Result, now: Mapping[str, Any]) -> Check:
    """A stored result beside the one made `now`, an environment as records have it."""
    stored = record.result
    notes, other_kind = [*_code(record)], differences(record.environment, now)
    notes += other_kind
    exact = _exact(other_kind, now)
    if result.status != "ok":
        return of_cell(stored, "failed", exact=exact, notes=(f"it fails now: {result.reason}", *notes))
    if result.n_images != stored.n_images:
        note = f"{stored.n_images} images then, {result.n_images} now"
        return of_cell(stored, "differs", now=result.accuracy, exact=exact, notes=(note, *notes))
    right, now_right = (int.from_bytes(each.correct, "big") for each in (stored, result))
    differing = ((right ^ now_right) >> (-stored.n_images % 8)).bit_count()
    verdict: Verdict = "differs"
    if not differing and result.accuracy == stored.accuracy:
        verdict = "same"
    elif differing and not exact and differing <= allowed(stored.n_images):
        verdict = "within"
    elif not notes:
        notes.append(
            "nothing that is recorded has changed: the record was altered, or the number differs in each run"
        )
    return of_cell(stored, verdict, now=result.accuracy, differing=differing, exact=exact, notes=tuple(notes))


def allowed(n_images: int) -> int:
    """Of how many images the correctness may differ on another kind of machine; at least one."""
    return max(1, int(BOUND * n_images))


def here(device: str, cell: Cell) -> StoredEnvironment:
    """The environment of a worker that runs a cell on this machine: executors give each one thread."""
    return StoredEnvironment(environment(device, libraries(cell.method, cell.arch)), threads=1)


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """How two environments differ, e.g. ``torch 2.5.0 then, 2.6.0 now``; [] for the same kind of machine.

    The version of ttabench and the number of a GPU are left out: the code itself is compared.
    """
    texts = []
    for name in ("device", "threads", "machine", "processor"):
        old, new = then.get(name, "unknown"), now.get(name, "unknown")
        if name == "device":  # which GPU it is does not matter, only what GPU
            old, new = device_kind(str(old)), device_kind(str(new))
        if old != new:
            texts.append(f"{name} {old} then, {new} now")
    old, new = dict(then.get("versions", {})), dict(now.get("versions", {}))
    return texts + [
        f"{name} {old.get(name, 'unknown')} then, {new.get(name, 'unknown')} now"
        for name in sorted({*old, *new} - {"ttabench"})
        if old.get(name) != new.get(name)
    ]


def other_weights(record: Record, other: str, device: str) -> Check:
    """A cell whose weights the recipe does not give here: a failure on the same kind of machine only."""
    stored = record.result
    now = here(device, stored.cell)
    other_kind = differences(record.environment, now)
    exact = _exact(other_kind, now)
    was = stored.cell.checkpoint[:12]
    note = (
        f"the recipe trains other weights here: {other[:12]} instead of {was}, so no number can be compared"
    )
    verdict: Verdict = "differs" if exact else "other weights"
    return of_cell(stored, verdict, exact=exact, notes=(note, *_code(record), *other_kind))


def of_cell(stored: Result, verdict: Verdict, **found: Any) -> Check:
    """`found`: the further fields of a :class:`Check`."""
    return Check(stored.cell, verdict, float(stored.accuracy or 0.0), stored.n_images, **found)


def _code(record: Record) -> list[str]:
    return stale_reasons(record.code_changes, "made with other code: {}")


def _exact(other_kind: Sequence[str], now: Mapping[str, Any]) -> bool:
    """Whether results must be bitwise equal: on the same kind of machine, and not on a GPU."""
    return not other_kind and device_kind(str(now.get("device", ""))) != "cuda"
