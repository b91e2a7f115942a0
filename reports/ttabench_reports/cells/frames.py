"""The cells table, checked and grouped: which cells make a row, which rows make a table.

Cells share a table only if they measured the same thing (data, stream), and a row only if the same
thing was measured (weights, method, configuration). Nothing else is ever averaged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ttabench.cell.protocol import Protocol
from ttabench.corruptions.corruption_names import OF_TABLES
from ttabench.errors import UserError, counted
from ttabench.store import record
from ttabench.store.columns import REAL, WHOLE
from ttabench.store.read_results import STATUSES
from ttabench.store.record_values import LARGEST, RANGE_OF
from ttabench.store.table import varying
from ttabench_reports.cells.grouped import grouped
from ttabench_reports.cells.stored_settings import parsed

NEEDED = ("method", "arch", "dataset", "corruption", "severity", "seed", "mode", "accuracy", "status")
USUAL: Mapping[str, Any] = record.PROTOCOL
PROTOCOL = tuple(USUAL)
TABLE = ("dataset", "severity", "fingerprint", "order", "reset", "contamination", "foreign", "held_out",
         "limit", "precision", "stream", "baseline", "pace")  # fmt: skip
ROW = ("arch", "checkpoint", "method", "base", "config", "mode", "batch_size", "epochs", "pace_ratio")

_TEXTS = ("method", "base", "config", "arch", "dataset", "corruption", "mode", "order", "reset",
          "contamination", "foreign", "precision", "stream", "baseline", "history", "status", "reason",
          "alarm", "warning", "about_method", "checkpoint", "fingerprint", "cell_id", "source_data",
          "source_used", "scored_classes", "adapted", "scores", "restores", "stale_because", "code",
          "device", "processor", "versions")  # fmt: skip
_FORMER_ALARM = (
    r"predictions use (\S+) classes where (\S+) are there",
    r"predictions have \1 effective classes and labels have \2",
)
"""The alarm for a collapse as older records have it, and its words of today: one footnote for both."""
CORRECT = "correct"
"""The column with the packed per-image correctness (bytes, see :class:`ttabench.cell.Result`); not in CSV."""
CALIBRATION = "calibration"
"""The column with the packed bins of confidence (bytes, see :func:`calibration.packed`); not in CSV."""
DETAILS = "details"
"""The column with the details of results that have no column (dicts, or None); not in CSV."""


def checked(cells: pd.DataFrame, origin: str = "the results") -> pd.DataFrame:
    """`cells` with every column in its type, absent optional ones filled in; accuracy is NaN unless ok.

    Columns that the protocol gained later are filled with its defaults, so old files keep loading.
    Raises UserError, naming `origin`, for a table that is empty or is not one of cells, and for values that
    no cell has, such as a mode that does not exist.
    """
    if missing := [name for name in NEEDED if name not in cells.columns]:
        raise UserError(
            f"{origin} is not a table of cells: no column {', '.join(missing)}; "
            "expected a results folder or the cells.csv that 'ttabench report' writes."
        )
    if cells.empty:
        raise UserError(f"{origin} has no cells; run 'ttabench sweep' first.")
    frame = cells.reset_index(drop=True)
    filled: dict[str, Any] = {
        name: _texts(frame[name]) if name in frame else USUAL.get(name, "") for name in _TEXTS
    }
    for name in (*WHOLE, *REAL):
        absent = USUAL.get(name, 0 if name in WHOLE else math.nan)
        filled[name] = _numbers(name, frame[name], origin) if name in frame else absent
    filled["stale"] = flags(frame, "stale")
    for name, nothing in ((CORRECT, b""), (CALIBRATION, b""), (DETAILS, None)):
        if name not in frame:
            filled[name] = pd.Series([nothing] * len(frame), index=frame.index, dtype=object)
    frame = frame.assign(**filled)
    for protocol in frame.loc[~frame.duplicated(varying(frame, PROTOCOL)), list(PROTOCOL)].to_dict("records"):
        try:
            Protocol(**{str(name): value for name, value in protocol.items()})
        except ValueError as problem:
            raise UserError(f"{origin}: {problem}.") from None
    if (nameless := frame["base"] == "").any():
        frame["base"] = frame["base"].where(~nameless, frame["method"].str.partition("[")[0])
    if not (known := frame["status"].isin(STATUSES)).all():
        status = frame["status"][~known].iloc[0]
        raise UserError(f"{origin}: a cell has the status '{status}'; expected {', '.join(STATUSES)}.")
    if taken := OF_TABLES & set(frame["corruption"]):
        raise UserError(f"{origin}: a corruption is called '{min(taken)}', as a column of the tables is.")
    ok = frame["status"] == "ok"
    if (bad := ok & ~frame["accuracy"].between(0, 100)).any():
        value = frame.loc[bad, "accuracy"].iloc[0]
        raise UserError(f"{origin}: a cell is ok with accuracy {value}; expected percent, 0 to 100.")
    frame["accuracy"] = frame["accuracy"].where(ok)
    if (frame["alarm"] != "").any():
        frame["alarm"] = frame["alarm"].str.replace(*_FORMER_ALARM, regex=True)
    return with_facts(frame)


def flags(frame: pd.DataFrame, name: str) -> pd.Series[bool]:
    """A column of true and false, which a CSV file has as text; false where there is no such column."""
    if name not in frame:
        return pd.Series(False, index=frame.index)
    column = frame[name]
    return column if column.dtype == bool else column.astype(str).str.lower().eq("true")


def with_facts(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with the facts of methods in each row: those of the same code, else of the same method."""
    for same in (["base", "code"], ["base"]):
        text = frame["about_method"]
        has = text != ""
        if has.all() or not has.any():
            return frame
        known = frame[has].drop_duplicates(same, keep="last").set_index(same)["about_method"]
        borrowed = frame[same].join(known.rename("_known"), on=same)["_known"].fillna("")
        frame = frame.assign(about_method=text.where(has, borrowed))
    return frame


def without_repeated_facts(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with the facts of a method once for each code, so that a file stays small: see `with_facts`."""
    again = frame.duplicated(["base", "code", "about_method"])
    return frame.assign(about_method=frame["about_method"].where(~again, ""))


def _texts(column: pd.Series[Any]) -> pd.Series[str]:
    """A column as texts; "" for what is absent."""
    if column.dtype == "str" and not column.hasnans:
        return column
    return column.astype(object).where(column.notna(), "").astype(str)


def _numbers(name: str, column: pd.Series[Any], origin: str) -> NDArray[Any]:
    """A column of :data:`WHOLE` or :data:`REAL` in its type. Raises UserError for what is no such number."""
    values: NDArray[Any] = pd.to_numeric(column, errors="coerce").astype(float).to_numpy()
    if (bad := _misread(name, column, values)).any():
        kind = "number" if name in REAL else "whole number"
        limit = ", {:,} to {:,}".format(*_range(name)) if name in {*RANGE_OF, *WHOLE} else ""
        raise UserError(f"{origin}: {name} is '{column[bad].iloc[0]}'; expected a {kind}{limit}.")
    filled = np.where(np.isnan(values), USUAL.get(name, math.nan if name in REAL else 0), values)
    return filled if name in REAL else filled.astype(int)


def _misread(name: str, column: pd.Series[Any], values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which values of a column are not the numbers that it holds; most columns may lack one."""
    bad = np.isnan(values)
    if name not in ("severity", "seed") and (bad := bad & column.notna().to_numpy()).any():
        texts = column[bad].astype(str).str.strip().str.lower()
        bad[bad] = ~texts.isin(["", "nan", "n/a"])
    if name in WHOLE:
        bad |= values > np.floor(values)
    if name in {*RANGE_OF, *WHOLE} - {"accuracy"}:  # that of a cell which is not ok is not read
        least, largest = _range(name)
        bad |= (values < least) | (values > largest)
    elif name in REAL:
        bad |= np.isinf(values)
    return bad


def _range(name: str) -> tuple[int, int]:
    """The least and the largest value of a column."""
    return RANGE_OF.get(name, (0, LARGEST))


def one_per_cell(frame: pd.DataFrame) -> pd.DataFrame:
    """The latest of cells that differ in nothing a table shows, one with a number before one without.

    Of Source, one cell for all modes, numbers of epochs and batch sizes. Of continual runs in several
    orders of corruptions, the cells of one.

    Other twins come from cells that failed before their weights or data existed and were run again.
    """
    frame = _one_order(with_hashes(frame))
    key = varying(frame, [*TABLE, *ROW, "corruption", "seed"])
    later = latest_last(frame[[*key, "accuracy", "written"]]).duplicated(key, keep="last")
    return _one_source(frame[~later.reindex(frame.index)])


def _one_order(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with one order of corruptions for each continual row and seed, as no run has a mean over two.

    It is the order with the most cells that have a number, and of several such orders the latest. Source does
    not adapt, so its cells of all orders count.
    """
    adapted = (frame["reset"] == "continual") & (frame["base"] != "source")
    continual = frame[adapted]
    if not continual["history"].any():
        return frame
    seen = continual["history"] + " " + continual["corruption"] + "-" + continual["severity"].astype(str)
    runs = continual.assign(_seen=seen.str.strip() + " ")
    row = varying(runs, [*TABLE, *ROW, "seed"])
    kept = [cells.index[_of_one_run(cells)] for _, cells in runs.groupby(row, sort=False)]
    return frame[~adapted | frame.index.isin(np.concatenate(kept))]


def _of_one_run(cells: pd.DataFrame) -> NDArray[np.bool_]:
    """Which continual cells of a row and a seed are of the run that :func:`_one_order` takes."""

    def of(run: str) -> NDArray[np.bool_]:
        return np.array([run.startswith(seen) for seen in cells["_seen"]])

    def worth(run: str) -> tuple[int, float]:
        members = cells[of(run)]
        return int(members["accuracy"].count()), float(members["written"].max())

    return of(max(cells["_seen"].unique(), key=worth))


def latest_last(frame: pd.DataFrame) -> pd.DataFrame:
    """The cells without a number, then those with one; each in the order in which they were stored."""
    ordered = frame.assign(_number=frame["accuracy"].notna())
    return ordered.sort_values(["_number", "written"], kind="stable").drop(columns="_number")


def _one_source(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with one Source row per weights: those of online mode before those of offline mode.

    Source does not adapt: mode, epochs and batch size change none of its numbers. So a cell with a number
    stands for one that failed with another mode or batch size.
    """
    how = ["mode", "epochs", "batch_size"]
    row = [*TABLE, "arch", "checkpoint"]
    sources = frame[frame["base"] == "source"].sort_values(how, ascending=[False, True, True], kind="stable")
    by_number = sources.sort_values("accuracy", key=lambda column: column.isna(), kind="stable")
    again = by_number.duplicated([*row, "corruption", "seed"]).reindex(sources.index)
    kept = frame.drop(index=sources.index[again])
    first = sources.groupby(row)[how].transform("first").reindex(kept.index)
    return kept.assign(**{name: first[name].fillna(kept[name]).astype(kept[name].dtype) for name in how})


def with_hashes(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with the hashes of data and weights that cells without a number lack, where others have one."""
    return _borrow(_borrow(frame, "fingerprint", ["dataset"]), "checkpoint", ["dataset", "arch"])


def _borrow(frame: pd.DataFrame, column: str, same: list[str]) -> pd.DataFrame:
    """A cell without a number may lack its hash: it takes the only one that its siblings have."""
    empty = frame[column] == ""
    if not empty.any() or empty.all():
        return frame
    known = frame[~empty].groupby(same)[column].agg(["first", "nunique"])
    only = known.loc[known["nunique"] == 1, "first"].rename("_only")
    borrowed = frame.join(only, on=same)["_only"].fillna("")
    return frame.assign(**{column: frame[column].where(~(empty & frame["accuracy"].isna()), borrowed)})


def differences(rows: pd.DataFrame, within: Sequence[str], among: Iterable[str]) -> pd.Series[str]:
    """What differs between rows that share `within`: ``batch size 64, lr=0.001``; "" for a row on its own."""
    columns = {name: rows[name].tolist() for name in among}
    keys = zip(*(rows[name].tolist() for name in within), strict=True)
    groups = grouped((key, place) for place, key in enumerate(keys))
    texts: list[list[str]] = [[] for _ in range(len(rows))]
    for places in groups.values():
        for name, column in columns.items():
            values = [column[place] for place in places]
            if len({*values}) > 1:
                spelled = _configs(values) if name == "config" else [spell(name, value) for value in values]
                for place, text in zip(places, spelled, strict=True):
                    texts[place].append(text)
    return pd.Series([", ".join(filter(None, several)) for several in texts], rows.index, dtype=object)


def unusual(rows: pd.DataFrame, within: Sequence[str], among: Iterable[str]) -> pd.Series[str]:
    """:func:`differences`, less the fields that are as a protocol has them by default."""
    parts = []
    for name in among:
        # That the foreign data differ is only said where the contamination does not.
        group = [*within, "contamination"] if name == "foreign" else within
        parts.append(differences(rows, group, [name]).where(rows[name] != USUAL.get(name, ""), ""))
    return joined(parts, rows.index)


def joined(parts: Sequence[Iterable[str]], index: pd.Index[Any]) -> pd.Series[str]:
    """The texts of each row with commas between them; "" is left out."""
    texts = [", ".join(filter(None, row)) for row in zip(*parts, strict=True)]
    return pd.Series(texts, index, dtype=object)


def differences_in(common: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    """The fields that are not as in `common`, in words; "" where all are."""
    return ", ".join(spell(name, value) for name, value in fields.items() if value != common[name])


def spell(name: str, value: Any) -> str:
    """A field of a protocol, or of what was measured, in words: ``batch size 64``, ``weights 1a2b3c4d``."""
    match name:
        case "checkpoint" | "fingerprint" | "foreign":
            what = {"checkpoint": "weights", "fingerprint": "data", "foreign": "foreign data"}[name]
            return f"{what} {value[:8] or 'unknown'}"
        case "batch_size":
            return f"batch size {value}"
        case "epochs":
            return counted(value, "epoch") if value else "its own epochs"
        case "limit":
            return f"first {value} images" if value else "all images"
        case "held_out":
            return f"{100 * value:g} % held out" if value else "none held out"
        case "order" | "reset":
            return f"{value.replace('_', ' ')}" + (" order" if name == "order" else "")
        case "contamination":
            return f"contaminated by {value}" if value else "not contaminated"
        case "stream":
            return f"stream {value}" if value else "no long stream"
        case "baseline":
            name, _, digest = value.rpartition("@")
            return f"baseline {name} (weights {digest[:8]})" if value else "each row its own baseline"
        case "pace":
            return f"pace {value:g}" if value else "no pace"
        case "pace_ratio":
            return f"compute ratio {value:g}"
    return str(value)


def _configs(texts: list[str]) -> list[str]:
    """Configurations (JSON) by the settings in which they differ."""
    configs = [config for text in texts if (config := parsed(text)) is not None]
    if len(configs) < len(texts):
        return texts
    keys = sorted({key for config in configs for key in config})
    varying = [key for key in keys if len({json.dumps(c.get(key)) for c in configs}) > 1]
    return [",".join(f"{key}={c.get(key, 'unset')}" for key in varying) for c in configs]
