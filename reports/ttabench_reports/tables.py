"""The paper's tables from a table of cells: per corruption, summary, drop.

A mean is given over a complete set of corruptions and seeds or not at all; what is not a number
says why; what was not measured the same way is never averaged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ttabench.corruptions.names import CORRUPTIONS
from ttabench.protocol import Protocol
from ttabench_reports import naming
from ttabench_reports.files import write_text
from ttabench_reports.frames import PROTOCOL, ROW, TABLE, checked, differences, one_per_cell
from ttabench_reports.naming import MEAN, MEAN_EXTRA
from ttabench_reports.shape import LABEL, LEGEND, OFFLINE, PUBLISHED, STALE, Notes, Row, Table

DASH = "–"


def tables(cells: pd.DataFrame, published: pd.DataFrame | None = None) -> list[Table]:
    """Every per-corruption table in `cells`; `published` (see :mod:`published`) adds the papers' rows.

    Raises UserError where `cells` is empty or is not a table of cells.
    """
    frame, twins = one_per_cell(checked(cells))
    by_row = frame.groupby([*TABLE, *ROW], sort=False)
    frame = frame.assign(row=by_row.ngroup())
    rows = by_row.agg(
        seeds=("seed", "nunique"), n_images=("n_images", "max"), clean_accuracy=("clean_accuracy", "first"),
        seconds=("seconds", "mean"), stale=("stale", "any"), measured=("accuracy", "count"),
    ).reset_index()  # fmt: skip
    telling = ("checkpoint", "mode", "batch_size", "epochs", "config")
    rows["row"] = range(len(rows))
    rows["apart"] = differences(rows, [*TABLE, "arch", "method"], telling)
    keys = rows[list(TABLE)].drop_duplicates()
    keys["apart"] = differences(keys, ["dataset", "severity"], TABLE[2:])

    numbers = _Numbers(frame)
    groups = {key: list(group.to_dict("records")) for key, group in rows.groupby(list(TABLE))}
    built = []
    for record in sorted(
        keys.to_dict("records"), key=lambda k: (k["dataset"], k["severity"], naming.natural(k["apart"]))
    ):
        apart = record.pop("apart")
        key = {str(name): value for name, value in record.items()}
        members = [{str(k): v for k, v in row.items()} for row in groups[tuple(key.values())]]
        built.append(_build(key, apart, members, numbers, twins, published))
    return built


class _Numbers:
    """Means over seeds, and what went wrong, by row number; made once for all tables."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.by_seed = frame.set_index(["row", "seed", "corruption"])["accuracy"].unstack("corruption")
        grouped = frame.groupby(["row", "corruption"], sort=False)["accuracy"]
        seeds = frame.groupby("row")["seed"].nunique()
        self.values = _nested(grouped.mean())
        self.sd = _nested(grouped.std())
        self.measured = _nested(grouped.count())
        self.seeds: dict[Any, int] = seeds.to_dict()
        self.troubles: dict[int, list[Any]] = {}
        odd = frame[frame["accuracy"].isna() | (frame["alarm"] != "")].assign(ok=frame["accuracy"].notna())
        for cell in odd[["row", "corruption", "seed", "ok", "status", "reason", "alarm"]].itertuples(
            index=False
        ):
            self.troubles.setdefault(cell.row, []).append(cell)  # type: ignore[arg-type]
        self._over: dict[tuple[str, ...], tuple[dict[Any, float], dict[Any, float]]] = {}

    def complete(self, row: int, column: str) -> bool:
        """Whether every seed of the row has a number."""
        return self.measured[row].get(column, 0) == self.seeds[row]

    def mean(self, row: int, over: tuple[str, ...]) -> tuple[float, float]:
        """Mean and sd, over seeds, of the mean over corruptions."""
        if over not in self._over:
            by_seed = self.by_seed[list(over)].mean(axis=1, skipna=False).groupby(level="row")
            whole = by_seed.count() == by_seed.size()
            self._over[over] = (
                by_seed.mean().where(whole).to_dict(),
                by_seed.std().where(whole).to_dict(),
            )
        means, sds = self._over[over]
        return means[row], sds[row]


def _nested(series: pd.Series[Any]) -> dict[int, dict[str, float]]:
    """A series over (row, column) as row → column → value."""
    found: dict[int, dict[str, float]] = {}
    pairs: dict[Any, float] = series.to_dict()
    for (row, column), value in pairs.items():
        found.setdefault(row, {})[column] = value
    return found


def _build(
    key: dict[str, Any], apart: str, members: list[dict[str, Any]], numbers: _Numbers,
    twins: int, published: pd.DataFrame | None,
) -> Table:  # fmt: skip
    swept = {c for member in members for c in numbers.measured[member["row"]]}
    main, extra = map(tuple, naming.split(swept))
    notes = Notes()
    rows: list[Row] = []
    for arch in sorted({m["arch"] for m in members}, key=naming.arch_key):
        ours = sorted((m for m in members if m["arch"] == arch), key=_place)
        lines = [_row(m, numbers, main, extra, notes) for m in ours]
        for line in lines:
            rows.append(line)
            if line.kind == "method" and (baseline := _baseline(line, lines)):
                line.baseline = baseline
                rows.extend(_increase(line, baseline))
        rows.extend(_published(published, key, arch))
    title = f"{key['dataset']}, severity {key['severity']}" + (f" ({apart})" if apart else "")
    seeds = sorted({member["seeds"] for member in members})
    several = "" if seeds[-1] == 1 else str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    remarks = []
    if 0 < sum(c in CORRUPTIONS for c in main) < len(CORRUPTIONS):
        these = "this one" if len(main) == 1 else f"these {len(main)}"
        remarks.append(f"The mean is over {these} of the 15 corruptions.")
    if twins:
        remarks.append(f"Of {twins} cells measured in several orders of corruptions, the latest counts.")
    protocol = _protocols(key, members)
    return Table(key, title, protocol, several, tuple(remarks), main, extra, tuple(rows), notes)


def _place(member: dict[str, Any]) -> tuple[object, ...]:
    label = naming.method_key(member["base"], member["method"])
    return member["checkpoint"], *label, naming.natural(member["apart"])


def _row(
    member: dict[str, Any], numbers: _Numbers, main: tuple[str, ...], extra: tuple[str, ...], notes: Notes
) -> Row:
    number, source = member["row"], member["base"] == "source"
    row = Row(
        member["arch"],
        f"{member['method']} ({member['apart']})" if member["apart"] else member["method"],
        "source" if source else "method",
        dict(numbers.values[number]),
        dict(numbers.sd[number]),
        about=member,
    )
    offline = member["mode"] == "offline" and member["measured"] and not source
    row.flags = (OFFLINE if offline else "") + (STALE if member["stale"] else "")
    for name, over in ((MEAN, main), (MEAN_EXTRA, extra)):
        if over:
            row.values[name], row.sd[name] = numbers.mean(number, over)
    _explain(row, numbers, main, extra, notes)
    return row


def _explain(
    row: Row, numbers: _Numbers, main: tuple[str, ...], extra: tuple[str, ...], notes: Notes
) -> None:
    """Words in place of numbers, and footnotes."""
    number = row.about["row"]
    gaps = [c for c in (*main, *extra) if not numbers.complete(number, c)]
    row.words = {column: DASH for column in gaps if math.isnan(row.value(column))}
    for cell in numbers.troubles.get(number, ()):
        column, status = cell.corruption, "n/a" if cell.status == "n/a" else "failed"
        reason = f"{status}: {cell.reason or 'no reason stored'}"
        if cell.ok:
            row.note(column, notes.letter(f"alarm: {cell.alarm}"))
        elif column in row.words:
            row.words[column] = status if row.words[column] in (DASH, status) else "failed"
            row.note(column, notes.letter(reason))
        else:
            row.note(column, notes.letter(f"seed {cell.seed} {reason}; the other seeds' mean is shown"))
    row.partial = frozenset(gaps) - row.words.keys()
    for column in gaps:
        if column in row.partial and column not in row.letters:
            row.note(column, notes.letter("not measured in every seed; the mean of the others is shown"))
    for name, over in ((MEAN, main), (MEAN_EXTRA, extra)):
        if over and math.isnan(row.value(name)):
            words = {row.words.get(column, "") for column in over}
            row.words[name] = "n/a" if words == {"n/a"} else DASH
            if words not in ({"n/a"}, {"failed"}):
                whole = sum(column not in gaps for column in over)
                unit = "corruptions" if numbers.seeds[number] == 1 else "corruptions in every seed"
                row.note(name, notes.letter(f"no mean: {whole} of {len(over)} {unit}"))
    for letter in sorted(set.intersection(*(set(row.letters.get(c, "")) for c in (*main, *extra)))):
        row.note(LABEL, letter)  # said once for the whole row
        for column in (*main, *extra):
            row.letters[column] = row.letters[column].replace(letter, "")


def _baseline(row: Row, lines: list[Row]) -> Row | None:
    """The Source row to subtract: same weights, and as near in protocol as there is.

    Source neither adapts nor looks at a batch as a whole, so its batch size and mode change nothing.
    """
    same = [
        line
        for line in lines
        if line.kind == "source"
        and line.about["checkpoint"] == row.about["checkpoint"]
        and line.about["measured"]
    ]

    def near(line: Row) -> int:
        return sum(line.about[name] == row.about[name] for name in ("mode", "batch_size", "epochs"))

    return max(same, key=near, default=None)


def _increase(row: Row, baseline: Row) -> Iterator[Row]:
    partial = row.partial | baseline.partial
    change = {c: row.value(c) - baseline.value(c) for c in row.values if c not in partial}
    if not all(map(math.isnan, change.values())):
        yield Row(row.arch, row.method, "increase", change)


def _published(known: pd.DataFrame | None, key: dict[str, Any], arch: str) -> Iterator[Row]:
    if known is None:
        return
    here = (known["dataset"] == key["dataset"]) & (known["severity"] == key["severity"])
    for (publication, method), group in known[here & (known["arch"] == arch)].groupby(
        ["publication", "method"], sort=False
    ):
        values = {str(c): float(v) for c, v in zip(group["corruption"], group["accuracy"], strict=True)}
        yield Row(arch, f"{method} ({publication})", "published", values, flags=PUBLISHED)


def _protocols(key: dict[str, Any], members: list[dict[str, Any]]) -> str:
    """The protocol of every row, said once where all share it."""
    said: dict[str, list[str]] = {}
    used = [member for member in members if member["measured"]] or members
    for member in sorted(used, key=_place):
        protocol = Protocol(**{name: key.get(name, member[name]) for name in PROTOCOL})
        said.setdefault(protocol.caption(), []).append(member["method"])
    if len(said) == 1:
        return next(iter(said))
    return "; ".join(f"{', '.join(dict.fromkeys(labels))} — {caption}" for caption, labels in said.items())


# ---- as plain frames


def per_corruption(cells: pd.DataFrame, published: pd.DataFrame | None = None) -> pd.DataFrame:
    """All per-corruption tables below each other: a line per architecture × method, and its Increase and sd.

    Column `row` is accuracy, sd (over seeds), increase (points above Source) or published. NaN where
    there is no number; `notes` says why.
    """
    return _per_corruption(tables(cells, published))


def _per_corruption(built: Sequence[Table], *, words: bool = False) -> pd.DataFrame:
    """With `words`, "n/a" stands where it belongs (pandas reads it back as NaN)."""
    main, extra = naming.split({c for table in built for c in (*table.main, *table.extra)})
    numbers = [*main, MEAN, *extra, *([MEAN_EXTRA] if any(table.extra for table in built) else [])]
    about = ("mode", "batch_size", "epochs", "seeds", "n_images", "checkpoint", "stale")
    lines: list[dict[str, Any]] = []
    for table in built:
        for row in table.rows:
            kind = "accuracy" if row.measured else row.kind
            head = {**table.key, "arch": row.arch, "method": row.method, "row": kind}
            head |= {name: row.about.get(name) for name in about}
            values: dict[str, Any] = {column: row.value(column) for column in table.columns}
            if words:
                values |= {column: word for column, word in row.words.items() if word == "n/a"}
            lines.append({**head, **values, "notes": _notes(table, row)})
            if any(not math.isnan(sd) for sd in row.sd.values()):
                lines.append({**head, "row": "sd", **row.sd, "notes": ""})
    frame = pd.DataFrame(lines)
    whole = dict.fromkeys(("batch_size", "epochs", "seeds", "n_images"), "Int64")
    first = ["dataset", "severity", "arch", "method", "row", *numbers, "notes"]
    return frame[[*first, *(c for c in frame if c not in first)]].astype(whole)


def _notes(table: Table, row: Row) -> str:
    """The footnotes of one row in words, each with the columns it is about."""
    about: dict[str, list[str]] = {}
    for column, letters in row.letters.items():
        for letter in letters:
            about.setdefault(table.notes.text(letter), []).append(column)
    said = [LEGEND[flag] for flag in row.flags]
    for text, columns in about.items():
        said.append(text if columns in ([LABEL], [MEAN]) else f"{text} ({', '.join(columns)})")
    return "; ".join(said)


def summary(cells: pd.DataFrame) -> pd.DataFrame:
    """Means over the corruptions per dataset × severity × arch × method: baseline, accuracy, increase."""
    return means(tables(cells))


def means(built: Sequence[Table]) -> pd.DataFrame:
    """:func:`summary` of tables that are there already; `word` stands where there is no mean."""
    lines = []
    for table in built:
        for row in filter(lambda row: row.measured, table.rows):
            mean, clean = row.value(MEAN), row.about["clean_accuracy"]
            source = row if row.kind == "source" else row.baseline
            baseline = math.nan if source is None else source.value(MEAN)
            lines.append({
                "table": table.title, "dataset": table.key["dataset"], "severity": table.key["severity"],
                "arch": row.arch, "method": row.method, "flags": row.flags, "baseline": baseline,
                "accuracy": mean, "sd": row.sd[MEAN],
                "increase": math.nan if source is row else mean - baseline,
                "clean": clean, "drop": clean - mean, "corruptions": len(table.main),
                "seeds": row.about["seeds"], "n_images": row.about["n_images"],
                "seconds_per_cell": row.about["seconds"], "word": row.words.get(MEAN, ""),
                "notes": _notes(table, row),
            })  # fmt: skip
    return pd.DataFrame(lines)


def drop(cells: pd.DataFrame) -> pd.DataFrame:
    """How far each method falls below the source classifier on clean images: clean, corrupted, drop."""
    return _drop(means(tables(cells)))


def _drop(means: pd.DataFrame) -> pd.DataFrame:
    columns = [
        "dataset",
        "severity",
        "arch",
        "method",
        "clean",
        "accuracy",
        "drop",
        "word",
        "notes",
        "table",
        "flags",
    ]
    return means[columns].rename(columns={"accuracy": "corrupted"})


# ---- as files


def write_cells(cells: pd.DataFrame, path: Path) -> Path:
    """``cells.csv``: one row per cell, accuracies in percent to 4 decimals, in an order that never varies."""
    frame = checked(cells)
    frame["_place"] = frame["corruption"].map(naming.corruption_key)
    by = ["dataset", "severity", "arch", "base", "method", "_place", "seed", "mode", "cell_id"]
    frame = frame.sort_values(by)[[c for c in cells.columns if c in frame]]
    return write_csv(path, frame.round({"seconds": 3, "written": 3}))


def write(cells: pd.DataFrame, to: Path, published: pd.DataFrame | None = None) -> list[Path]:
    """``per_corruption.csv``, ``summary.csv`` and ``drop.csv`` in the folder `to`; their paths."""
    built = tables(cells, published)
    averages = means(built)
    return [
        write_csv(Path(to) / "per_corruption.csv", _per_corruption(built, words=True)),
        write_csv(Path(to) / "summary.csv", averages.drop(columns=["word", "flags"])),
        write_csv(Path(to) / "drop.csv", _drop(averages).drop(columns=["word", "flags"])),
    ]


def write_csv(path: Path, frame: pd.DataFrame) -> Path:
    """`frame` with numbers to 4 decimals."""

    def rounded(value: Any) -> Any:
        return round(value, 4) if isinstance(value, float) else value

    mixed = [column for column in frame if frame[column].dtype == object]
    frame = frame.assign(**{str(c): frame[c].map(rounded) for c in mixed}).round(4)
    return write_text(path, frame.to_csv(index=False, lineterminator="\n"))
