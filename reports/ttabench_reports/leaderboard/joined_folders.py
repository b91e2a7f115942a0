"""The results folders of a leaderboard: read, recomputed, merged."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from ttabench.errors import UserError, first_of
from ttabench.store import Record, Store
from ttabench.store.columns import ASKED, MISSING
from ttabench_reports.cells import load
from ttabench_reports.cells.frames import CORRECT, ROW, TABLE, checked
from ttabench_reports.cells.missing import missing
from ttabench_reports.compare.one_sided_tests import ONES
from ttabench_reports.page import protocol_cards
from ttabench_reports.words import naming

FOLDER = "folder"
"""The column that says which folder a cell is from."""
Code = frozenset[tuple[str, str]]
"""Modules and their hashes."""
CODE = "_code"
SAME = [*TABLE, *(name for name in ROW if name != "method")]
"""What the cells of a row share; its label does not matter, for it is not part of the identity of a cell."""


@dataclass(frozen=True)
class Folder:
    """A results folder: its name on the site, the file of its page, its cells as :func:`load.read` does.

    codes   cell id → the code of its method, see :func:`_own_code`.
    """

    name: str
    page: str
    cells: pd.DataFrame
    codes: Mapping[str, Code | None]


@dataclass(frozen=True)
class Repeat:
    """Cells that a folder shares with an earlier one, which counts.

    differ  how many of them have another correctness, and in at most how many `images`.
    """

    name: str
    earlier: str
    cells: int
    differ: int
    images: int


@dataclass(frozen=True)
class About:
    """What the site says of a folder."""

    folder: Folder
    datasets: tuple[str, ...]
    counts: dict[str, int]
    machines: tuple[str, ...]
    stored: str
    repeats: tuple[Repeat, ...]

    @property
    def state(self) -> tuple[str, ...]:
        """``partial`` and ``stale``, or ``complete``."""
        states = ["partial"] if self.counts["missing"] or self.counts["failed"] else []
        states += ["stale"] if self.counts["stale"] else []
        return tuple(states) or ("complete",)


def read(paths: Sequence[Path | str]) -> list[Folder]:
    """The folders, each with a name of its own. Raises UserError."""
    given = [Path(path) for path in paths]
    read: list[Folder] = []
    pages: set[str] = set()
    for path, name in zip(given, _names(given), strict=True):
        store = Store.at(path)
        records = store.latest()
        if not records:
            raise UserError(f"{path} holds no results yet; leave it out, or run the sweep first.")
        cells = load.cells_of(records.values())
        cells.attrs |= {ASKED: [store.sweep()], MISSING: missing(store.plan(), records)}
        page = f"{naming.slug(name)}.html"
        while page.lower() in {*pages, "index.html"}:
            page = f"{page.removesuffix('.html')}-.html"
        pages.add(page.lower())
        codes = {cell_id: _own_code(record) for cell_id, record in records.items()}
        read.append(Folder(name, page, cells, codes))
    return read


def _names(paths: Sequence[Path]) -> list[str]:
    """The last parts of the paths, as many as make them differ. Raises UserError for a path given twice."""
    whole = [Path(os.path.realpath(path)).parts for path in paths]  # `resolve` fails for a link to itself
    if twice := next((path for n, path in enumerate(paths) if whole.index(whole[n]) < n), None):
        raise UserError(f"{twice} is named twice; name each folder once.")
    names = []
    for parts in whole:
        length = 1
        while sum(other[-length:] == parts[-length:] for other in whole) > 1:
            length += 1
        names.append("/".join(parts[-length:]))
    return names


def _own_code(record: Record) -> Code | None:
    """The code of a record's method that does not come with ttabench; None if it was not recorded.

    Of a method that is not installed here, also the definitions of the built-in methods: it may be one of
    another checkout. The package of a network of the user is left out, unless the method may be from it.
    """
    cell, ours = record.result.cell, ["ttabench"]
    if module := _modules().get(cell.method):
        ours += ["ttabench_methods", *_network_package(cell.arch, module)]
    outside = frozenset(item for item in record.definitions.items() if item[0].partition("/")[0] not in ours)
    return outside if record.definitions else None


@cache
def _modules() -> dict[str, str]:
    """The module of each registered method. To find them, a file of every installed package is read."""
    return {point.name: point.module for point in metadata.entry_points(group="ttabench.methods")}


def _network_package(arch: str, method_module: str) -> list[str]:
    """The package of a network ``package.module:callable``, where the method is not from the same one."""
    module, colon, _ = arch.partition(":")
    top = module.partition(".")[0]
    return [top] if colon and "/" not in module and method_module.partition(".")[0] != top else []


def _refuse_two_codes(frame: pd.DataFrame) -> None:
    """Raises UserError if two folders measured cells of one row with different code of the method.

    Two authors may give one name to their methods, and the mean of both would get a rank. ttabench's own code
    does not count: in another version of it, a method is still the same one, and its row is marked as stale.
    """
    known = frame[(frame["status"] == "ok") & frame[CODE].notna()]
    several = known.groupby(SAME, sort=False, dropna=False)[CODE].transform("nunique") > 1
    for _, row in known[several].groupby(SAME, sort=False, dropna=False):
        by_folder = row.groupby(FOLDER, sort=False)[CODE]
        (first, ours), *others = ((name, frozenset(chain.from_iterable(codes))) for name, codes in by_folder)
        for name, theirs in others:
            if theirs != ours:
                method, arch, dataset = (row[column].iloc[0] for column in ("base", "arch", "dataset"))
                changed = first_of(sorted({name for name, _ in ours ^ theirs}), 3)
                raise UserError(
                    f"{first} and {name} both hold results of '{method}' on {arch} and {dataset}, measured "
                    f"with different code ({changed}); give one of the two methods another name and run it "
                    "again, or leave one folder out."
                )


def merge(read: Sequence[Folder]) -> tuple[pd.DataFrame, list[Repeat]]:
    """The cells of all folders, each once, with :data:`FOLDER`; and what was there already.

    Of several records of a cell, that of the folder named first counts, if it has a number: a folder that is
    added later cannot change the numbers of those before it. Raises UserError if two folders measured a row
    with different code of its method.
    """
    cells = [
        each.cells.assign(**{FOLDER: each.name}, **{CODE: each.cells["cell_id"].map(each.codes)})
        for each in read
    ]
    frame = pd.concat(cells, ignore_index=True)
    _refuse_two_codes(frame)
    frame = frame.drop(columns=CODE)
    frame["_without"] = frame["status"] != "ok"
    ordered = frame.sort_values("_without", kind="stable")
    first = ordered.drop_duplicates("cell_id")
    again = ordered[ordered.duplicated("cell_id") & ~ordered["_without"]]
    kept = {
        cell_id: (name, correct)
        for cell_id, name, correct in zip(first["cell_id"], first[FOLDER], first[CORRECT], strict=True)
    }
    repeats: dict[tuple[str, str], list[int]] = {}
    for name, cell_id, correct in zip(again[FOLDER], again["cell_id"], again[CORRECT], strict=True):
        earlier, counting = kept[cell_id]
        repeats.setdefault((name, earlier), []).append(_differing(correct, counting))
    merged = first.sort_index().drop(columns="_without").reset_index(drop=True)
    merged.attrs = {}
    folders = [
        Repeat(name, earlier, len(images), sum(map(bool, images)), max(images))
        for (name, earlier), images in repeats.items()
    ]
    return merged, folders


def _differing(first: bytes, second: bytes) -> int:
    """In how many images two packed correctnesses differ."""
    a, b = (np.frombuffer(packed, np.uint8) for packed in (first, second))
    size = min(len(a), len(b))
    return int(ONES[a[:size] ^ b[:size]].sum(dtype=np.int64)) + 8 * abs(len(a) - len(b))


def about(folder: Folder, repeats: Iterable[Repeat]) -> About:
    """What the site says of a folder."""
    cells = checked(folder.cells)
    ok = cells["accuracy"].notna()
    counts = {
        "measured": int(ok.sum()),
        "missing": sum(one.cells for one in folder.cells.attrs[MISSING]),
        "failed": int((~ok & (cells["status"] != "n/a")).sum()),
        "n/a": int((cells["status"] == "n/a").sum()),
        "stale": int((ok & cells["stale"]).sum()),
    }
    return About(
        folder,
        tuple(naming.dataset(name) for name in sorted(set(cells["dataset"]))),
        counts,
        tuple(dict.fromkeys(filter(None, protocol_cards.machines(cells[ok])))),
        protocol_cards.days(cells["written"]),
        tuple(repeat for repeat in repeats if repeat.name == folder.name),
    )
