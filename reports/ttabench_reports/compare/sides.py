"""One side of a comparison: a results folder, a ``cells.csv``, or a table of cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ttabench.cell.protocol import Protocol
from ttabench.errors import UserError, first_of, one_line
from ttabench.store import Record, Store
from ttabench.store.columns import DETAILS
from ttabench_reports.cells.frames import CORRECT, PROTOCOL, checked
from ttabench_reports.cells.load import cells_of, read_csv
from ttabench_reports.cells.stored_settings import parsed

Card = dict[str, Any]  # nested; the leaves are JSON values

STATUS = "status"  # in a card: whether there is a number, or why not
INSTALLED = "installed"  # in a card: its code is installed, or attested to give the same numbers
# What a record holds besides its card: the outcome, and what names the record itself.
OUTCOME = frozenset(
    ("kind", "id", "written", "generation", "correct", "accuracy", "seconds", "status", "reason", "sum")
)
# The details that say how a cell was measured. Others are what came out of it, such as losses of a method.
HOW = frozenset((*DETAILS, "host_settings")) - {"alarm"}
# Of a cell: what matched ones have in common, and what their data and code say too.
MATCHED = frozenset(("label", "arch", "dataset", "corruption", "severity", "seed", "history", "image_files"))
# Columns of a CSV file, by the keys that a record has for them.
_CSV_CARD = {
    **{name: name for name in ("config", "checkpoint", "fingerprint", "foreign")},
    **{name: name for name in ("device", "processor", "threads", "versions")}, "source": "code",
    **{name: name for name in DETAILS if name in HOW},
}  # fmt: skip


@dataclass(frozen=True)
class Side:
    """cells has the columns of :func:`ttabench_reports.cells.frames.checked`; the rest is by its `cell_id`.

    bitmaps  per cell which images were right (packed); empty for a CSV file.
    stale    (method, what changed in the code since) → how many of its cells.
    whole    whether the cards are complete: a key that is absent was not recorded.
    """

    name: str
    cells: pd.DataFrame
    card: Callable[[str], Card]  # what a number was measured with; a CSV file holds only a part of it
    bitmaps: Mapping[str, bytes] = field(default_factory=dict)
    stale: Mapping[tuple[str, str], int] = field(default_factory=dict)
    whole: bool = False


def side(results: pd.DataFrame | Path | str | Side, word: str = "results") -> Side:
    """Open one side, if it is not yet; `word` names a table that has no path. Raises UserError."""
    if isinstance(results, Side):
        return results
    if isinstance(results, pd.DataFrame):
        return _of_table(checked(results), f"the {word}")
    path = Path(results)
    if path.is_dir():
        return _of_folder(path)
    return _of_table(read_csv(path), one_line(str(path)))


def _of_table(cells: pd.DataFrame, name: str) -> Side:
    """Each row gets a number for its id: a table may lack ids, or hold one twice."""
    cells = cells.assign(cell_id=[str(number) for number in range(len(cells))])
    columns = {key: cells[column].tolist() for key, column in _CSV_CARD.items() if column in cells}
    protocols = {name: cells[name].tolist() for name in PROTOCOL}
    status = list(map(_status, cells["status"], cells["reason"]))

    def card(cell_id: str) -> Card:
        row = int(cell_id)
        parts: Card = {key: str(values[row]) for key, values in columns.items() if values[row]}
        for key, parse in (("config", _parsed), ("versions", _versions)):
            if key in parts:
                parts[key] = parse(parts[key])
        parts[STATUS] = status[row]
        return parts | {"protocol": {name: values[row] for name, values in protocols.items()}}

    stale = cells[cells["stale"]]
    return Side(
        name, cells, card, stale=dict(Counter(zip(stale["base"], stale["stale_because"], strict=True)))
    )


def _parsed(text: str) -> Any:
    settings = parsed(text)
    return text if settings is None else settings


def _versions(text: str) -> Any:
    """``torch 2.6.0 numpy 2.1.0`` by package."""
    words = text.split()
    return text if len(words) % 2 else dict(zip(words[::2], words[1::2], strict=True))


def _of_folder(path: Path) -> Side:
    store = Store.at(path)
    latest = store.latest()
    if not latest:
        raise UserError(f"{path} holds no results yet; run the sweep first.")
    defaults = asdict(Protocol())

    def card(cell_id: str) -> Card:
        return _card(latest[cell_id], defaults)

    cells = checked(cells_of(latest.values()), str(path))
    tested = cells[(cells["status"] == "ok") & (cells[CORRECT].map(len) > 0)]
    bitmaps = dict(zip(tested["cell_id"], tested[CORRECT], strict=True))
    return Side(one_line(str(path)), cells, card, bitmaps, _stale(latest.values()), whole=True)


def _stale(records: Iterable[Record]) -> dict[tuple[str, str], int]:
    """(method, what changed in the code since) → how many cells."""
    counts: Counter[tuple[str, str]] = Counter()
    for record in records:
        if changed := record.changes:
            counts[record.data["cell"]["method"], first_of(changed, 3)] += 1
    return dict(counts)


def _card(stored: Record, defaults: dict[str, Any]) -> Card:
    """The record without its outcome, with its environment, and with the code that it went through.

    The parts of `cell` and `details` stand at the top: ``config``, ``checkpoint``, ``adapted`` …
    """
    record = {key: value for key, value in stored.data.items() if key not in OUTCOME}
    if stored.data["status"] != "ok":
        record.pop("n_images", None)  # 0 stands there
    details = record.pop("details", {})
    record |= {key: value for key, value in record.pop("cell").items() if key not in MATCHED}
    record |= {key: value for key, value in details.items() if key in HOW}
    record["protocol"] = {**defaults, **record["protocol"]}
    return {
        **stored.environment,
        **({"code": dict(stored.definitions)} if stored.definitions else {}),
        **record,
        **({} if stored.stale else {INSTALLED: True}),
        STATUS: _status(stored.data["status"], stored.data.get("reason", "")),
    }


def _status(status: str, reason: str) -> str:
    """``ok``, or ``failed: out of memory``."""
    return f"{status}: {one_line(reason)}" if reason else status
