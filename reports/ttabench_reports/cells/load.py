"""Results from several places as one table of cells: results folders, and the cells.csv of reports."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ttabench.errors import UserError, counted, one_line
from ttabench.provenance.staleness import UNLIKE_ROW
from ttabench.store import Record, Store
from ttabench.store.columns import ASKED, COLUMNS, MISSING, OWN, own, shared
from ttabench.system.garbage_collection import paused
from ttabench_reports.cells.calibration import packed
from ttabench_reports.cells.frames import CALIBRATION, CORRECT, DETAILS, ROW, TABLE, checked, flags
from ttabench_reports.cells.missing import missing
from ttabench_reports.cells.set_by_users import SET, of_all, set_by_users
from ttabench_reports.cells.spreadsheet_formulas import without_apostrophe

CELL = ["cell_id", *TABLE, *ROW, "corruption", "seed", "history"]
"""What tells two cells of a CSV file apart; those that were written by hand have no id."""
OF_RECORD = (CORRECT, CALIBRATION, DETAILS)
"""The columns that only cells of results folders have."""
WITHOUT_COLUMN = ("windows", "resets")
"""The details that reports read and that have no column of their own."""
_Cell = tuple[dict[str, Any], tuple[Any, ...]]


@paused()
def read(paths: Sequence[Path | str]) -> pd.DataFrame:
    """All cells in these folders and CSV files, each once.

    A cell that stands in several counts as it was written last, one with a number before one without, and one
    of unknown time before all others; of equals, that with per-image correctness or details, and else that of
    the place named last. Warns where they differ in code or number. Cells of a row of two codes are stale:
    see :func:`_with_unlike_stale`. Raises UserError for what is neither, and where nothing holds a cell.
    """
    read = [read_one(path).assign(_here=Path(path).is_dir()) for path in paths]
    per_frame = [frame.attrs[ASKED] for frame in read if ASKED in frame.attrs]
    frames = [frame for frame in read if not frame.empty]
    if not frames:
        names = ", ".join(map(str, paths))
        has = "hold" if len(paths) > 1 else "holds"
        raise UserError(f"{names} {has} no results yet; run the sweep first.")
    plans = [line for path in map(Path, paths) if path.is_dir() for line in Store.at(path).plan()]
    absent = missing(plans, (cell_id for frame in frames for cell_id in frame["cell_id"].tolist()))
    if len(frames) == 1:
        frames[0].attrs[MISSING] = absent
        return _with_unlike_stale(frames[0])
    places = [str(path) for path, frame in zip(paths, read, strict=True) for _ in range(len(frame))]
    frame = pd.concat(frames, ignore_index=True).assign(_from=places)
    frame["_when"] = frame["written"].round(3)  # as cells.csv has it
    frame["_whole"] = (frame[CORRECT].map(len) > 0) | frame[DETAILS].notna()  # streams have details alone
    named = frame["cell_id"] != ""
    by_hand = frame[~named].groupby(CELL, dropna=False, sort=False).ngroup().astype(str)
    frame["_cell"] = frame["cell_id"].where(named, by_hand)
    frame["_number"] = frame["status"] == "ok"  # a later attempt that failed takes no number away
    frame = frame.sort_values(["_number", "_when", "_whole"], kind="stable", na_position="first")
    _warn_of_replaced(frame)
    frame = frame.drop_duplicates("_cell", keep="last").sort_index()
    frame = frame.drop(columns=["_number", "_when", "_whole", "_from", "_cell"]).reset_index(drop=True)
    frame.attrs[ASKED] = [sweep for sweeps in per_frame for sweep in sweeps]
    frame.attrs[MISSING] = absent
    if (known := of_all(frame.attrs for frame in frames)) is not None:
        frame.attrs[SET] = known
    return _with_unlike_stale(frame)


def _with_unlike_stale(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with cells marked as stale that cannot all have been measured with the installed code.

    The cells of a row depend on the same code, and a CSV file knows only whether it was that of who wrote it.
    Of a row with several codes, only those cells stay fresh whose code is that of a fresh cell of a folder:
    this code is installed. Attested cells are left out, as other code gave the same numbers.

    frame  with `_here`, whether a cell is from a folder, which is dropped.
    """
    frame, here = frame.drop(columns="_here"), frame["_here"]
    if here.all():
        return frame
    known = (frame["status"] == "ok") & (frame["code"] != "")
    fresh = known & ~frame["stale"] & ~flags(frame, "attested")
    same = frame.loc[fresh, [*TABLE, *ROW, "code"]].assign(_installed=frame["code"].where(here))
    same.loc[same["base"] == "source", ["mode", "batch_size", "epochs"]] = "", 0, 0  # one row for all of them
    rows = same.groupby([*TABLE, *ROW], sort=False, dropna=False)
    unlike = (rows["code"].transform("nunique") > 1) & (same["code"] != rows["_installed"].transform("first"))
    marked = unlike.reindex(frame.index, fill_value=False)
    because = frame["stale_because"].where(~marked, UNLIKE_ROW)
    return frame.assign(stale=frame["stale"] | marked, stale_because=because)


def _warn_of_replaced(frame: pd.DataFrame) -> None:
    """Say which of the cells that stand in several places count, where they differ in code or number.

    frame  in the order in which the cells were written, with `_from`, the place of a cell, and `_cell`, what
           it has in common with the same cell of another place.
    """
    several = frame[frame.duplicated("_cell", keep=False)]
    number = pd.to_numeric(several["accuracy"], errors="coerce").round(4)  # as cells.csv has it
    code = several["code"].where(several["code"] != "")  # that of old files is not known
    same = several.assign(_number=number.fillna(-1), _code=code).groupby("_cell")
    unlike = same["_from"].nunique().gt(1) & (same["_number"].nunique().gt(1) | same["_code"].nunique().gt(1))
    if not unlike.any():
        return
    last = same["_from"].last()[unlike].value_counts()
    counts = ", ".join(f"{n} of {place}" for place, n in sorted(last.items()))
    warnings.warn(
        f"{counted(same.ngroups, 'cell')} in more than one of these results, {unlike.sum()} with other code "
        f"or numbers. The last measured one is used, or if times are unknown, the one named last: {counts}.",
        stacklevel=2,
    )


def read_one(path: Path | str) -> pd.DataFrame:
    """The cells of a results folder or of a CSV file. Raises UserError.

    Of a folder, with :data:`OF_RECORD`.
    """
    path = Path(path)
    if path.is_dir():
        store = Store.at(path)
        frame = _frame(store.latest_as(_cell).values())
        sweep = store.sweep()
        frame.attrs[ASKED] = [] if store.plan() else [sweep]  # a plan says it more exactly
        frame.attrs[SET] = set_by_users(path, sweep)
        return frame
    return read_csv(path)


def cells_of(records: Iterable[Record]) -> pd.DataFrame:
    """A row for each record, with :data:`OF_RECORD`."""
    return _frame(map(_cell, records))


def _frame(cells: Iterable[_Cell]) -> pd.DataFrame:
    """What cells share is made into columns once, and then repeated."""
    rows = list(cells)
    distinct = {id(same): same for same, _ in rows}
    places = {key: place for place, key in enumerate(distinct)}
    of_row = [places[id(same)] for same, _ in rows]
    names = [name for name in COLUMNS if name not in OWN]
    repeated = pd.DataFrame([[same[name] for name in names] for same in distinct.values()], columns=names)
    frame = pd.DataFrame([values for _, values in rows], columns=[*OWN, *OF_RECORD])
    frame = pd.concat([repeated.take(of_row).set_axis(frame.index), frame], axis=1)
    return frame[[*COLUMNS, *OF_RECORD]]


def _cell(record: Record) -> _Cell:
    """What a record shares with others, and its values of :data:`OWN` and :data:`OF_RECORD`.

    Of a long stream without the correctness: its images come again and again, so they are no sample, and
    intervals and tests over them would be wrong.
    """
    same = shared(record)
    correct = b"" if same["stream"] else record.correct
    details = record.data.get("details", {})
    kept = {name: details[name] for name in WITHOUT_COLUMN if name in details} if details else None
    return same, (*own(record).values(), correct, packed(details.get("calibration", {})), kept)


def read_csv(path: Path) -> pd.DataFrame:
    """The cells of a CSV file.

    Warns where accuracies seem to be shares. Raises UserError where there is none, where it is not a table of
    cells, and where a cell stands twice with different numbers: none of the two is known to be right.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist; expected a results folder or a cells.csv.")
    if not path.is_file():  # it is read twice, and a pipe can be read once
        raise UserError(f"{path} is a pipe or a device; expected a results folder or a cells.csv.")
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            header = file.readline()
        known = "method" in header and "," not in header  # settings have commas of their own
        if known and (found := re.search("[;\t]", header)):
            raise UserError(f"{path} has {found[0]!r} between its columns; save it as CSV with commas.")
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (ValueError, OSError, pd.errors.ParserError):  # not text, no columns, ragged lines, unreadable
        raise UserError(
            f"{path} cannot be read as CSV; expected a results folder or the cells.csv of 'ttabench report'."
        ) from None
    columns = [name for name in frame if name not in OF_RECORD]
    texts = (_as_written(frame[name]) for name in columns)
    frame = pd.DataFrame(dict(zip(_as_written(map(str, columns)), texts, strict=True)))
    cells = checked(frame, str(path))
    _check_once(cells, path)
    if 0 < cells["accuracy"].max() <= 1:
        warnings.warn(f"{path} has no accuracy above 1; expected percent, not shares.", stacklevel=2)
    return cells


def _as_written(texts: Iterable[str]) -> list[str]:
    """Texts of a CSV file, which may be somebody else's, as they were before they were written."""
    texts = list(texts)
    known = {text: one_line(without_apostrophe(text)) for text in {*texts}}
    return [known[text] for text in texts]


def _check_once(cells: pd.DataFrame, path: Path) -> None:
    """Raises UserError where a cell of a CSV file stands there with different numbers."""
    twice = cells[cells.duplicated(CELL, keep=False)]
    for _, rows in twice.groupby(CELL, dropna=False, sort=False):
        if rows["accuracy"].nunique() > 1:
            cell, numbers = rows.iloc[0], ", ".join(f"{number:g}" for number in rows["accuracy"])
            raise UserError(
                f"{path} has different accuracies of one cell ({cell['method']} · {cell['arch']} · "
                f"{cell['dataset']} · {cell['corruption']}-{cell['severity']} · seed {cell['seed']}): "
                f"{numbers}; keep one row of it."
            )
