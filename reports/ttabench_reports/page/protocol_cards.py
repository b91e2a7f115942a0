"""Protocol cards: everything that a method's numbers were measured with."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from ttabench.cell import canonical
from ttabench.cell.protocol import Protocol
from ttabench.cell.subset_names import everything
from ttabench.errors import counted
from ttabench_reports.cells.frames import PROTOCOL
from ttabench_reports.cells.grouped import grouped
from ttabench_reports.cells.stored_settings import parsed
from ttabench_reports.cells.typical_seconds import typical_seconds
from ttabench_reports.evidence.given import Given, given
from ttabench_reports.evidence.report import Report
from ttabench_reports.sheets import words
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words import naming
from ttabench_reports.words.notes import Notes, kind
from ttabench_reports.words.protocols import kept_by

DIGITS = 16  # of a hash: enough to find it in cells.csv


@dataclass(frozen=True)
class Card:
    """Of one method in one configuration under one protocol.

    config      every setting with its value, as JSON.
    facts       (what, the different values of all its cells).
    cells       how many have a number.
    gap         n/a where all cells are; else failed, where none has a number.
    """

    anchor: str
    name: str
    protocol: Protocol
    given: Given
    config: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, tuple[str, ...]], ...]
    cells: int
    stale: int
    gap: str


def card_id(row: Row) -> str:
    """The anchor of a row's card: the same wherever this method, configuration and protocol occur."""
    key = {"base": row.about["base"], "config": row.about["config"], **protocol(row).to_json()}
    digest = hashlib.sha256(canonical(key).encode()).hexdigest()[:10]
    return f"card-{naming.slug(row.about['base'])}-{digest}"


def cards(report: Report) -> list[Card]:
    """The cards of all measured rows with a number, by name."""
    rows = grouped((card_id(row), row) for table in report.tables for row in table.measured_rows)
    made = [_card(anchor, members, report) for anchor, members in rows.items()]
    return sorted(made, key=lambda card: (card.name != "Source", card.name.lower(), card.anchor))


def protocol(row: Row) -> Protocol:
    """The protocol of a measured row."""
    return Protocol(**{name: row.about[name] for name in PROTOCOL})


def caption(of: Protocol, table: Table) -> str:
    """A protocol in words, of a row of this table."""
    return of.caption(everything([table.key["dataset"]])) + kept_by(str(table.key["baseline"]))


def _card(anchor: str, members: list[Row], report: Report) -> Card:
    row = members[0]
    places = [place for one in members for place in report.places(one)]
    cells = report.kept.iloc[places]
    ok = cells[cells["accuracy"].notna()]
    used = cells if ok.empty else ok
    weights = used.loc[used["checkpoint"] != "", ["arch", "dataset", "checkpoint"]].drop_duplicates()
    data = used.loc[used["fingerprint"] != "", ["dataset", "fingerprint"]].drop_duplicates()
    facts: dict[str, Iterable[str]] = {
        "Weights (start of SHA-256)": [
            f"{naming.arch(arch)} on {naming.clean(dataset)}: {digest[:DIGITS]}"
            for arch, dataset, digest in weights.itertuples(index=False)
        ],
        "Data (start of SHA-256)": [
            f"{naming.dataset(name)}: {digest[:DIGITS]}" for name, digest in data.itertuples(index=False)
        ],
        "Code (start of SHA-256)": used["code"].str[:DIGITS],
        "Measured on": machines(used),
        "Adapted": adapted(used),
        "Scored": used["scores"],
        "Predictions among": used["scored_classes"],
        "Between batches": ["" if text == "nothing" else f"restores {text}" for text in used["restores"]],
        "Source data": ok["source_used"] if ok["source_used"].any() else [given(row.about).source],
        "Stale because": ranges(used["stale_because"]),
        "Alarms": ranges(used["alarm"]),
        "Severities": [str(s) for s in sorted(set(used["severity"])) if s],
        "Seeds": [", ".join(map(str, sorted(set(used["seed"]))))],
        "Seconds (the median of each row times its cells)": [
            f"{_seconds(typical_seconds(used).sum())} in {len(used):,} cells"
        ],
        "Stored": [days(used["written"])],
    }  # fmt: skip
    return Card(
        anchor,
        words.row_name(row),
        protocol(row),
        given(row.about),
        _settings(str(row.about["config"])),
        tuple((name, texts) for name, values in facts.items() if (texts := _distinct(values))),
        len(ok),
        int(ok["stale"].sum()),
        "n/a" if (cells["status"] == "n/a").all() else "failed",
    )


def adapted(cells: pd.DataFrame) -> list[str]:
    """What each cell adapts: in the method's own words, or else how many parameters its optimisers hold.

    A method that says nothing of it is stored with the word "nothing".
    """
    return [
        f"{count:,.0f} parameter{'s' * (count != 1)}" if text in ("", "nothing") and count > 0 else text
        for text, count in zip(cells["adapted"], cells["adapted_parameters"], strict=True)
    ]


def machines(cells: pd.DataFrame) -> list[str]:
    """Device, processor, threads and versions of each cell in one line; "" where nothing is recorded."""
    columns = zip(cells["device"], cells["processor"], cells["threads"], cells["versions"], strict=True)
    return [
        "; ".join(filter(None, (device, processor, counted(n, "thread") if n else "", versions)))
        for device, processor, n, versions in columns
    ]


def ranges(texts: Iterable[str]) -> list[str]:
    """Texts that differ in their numbers only, as one with their range: ``1.9 to 5.0 effective classes``."""
    merged = []
    for similar in grouped((kind(text), text) for text in _distinct(texts)).values():
        notes = Notes()
        letters = [notes.letter(text) for text in similar]
        # One alone is never shortened.
        merged.append(similar[0] if len(similar) == 1 else notes.text(letters[0]))
    return merged


def _seconds(total: float) -> str:
    """``1,234``; ``<1`` for less than one."""
    return "<1" if 0 < total < 1 else f"{total:,.0f}"


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, values)))


def _settings(config: str) -> tuple[tuple[str, str], ...]:
    if (settings := parsed(config)) is None:
        return (("config", config),)
    return tuple((name, json.dumps(value, ensure_ascii=False)) for name, value in sorted(settings.items()))


def days(written: pd.Series[float]) -> str:
    """``2026-11-20 to 2026-11-22`` (UTC); "" where it is not recorded."""
    known = written.dropna()
    if known.empty:
        return ""
    first, last = (time.strftime("%Y-%m-%d", time.gmtime(float(when))) for when in (known.min(), known.max()))
    return first if first == last else f"{first} to {last}"
