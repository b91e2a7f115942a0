"""The tables as CSV, with identifiers in place of display names, and unrounded differences.

docs/reading-the-tables.md says what each column means.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype

from ttabench.store.columns import MISSING
from ttabench.store.table import INCREASE, with_increase
from ttabench_reports.cells.frames import PROTOCOL, checked, without_repeated_facts
from ttabench_reports.cells.load import OF_RECORD
from ttabench_reports.cells.spreadsheet_formulas import inert
from ttabench_reports.evidence import intervals_and_tests as evidence
from ttabench_reports.evidence.flat_rows import line_of, means, notes, unknown_frame
from ttabench_reports.evidence.gains_and_costs import costs
from ttabench_reports.evidence.given import given, rows_given
from ttabench_reports.evidence.report import Report
from ttabench_reports.evidence.stability import curve_frame, stability_frame
from ttabench_reports.formats.files import write_lines
from ttabench_reports.tables.table import Table
from ttabench_reports.words import naming
from ttabench_reports.words.naming import MEAN, MEAN_EXTRA

TALLY = ("wins", "ties", "losses")
P_VALUES = ("p_source_holm", "p_best_holm")
TO_QUOTE = re.compile('[,"\n\r]')


def write(cells: pd.DataFrame, to: Path, *, report: Report | None = None) -> list[Path]:
    """``per_corruption``, ``summary``, ``drop``, ``statistics``, ``cost`` and ``given`` .csv in `to`.

    For long streams also ``stability`` and ``stream_curves``, for contaminated ones ``unknown``. A planned
    row without any result has only its names, and a note. Returns their paths.
    """
    report = report or Report(cells)
    averages = means(report.tables)
    frames = {
        "per_corruption": per_corruption(report.tables, words=True),
        "summary": averages,
        "drop": drop_of(averages),
        "statistics": statistics(report),
        "cost": costs(report),
        "given": methods_given(report.tables),
    }
    if planned := planned_rows(report.cells):
        for name in ("per_corruption", "summary", "drop", "statistics", "cost"):
            frames[name] = with_planned(frames[name], planned)
    curves = curve_frame(report.tables)
    if not curves.empty:
        frames |= {"stability": stability_frame(report.tables), "stream_curves": curves}
    if not (unknown := unknown_frame(report.tables)).empty:
        frames["unknown"] = unknown
    return [write_csv(Path(to) / f"{name}.csv", frame) for name, frame in frames.items()]


def planned_rows(cells: pd.DataFrame) -> list[dict[str, Any]]:
    """A row with a note for each method on a network of which no planned cell has a record."""
    names = ["dataset", "severity", "arch", "method"]
    there = set(cells[names].drop_duplicates().itertuples(index=False, name=None))
    return [
        {**{name: getattr(one, name) for name in names}, "notes": f"missing: {one.cells} planned cells"}
        for one in cells.attrs.get(MISSING, ())
        if tuple(getattr(one, name) for name in names) not in there
    ]


def with_planned(frame: pd.DataFrame, planned: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """`frame` with :func:`planned_rows` below it."""
    whole = frame.astype(dict.fromkeys(frame.select_dtypes("integer"), "Int64"))
    return pd.concat([whole, pd.DataFrame(planned)], ignore_index=True)


def write_cells(cells: pd.DataFrame, path: Path) -> Path:
    """``cells.csv``: one row per cell, accuracies in percent to 4 decimals, in an order that never varies.

    With points above Source on the same weights and images.
    """
    frame = with_increase(checked(cells))
    by = ["dataset", "severity", "arch", "base", "method", "corruption", "seed", "mode", "cell_id"]
    shown = [c for c in frame if c in (*cells.columns, INCREASE) and c not in OF_RECORD]
    frame = frame.loc[frame[by].sort_values(by, key=naming.in_order).index, shown]
    frame = without_repeated_facts(frame) if "about_method" in frame and "code" in frame else frame
    return write_csv(path, frame.round({"seconds": 3, "written": 3}))


def write_csv(path: Path, frame: pd.DataFrame) -> Path:
    """`frame` with numbers to 4 decimals, p-values to 3 digits, and the fields of protocols as they are.

    A protocol with other numbers is another protocol.
    """

    def rounded(value: Any) -> Any:
        return round(value, 4) if isinstance(value, float) else value

    text = ("string", "empty", "boolean")
    plain = [c for c in frame if c not in (*PROTOCOL, *P_VALUES)]
    mixed = [c for c in plain if frame[c].dtype == object and infer_dtype(frame[c], skipna=True) not in text]
    frame = frame.assign(
        **{str(c): frame[c].map(rounded) for c in mixed},
        **{c: frame[c].map(lambda p: float(f"{p:.3g}")) for c in P_VALUES if c in frame},
    ).round(dict.fromkeys(plain, 4))
    return write_lines(path, as_csv(frame))


def as_csv(frame: pd.DataFrame) -> Iterator[str]:
    """The lines that pandas' `to_csv` writes, in a third of the time: texts stand in a column many times.

    A text that spreadsheets would run as a formula gets an apostrophe in front, see :func:`inert`.
    """
    yield ",".join(_quoted(inert(str(name))) for name in frame)
    fields = [_fields(column) for _, column in frame.items()]
    columns: list[Iterable[str]] = []
    for same, some in itertools.groupby(fields, lambda one: len(one) == 1):
        if same:  # columns beside each other with one value each are put together once
            text = ",".join(itertools.chain.from_iterable(some))
            columns.append(itertools.repeat(text, len(frame)))
        else:
            columns += some
    yield from map(",".join, zip(*columns, strict=True))


def _fields(column: pd.Series[Any]) -> list[str]:
    """The fields of a column, empty where it has no value; a single one where all are the same."""
    if column.dtype in ("int64", "float64"):
        numbers = column.to_numpy()
        places, distinct = pd.factorize(numbers.view("int64"))  # 0.0 and -0.0 are equal
        texts = ["" if value != value else str(value) for value in distinct.view(numbers.dtype).tolist()]
        if len(texts) > 1:
            texts = np.array(texts, object)[places].tolist()
        return texts
    keys = values = column.tolist()
    if column.dtype == object:
        keys = [*map(repr, values)]  # 1 and True are equal
    fields = {key: _field(value) for key, value in dict(zip(keys, values, strict=True)).items()}
    return [*fields.values()] if len(fields) == 1 else [*map(fields.__getitem__, keys)]


def _field(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(inert(value))
    return "" if pd.isna(value) else _quoted(str(value))


def _quoted(field: str) -> str:
    if TO_QUOTE.search(field):
        doubled = field.replace('"', '""')
        return f'"{doubled}"'
    return field


def per_corruption(built: Sequence[Table], *, words: bool = False) -> pd.DataFrame:
    """All per-corruption tables below each other: a line per architecture × method, and its Increase and sd.

    Column `row` is accuracy, sd (over seeds), increase (points above Source) or published. NaN where
    there is no number; `notes` says why. With `words`, "n/a" stands where it belongs (pandas reads it back
    as NaN).
    """
    main, extra = naming.split({c for table in built for c in (*table.main, *table.extra)})
    numbers = [*main, MEAN, *extra, *([MEAN_EXTRA] if any(table.extra for table in built) else [])]
    about = ("mode", "batch_size", "epochs", "seeds", "n_images", "checkpoint", "stale")
    lines: list[dict[str, Any]] = []
    for table in built:
        for row in table.rows:
            kind = "accuracy" if row.measured else row.kind
            head = {**table.key, "arch": row.arch, "method": row.method, "row": kind}
            head |= {name: row.about.get(name) for name in about}
            of_published = {"source_data": "", "epochs_seen": None, "settings": ""}
            head |= given(row.about).columns() if row.about else of_published
            values: dict[str, Any] = {column: row.value(column) for column in table.columns}
            if words:
                values |= {column: word for column, word in row.words.items() if word == "n/a"}
            lines.append({**head, **values, "notes": notes(row)})
            if any(not math.isnan(sd) for sd in row.sd.values()):
                lines.append({**head, "row": "sd", **row.sd, "notes": ""})
    frame = pd.DataFrame(lines)
    whole = dict.fromkeys(("batch_size", "epochs", "epochs_seen", "seeds", "n_images"), "Int64")
    first = ["dataset", "severity", "arch", "method", "row", *numbers, "notes"]
    return frame[[*first, *(c for c in frame if c not in first)]].astype(whole)


def drop_of(averages: pd.DataFrame) -> pd.DataFrame:
    """How far each method falls below the source classifier on clean images, of :func:`means`."""
    columns = ["dataset", "severity", "arch", "method", "clean", "accuracy", "drop", "mode", "source_data",
               "epochs_seen", "settings", "settings_chosen", "notes", "table"]  # fmt: skip
    return averages[columns].rename(columns={"accuracy": "corrupted"})


def statistics(report: Report) -> pd.DataFrame:
    """Interval, tests, record and rank of each measured row (see :class:`evidence.Finding`)."""
    lines = []
    for table in report.tables:
        findings = evidence.findings(table)
        for row in table.measured_rows:
            finding = findings[id(row)]
            lines.append(line_of(
                table, row, mode=row.about["mode"], accuracy=row.value(MEAN), low=finding.interval[0],
                high=finding.interval[1], increase=row.rise, increase_low=finding.rise_interval[0],
                increase_high=finding.rise_interval[1],
                **{name: getattr(finding, name) if finding.record else None for name in TALLY},
                p_source_holm=finding.p_source, p_best_holm=finding.p_best,
                mean_rank_descriptive=finding.rank,
                calibration_error=row.reliability.error if row.reliability else math.nan,
                seeds=row.about["seeds"], n_images=row.about["n_images"],
            ))  # fmt: skip
    return pd.DataFrame(lines).astype(dict.fromkeys(TALLY, "Int64"))


def methods_given(built: Sequence[Table]) -> pd.DataFrame:
    """What each method was given, once for each way of giving (see :class:`given.Given`)."""
    lines = []
    for row in rows_given(built):
        had = given(row.about)
        lines.append({
            "method": row.method, "mode": had.mode, "batch_size": had.batch_size, "epochs": had.epochs,
            "source_data": had.source, "settings": had.settings, "settings_chosen": had.chosen,
            "deviations": had.deviations,
        })  # fmt: skip
    return pd.DataFrame(lines).drop_duplicates(ignore_index=True)
