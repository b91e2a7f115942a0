"""A method under one setting, or under two that cross: the quantile-matching paper's ablation table.

Any sweep that holds such a grid will do, per architecture, data and protocol:
``ttabench sweep --set quantile.minibatch=128,256 --set quantile.quantiles_per_class=10,20``.
What a row's settings are is read from its stored configuration, never from its label.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ttabench.errors import NothingToReport
from ttabench.protocol import Protocol
from ttabench_reports import naming
from ttabench_reports.files import write_text
from ttabench_reports.frames import PROTOCOL
from ttabench_reports.latex import Cell, Float, document, escape
from ttabench_reports.naming import MEAN
from ttabench_reports.shape import LEGEND, OFFLINE, Row, Table
from ttabench_reports.tables import DASH, tables, write_csv

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
            return cls(1, float(value), str(value).lower())
        if isinstance(value, int | float):
            whole = float(value).is_integer()
            return cls(2, float(value), str(int(value)) if whole else f"{value:g}")
        return cls(0, 0.0, "none") if value is None else cls(3, 0.0, str(value))


UNSET = Value(-1, 0.0, "unset")  # a configuration stored before there was such a setting
Point = tuple[Value, ...]


@dataclass(frozen=True)
class Ablation:
    """Means over the corruptions of one method, where one or two of its settings vary.

    settings  their names.
    rows      by the values of these settings, in the same order; absent where nothing was run.
    """

    table: Table
    settings: tuple[str, ...]
    rows: dict[Point, Row]

    @property
    def about(self) -> dict[str, Any]:
        """What the rows share, see :data:`SAME`."""
        return next(iter(self.rows.values())).about

    @property
    def axes(self) -> list[list[Value]]:
        """The values of each setting, ascending."""
        return [sorted(set(values)) for values in zip(*self.rows, strict=True)]

    @property
    def points(self) -> list[Point]:
        """The whole grid, line by line as the paper has it: the first setting varies fastest."""
        return [point[::-1] for point in itertools.product(*reversed(self.axes))]

    @property
    def protocol(self) -> str:
        shared = {**self.about, **self.table.key}
        return Protocol(**{name: shared[name] for name in PROTOCOL}).caption()

    @property
    def caption(self) -> str:
        """One paragraph: what was measured, Source beside it, protocol, seeds."""
        about, main = self.about, self.table.main
        under = f"mean over {len(main)} corruptions" if len(main) > 1 else naming.title(main[0])
        said = [
            f"Accuracy (%, {under}) of {about['base']} on {about['arch']}, {self.table.title}, "
            f"by {' and '.join(map(_words, self.settings))}."
        ]
        source = next((row.baseline for row in self.rows.values() if row.baseline), None)
        if source and not math.isnan(source.value(MEAN)):
            said.append(f"Source: {naming.number(source.value(MEAN))}.")
        said.append(f"Protocol: {self.protocol}.")
        seeds = sorted({row.about["seeds"] for row in self.rows.values()})
        if seeds[-1] > 1:
            said.append(f"Mean and standard deviation over {' to '.join(map(str, seeds))} seeds.")
        return " ".join([*said, *self.table.remarks])


def ablations(cells: pd.DataFrame) -> tuple[list[Ablation], list[str]]:
    """Every ablation in `cells`; and why not, a sentence for each other method that ran in several settings.

    Raises UserError where `cells` is empty or is not a table of cells.
    """
    found: list[Ablation] = []
    reasons: list[str] = []
    for table in tables(cells):
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in table.rows:
            if row.measured:
                groups.setdefault(tuple(row.about[name] for name in SAME), []).append(row)
        for rows in groups.values():
            if len(rows) == 1:
                continue
            ablation = _cross(table, rows)
            if isinstance(ablation, Ablation):
                found.append(ablation)
            else:
                about = rows[0].about
                reasons.append(f"{about['base']} on {about['arch']}, {table.title}: {ablation}")
    return found, reasons


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
    if sum(not math.isnan(row.value(MEAN)) for row in rows) < 2:
        return "fewer than two of its means are complete"
    return Ablation(table, tuple(settings), points)


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
        for label, start, columns in _crossed(ablation)
    ])  # fmt: skip


def _crossed(ablation: Ablation) -> list[tuple[str, Point, list[Value]]]:
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
    return flags + [table.notes.text(letter) for letter in _letters(row)]


def _letters(row: Row) -> list[str]:
    return sorted(set("".join(row.letters.values())))


# ---- as LaTeX


def paper_float(ablation: Ablation) -> Float:
    """The shape of the paper's table: data, settings and accuracy, a line per combination."""
    header = ["Dataset", "Model", *(escape(_words(name).capitalize()) for name in ablation.settings)]
    start = [escape(str(ablation.table.key["dataset"])), escape(ablation.about["arch"])]
    group: list[list[Cell]] = []
    for point in ablation.points:
        first = start if not group else [""] * len(start)
        texts = [*first, *(escape(value.text) for value in point)]
        group.append([*((text, False) for text in texts), _cell(ablation, point)])
    align = "ll" + "r" * (len(ablation.settings) + 1)
    return Float(_caption(ablation), align, [*header, r"Accuracy (\%)"], [group], _legend(ablation))


def crossed_float(ablation: Ablation) -> Float:
    """The first setting down, the second across."""
    *down, across = ablation.settings
    first, *others = (escape(value.text) for value in ablation.axes[-1])
    corner = escape(_words(down[0]).capitalize()) if down else ""
    header = [corner, f"{escape(_words(across).capitalize())}: {first}", *others]
    group = [
        [(escape(label), False), *(_cell(ablation, (*start, value)) for value in columns)]
        for label, start, columns in _crossed(ablation)
    ]
    align = ("r" if down else "l") + "r" * (len(header) - 1)
    return Float(_caption(ablation), align, header, [group], _legend(ablation))


def _cell(ablation: Ablation, point: Point) -> Cell:
    row = ablation.rows.get(point)
    if row is None:
        return escape(DASH), False
    value, sd = row.value(MEAN), row.sd.get(MEAN, math.nan)
    text = escape(row.words.get(MEAN, DASH)) if math.isnan(value) else f"{value:.1f}"
    spread = "" if math.isnan(sd) else f"{{\\tiny$\\pm${sd:.1f}}}"
    marks = "".join(escape(flag) for flag in row.flags if flag != OFFLINE)
    letters = "".join(_letters(row))
    raised = f"$^{{{letters}}}$" if letters else ""
    best = max(round(a, 1) for p in ablation.rows if not math.isnan(a := _accuracy(ablation, p)))
    return f"{text}{spread}{marks}{raised}", round(value, 1) == best


def _caption(ablation: Ablation) -> str:
    return f"{escape(ablation.caption)} Bold: best."


def _legend(ablation: Ablation) -> list[str]:
    rows = ablation.rows.values()
    flags = [flag for flag in LEGEND if flag != OFFLINE and any(flag in row.flags for row in rows)]
    letters = sorted({letter for row in rows for letter in _letters(row)})
    return [f"{escape(flag)} {escape(LEGEND[flag])}" for flag in flags] + [
        f"$^{letter}$ {escape(ablation.table.notes.text(letter))}" for letter in letters
    ]


def _words(name: str) -> str:
    return name.replace("_", " ")


# ---- as files


def write(cells: pd.DataFrame, to: Path) -> list[Path]:
    """``ablation_*``, and ``ablation_*_crossed``, CSV and LaTeX, and ``ablations.tex``; their paths.

    Raises NothingToReport, with the reasons, where `cells` hold no ablation.
    """
    found, reasons = ablations(cells)
    if not found:
        why = f" ({'; '.join(reasons)})" if reasons else ""
        raise NothingToReport(
            f"no method ran under several values of one setting, or of two that cross{why}; sweep with "
            "--set method.setting=value,value to make an ablation."
        )
    paths: list[Path] = []
    fragments: list[str] = []
    for ablation in found:
        about = ablation.about
        what = f"{about['base']} {about['arch']} {ablation.table.title}"
        name = f"ablation_{naming.slug(what)}"
        while name in fragments:
            name += "_"
        shapes = {name: (lines, paper_float), f"{name}_crossed": (crossed, crossed_float)}
        for shape, (frame, float_) in shapes.items():
            fragments.append(shape)
            paths.append(write_csv(Path(to) / f"{shape}.csv", frame(ablation)))
            paths.append(write_text(Path(to) / f"{shape}.tex", float_(ablation).render(shape)))
    return [*paths, write_text(Path(to) / "ablations.tex", document(fragments))]
