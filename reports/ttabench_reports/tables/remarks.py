"""What is to be said of a table beside its rows: what it lacks, and in which order its cells were run."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from ttabench.cell.stream_spec import ALL_STREAMS
from ttabench.corruptions.corruption_names import CORRUPTIONS, EXTRA_CORRUPTIONS, NATURAL
from ttabench.errors import counted, first_of
from ttabench.store.columns import ASKED, MISSING
from ttabench_reports.cells.frames import TABLE
from ttabench_reports.cells.row_numbers import RowNumbers
from ttabench_reports.tables.table import Row
from ttabench_reports.words import naming

MOST_NAMED = 10
"""Corruptions that are named, of those that a mean is over."""


def of_mean(main: tuple[str, ...]) -> str:
    """Over which corruptions a mean is, by their names; "" for the usual 15, and where there is no mean.

    Tables of means have no columns that say it, and beside each other they may be over others.
    """
    if main == (naming.MIXED,):
        return "The 15 corruptions are mixed in one stream, each image under one of them."
    if main == CORRUPTIONS or {*main} <= {NATURAL, *ALL_STREAMS}:
        return ""
    if {*main} < {*CORRUPTIONS}:
        absent = [name for name in CORRUPTIONS if name not in main]
        over = f"{len(main)} of the 15 corruptions"
        return f"The mean is over {over}{_named(main) if len(main) < len(absent) else _without(absent)}."
    extra = {*main} <= {*EXTRA_CORRUPTIONS}
    over = counted(len(main), "extra corruption" if extra else "corruption")
    return f"The mean is over {over}{', none of the usual 15' if extra else ''}{_named(main)}."


def _named(corruptions: Sequence[str]) -> str:
    return f": {first_of([naming.title(name) for name in corruptions], MOST_NAMED)}"


def _without(corruptions: Sequence[str]) -> str:
    return f", without {', '.join(map(naming.title, corruptions))}"


def of_classes(key: Mapping[str, Any], members: Iterable[Mapping[str, Any]]) -> str:
    """Which classes predictions are chosen from, where a network or dataset has others too; else ""."""
    chosen = next((member["scored_classes"] for member in members if member["scored_classes"]), "")
    said = f"Predictions are chosen from the {chosen} that the images have." if chosen else ""
    heads = "Networks have outputs only for the classes of the images; methods see no other classes."
    return " ".join(filter(None, (said, heads if naming.has_own_head(key["dataset"]) else "")))


def of_other_orders(stored: pd.DataFrame, kept: pd.DataFrame) -> dict[Any, int]:
    """By table, how many measured cells of continual runs in another order of corruptions are left out."""

    def count(cells: pd.DataFrame) -> pd.Series[int]:
        adapted = (cells["reset"] == "continual") & (cells["base"] != "source") & cells["accuracy"].notna()
        return cells[adapted].groupby(list(TABLE)).size()

    return {table: int(n) for table, n in count(stored).sub(count(kept), fill_value=0).items()}


def absent(key: Mapping[str, Any], attrs: Mapping[Any, Any], rows: pd.DataFrame) -> str:
    """The methods that a sweep planned or was asked for and that have no row in a table, as a sentence.

    attrs   those of the cells. Without a plan, every method asked for is expected on every architecture.
    """
    here = rows[(rows["dataset"] == key["dataset"]) & (rows["severity"] == key["severity"])]
    there = set(zip(here["base"], here["arch"], strict=True))
    known = set(rows["arch"])  # other names may be spelled otherwise than they are stored
    expected = [
        (one.base, one.arch)
        for one in attrs.get(MISSING, ())
        if (one.dataset, one.severity) == (key["dataset"], key["severity"])
    ]
    for sweep in attrs.get(ASKED, ()):
        if key["dataset"] in sweep.get("datasets", ()) and key["severity"] in sweep.get("severities", ()):
            pairs = itertools.product(sweep.get("methods", ()), sweep.get("archs", ()))
            expected += [(str(label).partition("[")[0], arch) for label, arch in pairs]
    absent = [
        (naming.base(base), arch)
        for base, arch in expected
        if arch in known and base != "all" and (base, arch) not in there
    ]
    return f"Asked for, but not measured: {_on_networks(absent)}." if absent else ""


def orders(rows: Iterable[Row], columns: Sequence[str]) -> str:
    """The order of corruptions of most continual rows, if it is not that of `columns`, and who has another.

    Sentences; "" for none. An order goes with those that it begins with: they are of one run, in part.
    """
    ran = [row for row in rows if row.kind == "method" and row.about["measured"] and row.order]

    def alike(first: Row, second: Row) -> bool:
        return all(a == b for a, b in zip(first.order, second.order, strict=False))

    def common(row: Row) -> tuple[int, int]:
        return sum(alike(row, other) for other in ran), len(row.order)

    usual = max(ran, key=common, default=None)
    if usual is None:
        return ""
    parts = []
    if usual.order != tuple(column for column in columns if column in usual.order):
        names = first_of([naming.title(name) for name in usual.order], len(CORRUPTIONS))
        parts.append(f"The corruptions came in this order: {names}.")
    if unlike := [(row.name, row.arch) for row in ran if not alike(row, usual)]:
        parts.append(
            "In another order of corruptions than the other rows, which changes numbers: "
            f"{_on_networks(unlike)}."
        )
    return " ".join(parts)


def several_orders(rows: Iterable[Row], numbers: RowNumbers) -> str:
    """Which continual rows are a mean over seeds with different orders of corruptions; "" for none."""
    named = [(row.name, row.arch) for row in rows if row.about.get("row") in numbers.several_orders]
    if not named:
        return ""
    return f"A mean over seeds with different orders of corruptions: {_on_networks(named)}."


def _on_networks(named: Iterable[tuple[str, str]]) -> str:
    """Names of methods by their network: ``TENT, SAR on CCT; TENT on CvT``; each once."""
    methods: dict[str, dict[str, None]] = {}
    for method, arch in named:
        methods.setdefault(naming.arch(arch), {})[method] = None
    return "; ".join(f"{', '.join(names)} on {arch}" for arch, names in methods.items())


def missing_cells(member: Mapping[str, Any], attrs: Mapping[Any, Any]) -> int:
    """How many planned cells of a row have no record: those of its protocol, where the plan says it."""
    names = ("method", "arch", "dataset", "severity")
    place = [member[name] for name in names]
    # Source has one row for all of these.
    ignored = ("mode", "epochs", "batch_size") if member["base"] == "source" else ()
    planned = (one for one in attrs.get(MISSING, ()) if [getattr(one, name) for name in names] == place)
    return sum(one.under(member, ignored) for one in planned)
