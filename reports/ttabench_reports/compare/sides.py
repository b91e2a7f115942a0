"""One side of a comparison: a results folder, a ``cells.csv``, or a table of cells."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ttabench.cell import canonical
from ttabench.collector import paused
from ttabench.errors import UserError
from ttabench.protocol import Protocol
from ttabench.records import Damaged, decode, is_first_format
from ttabench.store import DETAILS, Store
from ttabench_reports.frames import PROTOCOL, checked
from ttabench_reports.load import read_csv

Card = dict[str, Any]  # nested; the leaves are JSON values

# What a record holds besides its card: the outcome, and what names the record itself.
OUTCOME = frozenset(
    ("kind", "id", "written", "generation", "correct", "accuracy", "seconds", "status", "reason", "sum")
)
OUTCOME_DETAILS = frozenset(
    ("alarm", "warning", "source_warning", "calibration", "windows", "unlabelled", "cost")
)
MATCHED = frozenset(("label", "arch", "dataset", "corruption", "severity", "seed", "history"))
_CELL = ("arch", "checkpoint", "dataset", "fingerprint", "corruption", "severity", "seed")
_RESULT = ("n_images", "clean_accuracy", "accuracy", "seconds")
_CSV_CARD = ("config", "checkpoint", "fingerprint")


@dataclass(frozen=True)
class Side:
    """cells has the columns of :func:`ttabench_reports.frames.checked`; the rest is by its `cell_id`.

    bitmaps  per cell which images were right (base64 of ``numpy.packbits``); empty for a CSV file.
    whole    whether the cards are complete: a key that is absent was not recorded.
    """

    name: str
    cells: pd.DataFrame
    card: Callable[[str], Card]  # what a number was measured with; a CSV file holds only a part of it
    bitmaps: Mapping[str, str] = field(default_factory=dict)
    whole: bool = False


def side(results: pd.DataFrame | Path | str, word: str = "results") -> Side:
    """Open one side; `word` names a table that has no path. Raises UserError."""
    if isinstance(results, pd.DataFrame):
        return _of_table(checked(results), f"the {word}")
    path = Path(results)
    if path.is_dir():
        return _of_folder(path)
    return _of_table(read_csv(path), str(path))


def load(results: pd.DataFrame | Path | str) -> pd.DataFrame:
    """The cells of a results folder or a ``cells.csv``. Raises UserError."""
    return side(results).cells


def _of_table(cells: pd.DataFrame, name: str) -> Side:
    """Each row gets a number for its id: a table may lack ids, or hold one twice."""
    cells = cells.assign(cell_id=[str(number) for number in range(len(cells))])
    shown = [column for column in (*_CSV_CARD, *DETAILS) if column in cells and column != "alarm"]
    columns = {column: cells[column].tolist() for column in (*shown, *PROTOCOL)}

    def card(cell_id: str) -> Card:
        row = {column: values[int(cell_id)] for column, values in columns.items()}
        parts: Card = {column: str(row[column]) for column in shown if str(row[column])}
        if "config" in parts:
            parts["config"] = _parsed(parts["config"])
        return parts | {"protocol": {column: row[column] for column in PROTOCOL}}

    return Side(name, cells, card)


def _parsed(text: str) -> Any:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError):
        return text


def _of_folder(path: Path) -> Side:
    """All in one pass over the shards: a gate is to be quick, so no object is made per record."""
    store = Store.at(path)
    latest: dict[str, _Stored] = {}
    with paused():
        for stored in _stored(store):
            known = latest.get(stored.data["id"])
            if known is None or stored.when >= known.when:
                latest[stored.data["id"]] = stored
    if not latest:
        raise UserError(f"{path} has no cells; run 'ttabench sweep' first.")
    defaults = asdict(Protocol())
    rows = [_row(stored.data, defaults) for stored in latest.values()]
    bitmaps = {
        cell_id: stored.data["correct"]
        for cell_id, stored in latest.items()
        if stored.data.get("correct")
        and stored.data["status"] == "ok"
        and not stored.data["cell"]["protocol"].get("stream")  # no sample: the images come again and again
    }

    def card(cell_id: str) -> Card:
        return _card(latest[cell_id], defaults)

    return Side(str(path), checked(pd.DataFrame(rows), str(path)), card, bitmaps, whole=True)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A stored result, and the environment and the code that its shard names before it."""

    data: dict[str, Any]
    environment: Card
    modules: dict[str, str]
    when: tuple[int, float]  # as the store orders records: the writer's generation, then the clock


def _stored(store: Store) -> Iterator[_Stored]:
    """Every record. Raises UserError at one that was damaged."""
    for shard in sorted(store.cells.glob("*.jsonl")):
        environment: Card = {}
        generation, code = 0, dict[str, dict[str, str]]()
        *lines, _torn = shard.read_bytes().split(b"\n")
        old = bool(lines) and is_first_format(lines[0])
        for number, line in enumerate(lines, start=1):
            try:
                data = decode(line, first_format=old)
                if data["kind"] == "environment":
                    generation = int(data.get("generation", 0))
                    environment = {key: value for key, value in data.items() if key not in OUTCOME}
                elif data["kind"] == "code":
                    code[data["source"]] = dict(data["modules"])
                elif data["kind"] == "result":
                    data["id"], data["status"], data["cell"]["protocol"]["mode"]  # must be there
                    modules = code.get(data["source"], {})
                    yield _Stored(data, environment, modules, (generation, float(data["written"])))
            except (Damaged, ValueError, KeyError, TypeError):
                raise UserError(
                    f"{shard}, line {number}, is not a record of ttabench; "
                    "restore the file or move it out of the folder."
                ) from None


def _row(record: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    cell, details = record["cell"], record.get("details", {})
    return {
        "method": cell["label"], "base": cell["method"], "config": canonical(cell["config"]),
        **{name: cell[name] for name in _CELL},
        **defaults, **cell["protocol"], "history": " ".join(cell.get("history", ())),
        **{name: record.get(name) for name in _RESULT},
        "status": record["status"], "reason": record.get("reason", ""),
        "alarm": details.get("alarm", ""), "warning": details.get("source_warning", ""),
        "cell_id": record["id"], "written": record["written"],
    }  # fmt: skip


def _card(stored: _Stored, defaults: dict[str, Any]) -> Card:
    """The record without its outcome, with its environment, and with the code that it went through.

    The parts of `cell` and `details` stand at the top: ``config``, ``checkpoint``, ``adapted`` …
    """
    record = {key: value for key, value in stored.data.items() if key not in OUTCOME}
    details = record.pop("details", {})
    record |= {key: value for key, value in record.pop("cell").items() if key not in MATCHED}
    record |= {key: value for key, value in details.items() if key not in OUTCOME_DETAILS}
    record["protocol"] = {**defaults, **record["protocol"]}
    return {**stored.environment, **({"modules": stored.modules} if stored.modules else {}), **record}
