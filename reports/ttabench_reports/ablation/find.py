"""A method under one setting, or under two that cross: the quantile-matching paper's ablation table.

Any sweep that holds such a grid will do, per architecture, data and protocol:
``ttabench sweep --set quantile.minibatch=128,256 --set quantile.quantiles_per_class=10,20``.
What a row's settings are is read from its stored configuration, never from its label.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ttabench.cell import spell
from ttabench.cell.protocol import Protocol
from ttabench.cell.subset_names import everything
from ttabench_reports.cells.frames import PROTOCOL
from ttabench_reports.cells.grouped import grouped
from ttabench_reports.cells.missing import Missing
from ttabench_reports.evidence.groups import which_weights
from ttabench_reports.tables.table import LEGEND, OFFLINE, Row, Table
from ttabench_reports.words.naming import MEAN
from ttabench_reports.words.unset_settings import settings_of

SAME = ("arch", "checkpoint", "base", "mode", "batch_size", "epochs")
"""What the rows of an ablation share, beside what their table shares; all else is configuration."""


@dataclass(frozen=True, order=True)
class Value:
    """A setting's value; 1 and 1.0 are one value, 1 and true are two. Sorts numbers as numbers."""

    kind: int
    number: float
    text: str

    @classmethod
    def of(cls, value: Any) -> Value:
        if isinstance(value, bool):
            return cls(1, float(value), spell(value))
        if isinstance(value, int | float):
            return cls(2, float(value), spell(int(value) if float(value).is_integer() else value))
        return cls(0 if value is None else 3, 0.0, spell(value))

    @classmethod
    def read(cls, text: str) -> Value:
        """A value as labels spell it."""
        words = {"true": True, "false": False, "none": None}
        if text.lower() in words:
            return cls.of(words[text.lower()])
        try:
            return cls.of(float(text))
        except ValueError:
            return cls.of(text)


UNSET = Value(-1, 0.0, "unset")  # a configuration stored before there was such a setting
Point = tuple[Value, ...]


@dataclass(frozen=True)
class Ablation:
    """Means over the corruptions of one method, where one or two of its settings vary.

    settings  their names.
    rows      by the values of these settings, in the same order; absent where nothing was run.
    weights   ``weights 1a2b3c4d``, if there are several of this architecture.
    planned   the values of combinations that a sweep planned, and of which no cell was run.
    """

    table: Table
    settings: tuple[str, ...]
    rows: dict[Point, Row]
    weights: str = ""
    planned: frozenset[Point] = frozenset()

    @property
    def about(self) -> dict[str, Any]:
        """What the rows share, see :data:`SAME`."""
        return next(iter(self.rows.values())).about

    @property
    def axes(self) -> list[list[Value]]:
        """The values of each setting, ascending."""
        return [sorted(set(values)) for values in zip(*self.rows, *self.planned, strict=True)]

    @property
    def points(self) -> list[Point]:
        """What was run or planned, line by line as the paper has it: the first setting varies fastest."""
        return sorted({*self.rows, *self.planned}, key=lambda point: point[::-1])

    @property
    def protocol(self) -> str:
        about = self.about
        return Protocol(**{name: about[name] for name in PROTOCOL}).caption(everything([about["dataset"]]))


def ablations(built: Sequence[Table], missing: Sequence[Missing] = ()) -> tuple[list[Ablation], list[str]]:
    """Every ablation in these tables; and why not, a sentence for each other method in several settings.

    missing  the planned cells without a record.
    """
    result: list[Ablation] = []
    reasons: list[str] = []
    for table in built:
        groups = grouped((tuple(row.about[name] for name in SAME), row) for row in table.measured_rows)
        for rows in groups.values():
            if len(rows) == 1:
                continue
            about = rows[0].about
            weights = which_weights(rows, [rows for rows in groups.values() if rows[0].arch == about["arch"]])
            ablation = _cross(table, rows)
            if isinstance(ablation, Ablation):
                result.append(replace(ablation, weights=weights, planned=_planned(ablation, missing)))
            else:
                where = ", ".join(filter(None, (about["arch"], weights, table.title)))
                reasons.append(f"{about['base']} on {where}: {ablation}")
    return result, reasons


def _cross(table: Table, rows: Sequence[Row]) -> Ablation | str:
    """The ablation that `rows` are, or why they are none."""
    try:
        configs = [dict(json.loads(row.about["config"])) for row in rows]
    except (ValueError, TypeError):
        return "its settings are not stored with all of its cells"
    values = [{key: Value.of(value) for key, value in config.items()} for config in configs]
    names = sorted({name for config in values for name in config})
    settings = [name for name in names if len({config.get(name, UNSET) for config in values}) > 1]
    if len(settings) > 2:
        return f"{len(settings)} settings differ ({', '.join(settings)}), where a table has room for two"
    points = {
        tuple(config.get(name, UNSET) for name in settings): row
        for config, row in zip(values, rows, strict=True)
    }
    if len(points) < len(rows):
        return "the same settings were measured under several names"
    if len(settings) == 2 and not all(_varies_alone(points, axis) for axis in (0, 1)):
        return f"{settings[0]} and {settings[1]} always change together"
    if sum(row.complete(MEAN) for row in rows) < 2:
        return "fewer than two of its means are complete"
    return Ablation(table, tuple(settings), points)


def _planned(ablation: Ablation, missing: Sequence[Missing]) -> frozenset[Point]:
    """The combinations of the missing cells that share all else with the rows.

    Nothing but a label tells their settings. One that it does not name is as in a row that does not name it.
    """
    about = ablation.about
    labels = {point: _of_label(row.about["method"]) for point, row in ablation.rows.items()}
    fixed = [_without(ablation.settings, named) for named in labels.values()]
    points = set()
    for one in missing:
        named = _of_label(one.method)
        if not _shares(one, about) or _without(ablation.settings, named) not in fixed:
            continue
        unnamed = [
            {point[axis] for point, others in labels.items() if name not in others}
            for axis, name in enumerate(ablation.settings)
        ]
        pairs = zip(ablation.settings, unnamed, strict=True)
        values = [{named[name]} if name in named else default for name, default in pairs]
        if all(len(value) == 1 for value in values):
            points.add(tuple(next(iter(value)) for value in values))
    return frozenset(points - ablation.rows.keys())


def _shares(one: Missing, about: Mapping[str, Any]) -> bool:
    """Whether cells are of the method, network, data and protocol of `about`, as far as the plan says it."""
    same = all(getattr(one, name) == about[name] for name in ("base", "arch", "dataset", "severity"))
    return same and one.under(about) > 0


def _of_label(label: str) -> dict[str, Value]:
    """The settings that a method's label names."""
    parts = (part.partition("=") for part in settings_of(label))
    return {name.strip(): Value.read(text.strip()) for name, _, text in parts}


def _without(names: Sequence[str], settings: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in settings.items() if name not in names}


def _varies_alone(points: dict[Point, Row], axis: int) -> bool:
    """Whether the setting `axis` of two takes several values at one value of the other."""
    other = [point[1 - axis] for point in points]
    return len(set(other)) < len(other)


# ---- as frames


def lines(ablation: Ablation) -> pd.DataFrame:
    """A line per combination, as in the paper's table; where accuracy is NaN, `notes` say why."""
    about, table = ablation.about, ablation.table
    fixed = {"dataset": table.key["dataset"], "severity": table.key["severity"], "arch": about["arch"],
             "method": about["base"]}  # fmt: skip
    made = []
    for point in ablation.points:
        row = ablation.rows.get(point)
        measured = {
            "accuracy": row.value(MEAN) if row else math.nan,
            "sd": row.sd.get(MEAN, math.nan) if row else math.nan,
            "corruptions": len(table.main),
            "seeds": row.about["seeds"] if row else 0,
            "weights": ablation.weights,
            "protocol": ablation.protocol,
            "notes": "; ".join(_notes(table, row)) if row else "not run",
        }
        taken = fixed.keys() | measured.keys()
        named = {
            f"{about['base']}.{name}" if name in taken else name: value.text
            for name, value in zip(ablation.settings, point, strict=True)
        }
        made.append({**fixed, **named, **measured})
    return pd.DataFrame(made)


def crossed(ablation: Ablation) -> pd.DataFrame:
    """The values of the first setting down, those of the second across; one setting: a single row."""
    *down, across = ablation.settings
    head = down[0] if down else "method"
    return pd.DataFrame([
        {head: label, **{f"{across}={value.text}": _accuracy(ablation, (*start, value)) for value in columns}}
        for label, start, columns in rows_of_cross(ablation)
    ])  # fmt: skip


def rows_of_cross(ablation: Ablation) -> list[tuple[str, Point, list[Value]]]:
    """(label, point of the first setting, values of the second) of each line; one setting: a single line."""
    *down, across = ablation.axes
    if not down:
        return [(ablation.about["base"], (), across)]
    return [(value.text, (value,), across) for value in down[0]]


def _accuracy(ablation: Ablation, point: Point) -> float:
    row = ablation.rows.get(point)
    return row.value(MEAN) if row else math.nan


def _notes(table: Table, row: Row) -> list[str]:
    """Flags and footnotes of a row, those about single corruptions included."""
    flags = [LEGEND[flag] for flag in row.flags if flag != OFFLINE]  # the protocol says that
    return flags + [table.notes.text(letter) for letter in letters(row)]


def letters(row: Row) -> list[str]:
    """All footnotes of a row."""
    return sorted(set("".join(row.letters.values())))
